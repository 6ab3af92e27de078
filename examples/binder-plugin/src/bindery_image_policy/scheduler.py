"""The scheduler's half: a score for nodes, and data for the binder's half.

Pure: the same session gives the same answer. Scores of all plugins are added, so each keeps to a
decade of its own; this one stays below those of node placement.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.planning.session import Session


class Arguments(BaseModel):
    """What the configuration may say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    warm_label: str = Field(alias="warmLabel")
    """The label of nodes that hold the images already; its value is "true"."""


class ImagePolicy:
    """Prefers nodes that hold the images."""

    name = "image_policy"
    arguments = Arguments

    def __init__(self, arguments: Arguments) -> None:
        self._label = arguments.warm_label

    def node_scores(
        self,
        session: Session,
        shape: Shape,  # noqa: ARG002  # this score is the same for all pods
        rows: Rows,
    ) -> NDArray[np.float64]:
        """Return 0.5 for nodes that hold the images, so that they win among equals."""
        return np.asarray(0.5 * session.labels.equals(self._label, "true")[rows])

    def bind_data(
        self,
        session: Session,
        task: Task,  # noqa: ARG002  # only its node matters
        row: int,
    ) -> Mapping[str, Any]:
        """Tell the binder's half whether the node holds the images."""
        return {"warm": bool(session.labels.equals(self._label, "true")[row])}
