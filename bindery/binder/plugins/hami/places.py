"""Data of the queues for locks: places, waiters and the state of holders.

Used by `queues`, which alone changes them. Plain data; the words of its errors are here too.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import durationpy

from bindery.api.hami.errors import shown
from bindery.api.hami.vendor import Lock
from bindery.binder.plugins.hami.holders import Judgement, read
from bindery.binder.plugins.hami.mirror import PodKey
from bindery.binder.plugins.hami.objects import LockedNode
from bindery.binder.plugins.interface import PluginError

STALLED: Final = "NodeLockStalled"
"""The reason of pods whose queue does not move on."""


EXPIRE_VARIABLE: Final = "HAMI_NODELOCK_EXPIRE"
"""The environment variable by which HAMi's own components learn when a lock expires."""
_EXPIRE_S: Final = 300.0


def default_expire_s(environment: Mapping[str, str]) -> float:
    """Return when locks expire if the configuration does not say it: HAMi's variable, a Go duration
    such as 5m or 1m30s, else HAMi's five minutes.

    Raises:
        ValueError: the variable is no duration, or not a positive one.
    """
    text = environment.get(EXPIRE_VARIABLE, "")
    if not text:
        return _EXPIRE_S
    try:
        expire_s = float(durationpy.from_str(text).total_seconds())
    except (durationpy.DurationError, OverflowError) as error:
        raise ValueError(f"{EXPIRE_VARIABLE} {shown(text)} is not a duration such as 5m") from error
    if expire_s <= 0:
        raise ValueError(f"{EXPIRE_VARIABLE} {shown(text)} is not positive")
    return expire_s


@dataclass(frozen=True)
class Timing:
    """Time limits, in seconds."""

    expire_s: float
    """For holders that may not need the lock any more, or are not known."""
    stall_s: float
    """For a queue to move on, before all in it are told to try again later."""


@dataclass(frozen=True)
class LockPlace:
    """A lock of a node."""

    node: str
    lock: Lock


@dataclass(eq=False)
class Waiter:
    """A pod that waits."""

    pod: PodKey
    granted: "asyncio.Future[str]"
    """The value by which the pod has the lock."""
    since_s: float
    priority: int = 0
    round: int = 0
    """In which round over the namespaces it is served; given by the queue."""

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller is served first."""
        return -self.priority, self.round


@dataclass
class LockQueue:
    """The waiters for a place, and the state of its lock."""

    place: LockPlace
    waiters: deque[Waiter] = field(default_factory=deque)
    """The first is being served; the others stand in the order of their ranks."""
    moved_s: float = 0.0
    """When somebody last got the lock, or began to wait for it; of the loop's clock."""
    found: tuple[str, str] = ("", "")
    """The lock that stands in the way, and what was found about it."""
    found_s: float = 0.0
    """Since when that has been found, seconds since the epoch."""
    written: tuple[LockedNode | None, LockedNode] | None = None
    """What the mirror showed when the lock was last written here, and what the node was then."""

    def holder(self, standing: str | None) -> Waiter | None:
        """Return who of the waiting has the lock `standing`, from an earlier process."""
        lock = read(standing) if standing is not None and self.place.lock is Lock.NODE else None
        if lock is None:
            return None
        waiting = (waiter for waiter in self.waiters if not waiter.granted.done())
        return next((waiter for waiter in waiting if lock.is_of(*waiter.pod)), None)

    def add(self, waiter: Waiter) -> None:
        """Take in a waiter: the highest priority goes first, and among equals each namespace has
        one pod in a round, so that one with many keeps nobody out (start-time fair queueing).
        """
        namespace, _ = waiter.pod
        equals = [each for each in self.waiters if each.priority == waiter.priority]
        own = [each.round for each in equals if each.pod[0] == namespace]
        begins = min((each.round for each in equals), default=0)
        waiter.round = max(own) + 1 if own else begins
        behind = (i for i, each in enumerate(self.waiters) if i and each.rank > waiter.rank)
        self.waiters.insert(next(behind, len(self.waiters)), waiter)


@dataclass(frozen=True)
class LockHolder:
    """Who stands in the way."""

    standing: str
    """The value of the lock."""
    holder: PodKey
    judgement: Judgement
    may_be_taken: bool
    left_s: float
    """Until it may be taken; infinite for a live holder."""
    is_told: bool
    """Whether changes of the holder are watched."""


def stalled_error(place: LockPlace, timing: Timing, why: str) -> PluginError:
    """Return the error for pods in a queue without progress."""
    message = f"the lock of {place.node} has not moved on for {timing.stall_s:g} s: {why}"
    return PluginError(message, reason=STALLED)


def copy_of(error: PluginError) -> PluginError:
    """Return an error of its own for each pod: a traceback belongs to one task."""
    return PluginError(error.message, reason=error.reason, permanent=error.permanent)
