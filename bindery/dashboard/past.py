"""What the pages show of the past: the records, and the reader that has them.

The package for history implements `HistoryReader`. A reader answers at once, from memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bindery.scheduler.model.jobs import JobKey


@dataclass(frozen=True, slots=True)
class PastEviction:
    """One eviction of pods of a gang, or several for the same gang in a row.

    Times are seconds since the epoch.
    """

    begun: float
    at: float
    """When the last pod was evicted."""
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
    """One CamelCase word."""
    message: str
    """The last message of the reason; empty if it is not known."""
    seconds: float
    """How long it waited: less than the time between, if these are several waits."""
    times: int
    """How many waits for this reason, with short breaks between."""


@dataclass(frozen=True, slots=True)
class PastPlan:
    """A plan of the scheduler for a gang, or several equal ones in a row."""

    at: float
    ended: float
    """When its BindRequest had ended."""
    gang: JobKey
    outcome: str
    """What became of it, such as Succeeded or Failed."""
    pods: int
    nodes: tuple[str, ...]
    """Some of the nodes."""
    node_count: int
    """How many nodes, at least."""
    waited_s: float
    """How long the gang had waited for its minimum before the plan; of several plans, the mean."""
    times: int
    """How many plans."""


@dataclass(frozen=True, slots=True)
class QueuePoint:
    """The means of one resource of a queue in a time slice, in devices, cores or bytes."""

    begun: float
    at: float
    """The end of the slice."""
    allocated: float
    fair_share: float
    requested: float
    waiting_gangs: float | None
    """Gangs of the queue and all queues below that wait; None if it was not kept."""


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
