"""Data of the queues for locks: places, waiters and the state of holders.

Only `queues` changes them. The texts of the errors are here too.
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
"""Failure reason of pods in a queue without progress."""


EXPIRE_VARIABLE: Final = "HAMI_NODELOCK_EXPIRE"
"""The environment variable with which HAMi's own components configure the expiry of locks."""
_EXPIRE_S: Final = 300.0


def default_expire_s(environment: Mapping[str, str]) -> float:
    """Return the age in seconds at which locks expire: HAMi's variable, such as 1m30s, or 300.

    Raises:
        ValueError: the variable is not a positive duration.
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
    """For holders that are unknown or may no longer need the lock."""
    stall_s: float
    """For a queue without progress, before all its waiters fail and try again later."""


@dataclass(frozen=True)
class LockPlace:
    """A lock of a node."""

    node: str
    lock: Lock


@dataclass(eq=False)
class Waiter:
    """A pod that waits for a lock."""

    pod: PodKey
    granted: "asyncio.Future[str]"
    """The value of the lock that the pod got."""
    since_s: float
    priority: int = 0
    round: int = 0
    """The round over the namespaces in which the pod is served; set by the queue."""

    @property
    def rank(self) -> tuple[int, int]:
        """The order of service; the smallest rank is served first."""
        return -self.priority, self.round


@dataclass
class LockQueue:
    """The waiters for a place, and the state of the lock."""

    place: LockPlace
    waiters: deque[Waiter] = field(default_factory=deque)
    """The first waiter is being served; the others are in the order of their ranks."""
    moved_s: float = 0.0
    """Time of the loop's clock when a waiter last got the lock, or began to wait for it."""
    found: tuple[str, str] = ("", "")
    """The other holder's lock, and the reason of its judgement."""
    found_s: float = 0.0
    """Start of that judgement, in seconds since the epoch."""
    written: tuple[LockedNode | None, LockedNode] | None = None
    """The node in the mirror at the last write of the lock, and the node after that write."""

    def holder(self, standing: str | None) -> Waiter | None:
        """Return the waiter that has the lock `standing` from an earlier process."""
        lock = read(standing) if standing is not None and self.place.lock is Lock.NODE else None
        if lock is None:
            return None
        waiting = (waiter for waiter in self.waiters if not waiter.granted.done())
        return next((waiter for waiter in waiting if lock.is_of(*waiter.pod)), None)

    def add(self, waiter: Waiter) -> None:
        """Add a waiter. The highest priority goes first. Among equals, each namespace has one pod
        in a round, so that a namespace with many pods does not block others (start-time fair
        queueing).
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
    """The other holder of a lock."""

    standing: str
    """The value of the lock."""
    holder: PodKey
    judgement: Judgement
    may_be_taken: bool
    left_s: float
    """Seconds until the lock may be taken; infinite for a live holder."""
    is_watched: bool
    """Whether a watch delivers changes of the holder."""


def stalled_error(place: LockPlace, timing: Timing, why: str) -> PluginError:
    """Return the error for pods in a queue without progress."""
    message = f"the lock of {place.node} has not moved on for {timing.stall_s:g} s: {why}"
    return PluginError(message, reason=STALLED)


def copy_of(error: PluginError) -> PluginError:
    """Return a copy of the error for each pod, because a traceback belongs to one task."""
    return PluginError(error.message, reason=error.reason, permanent=error.permanent)
