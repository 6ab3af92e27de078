"""What an operation is, and what a ledger must do with it.

A Statement enters every operation into all ledgers of the session, in their order, and takes it
back from them in reverse order. A plugin adds its own ledger by offering one.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from bindery.scheduler.model.jobs import Task, TaskStatus


class OperationKind(Enum):
    """What a Statement can do with a pod."""

    ALLOCATE = "allocate"
    """Onto idle room; becomes part of a BindRequest on commit."""
    PIPELINE = "pipeline"
    """Onto room that is being released; holds it for the rest of the session."""
    EVICT = "evict"
    """The pod's room becomes releasing."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of the undo log: what was done, and what the task was before."""

    kind: OperationKind
    task: Task
    row: int
    """The node's row."""
    reason: str
    previous_status: TaskStatus
    previous_row: int


class LedgerRefusalError(Exception):
    """A ledger cannot take an operation. It has not changed; the Statement undoes the rest."""

    def __init__(self, message: str, *, fits_later: bool = False) -> None:
        super().__init__(message)
        self.fits_later = fits_later
        """Whether it could be promised instead: room that is being released will do."""


class Ledger(Protocol):
    """Something that is kept in step with the plan."""

    @property
    def name(self) -> str:
        """What the ledger is called in errors and logs."""
        ...

    def apply(self, operation: Operation) -> None:
        """Enter `operation`.

        Raises:
            LedgerRefusalError: it does not fit; the ledger is unchanged.
        """
        ...

    def revert(self, operation: Operation) -> None:
        """Take `operation` back, exactly. Cannot fail."""
        ...
