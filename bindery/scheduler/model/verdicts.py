"""Results of rules: refusals of jobs, pods and nodes, and sort keys.

Plugins return them, the session and the solver apply them, and conditions and `bindery explain`
show them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import JobKey

SortKey = tuple[Any, ...]
"""Compared element by element; smaller keys come first."""

Rows = NDArray[np.intp]
"""Node rows, in any order."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of a rule to plan a job now."""

    reason: str
    """One CamelCase word for the condition: OverLimit, QueueClosed, …"""
    message: str
    is_lasting: bool = False
    """Whether it would remain after any evictions."""


@dataclass(frozen=True, slots=True)
class RoomNote:
    """What is known about room that is made or expected for a job."""

    text: str
    """A sentence."""
    nodes_requested: bool = False
    """Whether nodes for it were requested, so that autoscalers need not look at its pods."""


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A reason why some nodes cannot take a pod."""

    reason: str
    """Text for people after a count of nodes: `had untolerated taint {a: b}`."""
    nodes: BoolColumn
    """bool over node rows: the nodes that fail for this reason."""
    is_lasting: bool = True
    """Whether it would remain after any evictions."""
    is_shared: bool = False
    """Whether other jobs have the very same mask, so that their pods can share vectors."""
    closed_by: Mapping[JobKey, BoolColumn] = field(default_factory=dict)
    """Job -> the nodes that are closed as long as it has pods that stay, as a mask."""


class _Last:
    """Compares greater than every part of a plugin's sort key."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self


LAST = _Last()
"""First part of the sort key of an item whose plugin failed."""
