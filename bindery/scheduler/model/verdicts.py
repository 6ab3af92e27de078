"""What a rule answers: why a job, a pod or nodes are refused, and what goes first.

Plugins return them, the session and the solver apply them, conditions and `bindery explain` show
them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn

SortKey = tuple[Any, ...]
"""Compared element by element; smaller goes first."""

Rows = NDArray[np.intp]
"""Node rows, in any order."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job may not be planned now."""

    reason: str
    """One CamelCase word for the condition: OverLimit, QueueClosed, …"""
    message: str
    is_lasting: bool = False
    """Whether evicting others could not change it."""


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A reason why some nodes cannot take a pod."""

    reason: str
    """What people read behind a count: `had untolerated taint {a: b}`."""
    nodes: BoolColumn
    """bool over node rows: the nodes that fail for this reason."""
    is_lasting: bool = True
    """Whether evicting others could not change it."""
