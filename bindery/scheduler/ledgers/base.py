"""The Protocol of ledgers, and the operations of Statements.

A Statement enters each operation into all ledgers of the session, in their order, and reverts it in
reverse order. A plugin can offer further ledgers.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from bindery.scheduler.model.jobs import Task, TaskStatus


class OperationKind(Enum):
    """The kinds of operations on a pod."""

    ALLOCATE = "allocate"
    """Place it on idle room; it becomes part of a BindRequest on commit."""
    PIPELINE = "pipeline"
    """Place it on room that is being released, for the rest of the session."""
    EVICT = "evict"
    """Count its room as releasing."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of the undo log: the operation, and the task's state before it."""

    kind: OperationKind
    task: Task
    row: int
    """The node's row."""
    reason: str
    previous_status: TaskStatus
    previous_row: int


class LedgerRefusalError(Exception):
    """A ledger refuses an operation. It has not changed; the Statement reverts the others."""

    def __init__(self, message: str, *, fits_later: bool = False) -> None:
        super().__init__(message)
        self.fits_later = fits_later
        """Whether the pod could be pipelined instead, onto room that is being released."""


class Ledger(Protocol):
    """An account of resources that follows the plan."""

    @property
    def name(self) -> str:
        """Name of the ledger in errors and logs."""

    def apply(self, operation: Operation) -> None:
        """Enter `operation`.

        Raises:
            LedgerRefusalError: it does not fit; the ledger is unchanged.
        """

    def revert(self, operation: Operation) -> None:
        """Undo `operation` exactly. Cannot fail."""
