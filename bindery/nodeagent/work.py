"""A work queue of keys with delays; at most one worker handles a key at a time.

The agent has one queue for nodes and one for pods, so that a burst of pods never delays the
heartbeats. A key that is added again while it waits is handled once; a key added while it is
handled is handled again afterwards. A worker reads the state when it handles a key, so many changes
become one write. All deadlines are in one heap behind one timer.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Hashable
from random import Random
from typing import Final, Generic, TypeVar

import structlog

from bindery.kube.errors import KubeError
from bindery.kube.http.outages import log_failure

KeyT = TypeVar("KeyT", bound=Hashable)

_BACKOFF_FIRST_S: Final = 0.2
_BACKOFF_LONGEST_S: Final = 7.0
"""The longest pause between two attempts to register in the kubelet."""
_TICK_S: Final = 0.02
"""Deadlines closer together than this are handled together, which saves wake-ups."""
_OUTDATED_KEPT: Final = 1000
"""Maximum number of outdated entries in the heap before they are removed."""

log = structlog.get_logger(__name__)


class WorkQueue(Generic[KeyT]):
    """A queue of keys with due times, and the workers that call `handle`.

    `handle` returns the seconds until the next call for the key, or None for no call before `add`.
    After a KubeError, the key is handled again after a growing pause. Any other exception is a
    defect and ends `run`.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[KeyT], Awaitable[float | None]],
        *,
        workers: int,
        random: Random,
    ) -> None:
        self._name, self._handle, self._workers, self._random = name, handle, workers, random
        self._ready: asyncio.Queue[KeyT] = asyncio.Queue()
        self._queued: set[KeyT] = set()
        self._active: set[KeyT] = set()
        self._again: set[KeyT] = set()  # added while they were being handled
        self._failures: dict[KeyT, int] = {}  # key -> failures in a row
        self._due: dict[KeyT, float] = {}  # key -> loop time; the heap may hold old times too
        self._heap: list[tuple[float, int, KeyT]] = []
        self._pushed = 0  # breaks ties, so that keys need no order
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Number of keys that wait for a worker."""
        return len(self._queued)

    def add(self, key: KeyT) -> None:
        """Schedule `key` for the next free worker."""
        self._due.pop(key, None)
        if key in self._active:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def add_later(self, key: KeyT, delay_s: float) -> None:
        """Schedule `key` in `delay_s`; an earlier deadline is replaced."""
        due = asyncio.get_running_loop().time() + max(delay_s, 0.0)
        self._due[key] = due
        self._pushed += 1
        heapq.heappush(self._heap, (due, self._pushed, key))
        if len(self._heap) > 2 * len(self._due) + _OUTDATED_KEPT:
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
        self._arm()

    def forget(self, key: KeyT) -> None:
        """Drop the deadline and the failures of `key`."""
        self._due.pop(key, None)
        self._failures.pop(key, None)

    async def run(self) -> None:
        """Handle keys; does not return."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            self._queued.discard(key)
            self._active.add(key)
            try:
                delay_s = await self._attempt(key)
            finally:
                self._active.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            elif delay_s is not None:
                self.add_later(key, delay_s)

    async def _attempt(self, key: KeyT) -> float | None:
        try:
            delay_s = await self._handle(key)
        except KubeError as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause_s = min(_BACKOFF_FIRST_S * 2.0 ** min(failures, 10), _BACKOFF_LONGEST_S)
            pause_s *= self._random.uniform(0.5, 1.0)
            log_failure(
                log, "work failed; will be retried", error,
                queue=self._name, key=str(key), failures=failures, pause_s=round(pause_s, 1),
            )  # fmt: skip
            return pause_s
        self._failures.pop(key, None)
        return delay_s

    def _arm(self) -> None:
        """Set the timer to the earliest deadline."""
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._timer is not None:
            if self._timer.when() <= due + _TICK_S:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due + _TICK_S, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                self.add(key)
        self._arm()
