"""What the pages show of the past: the records, and the reader that has them.

The package for history implements `HistoryReader`. A reader answers at once, from memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bindery.scheduler.model.jobs import JobKey


@dataclass(frozen=True, slots=True)
class PastEviction:
    """One eviction of pods of a gang. Times are seconds since the epoch."""

    at: float
    gang: JobKey
    action: str
    """The reason, such as Reclaim."""
    pods: int
    claimant: JobKey | None
    """The gang that needed the room; None if it is not known."""
    claimant_queue: str
    message: str


@dataclass(frozen=True, slots=True)
class PastWait:
    """A time for which a gang waited."""

    gang: JobKey
    queue: str
    begun: float
    ended: float | None
    """None: it still waits."""
    reason: str
    """The last reason; one CamelCase word."""


@dataclass(frozen=True, slots=True)
class PastPlan:
    """A plan of the scheduler for a gang."""

    at: float
    gang: JobKey
    outcome: str
    """What became of it, such as Succeeded or Failed."""
    reason: str
    pods: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueuePoint:
    """The amounts of one resource of a queue at one time, in devices, cores or bytes."""

    at: float
    allocated: float
    fair_share: float
    requested: float


class HistoryReader(Protocol):
    """Reads what has been kept of the past; the newest record comes last."""

    @property
    def since(self) -> float | None:
        """The oldest time of which something is kept; None if nothing is."""
        ...

    def evictions_of(self, gang: JobKey) -> Sequence[PastEviction]:
        """Return the evictions of pods of `gang`."""
        ...

    def waits(self, gang: JobKey) -> Sequence[PastWait]:
        """Return the times for which `gang` waited."""
        ...

    def plans(self, gang: JobKey) -> Sequence[PastPlan]:
        """Return the plans for `gang`."""
        ...

    def queue_trend(self, queue: str, resource: str) -> Sequence[QueuePoint]:
        """Return the amounts of `resource` of `queue` over time."""
        ...


class NoHistory:
    """The reader where nothing is kept, such as for a file."""

    since: float | None = None

    def evictions_of(self, gang: JobKey) -> Sequence[PastEviction]:  # noqa: ARG002
        """Return nothing."""
        return ()

    def waits(self, gang: JobKey) -> Sequence[PastWait]:  # noqa: ARG002
        """Return nothing."""
        return ()

    def plans(self, gang: JobKey) -> Sequence[PastPlan]:  # noqa: ARG002
        """Return nothing."""
        return ()

    def queue_trend(self, queue: str, resource: str) -> Sequence[QueuePoint]:  # noqa: ARG002
        """Return nothing."""
        return ()
