"""Deletes finished requests after their time to live.

`statements.manager` adds every request with a final status, also at the start, so that no request
is forgotten at a restart. The time counts from `completionTime` in the status. Deletions are
limited to a rate, so that a burst of finished requests does not delay bindings.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from bindery.api.times import seconds
from bindery.kube.errors import ConflictError, KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement

_log: Final = structlog.get_logger(__name__)

_REMOVALS_PER_S: Final = 100.0
"""Maximum deletions a second: low enough for an API server with other work, and above the rate at
which requests can finish for long; otherwise they would accumulate."""
_POSTPONE_S: Final = 10.0
"""Seconds until the next check of a request that must stay for now, or could not be deleted."""


@dataclass(frozen=True, order=True)
class Finished:
    """A request with at least one finished Statement."""

    completed_s: float
    namespace: str = field(compare=False)
    name: str = field(compare=False)
    uid: str = field(compare=False)
    statement_ids: tuple[str, ...] = field(compare=False)
    """The ids of all Statements in the request."""


def finished(statement: CommittedStatement) -> Finished:
    """Return the entry of a finished request; without a completion time it is due at once."""
    meta = statement.metadata
    completed_s = seconds(statement.status.completion_time) or 0.0
    return Finished(completed_s, meta.namespace, meta.name, meta.uid, statement.siblings)


def finished_as_a_whole(stored: BindRequest) -> Finished:
    """Return the entry of a request with an outcome of its own and none for its Statements."""
    meta = stored.metadata
    completed_s = seconds(stored.status.completion_time) or 0.0
    return Finished(completed_s, meta.namespace, meta.name, meta.uid, ())


class RetentionQueue:
    """The finished requests in the order of their completion, and the task that deletes them."""

    def __init__(
        self,
        remove: Callable[[str, str, str], Awaitable[None]],
        time_to_live_s: float,
        clock: Callable[[], float],
    ) -> None:
        """Make an empty queue.

        Args:
            remove: deletes the request of this namespace, name and UID.
            time_to_live_s: seconds for which a request is kept after its completion.
            clock: returns seconds since the epoch.
        """
        self._remove, self._time_to_live_s, self._clock = remove, time_to_live_s, clock
        self._queue: list[tuple[float, Finished]] = []  # due time and entry, soonest first
        self._due: dict[str, float] = {}  # UID in the queue -> latest due time of its Statements
        self._added = asyncio.Event()

    def add(self, request: Finished) -> None:
        """Add a finished request; called once for each of its Statements."""
        due_s = request.completed_s + self._time_to_live_s
        if request.uid not in self._due:
            self._push(request, due_s)
        self._due[request.uid] = max(due_s, self._due.get(request.uid, 0.0))

    async def run(self, must_stay: Callable[[Finished], bool]) -> None:
        """Delete due requests, without end; postpone requests that `must_stay`."""
        while True:
            await self._wait_until_due()
            at_s, request = heapq.heappop(self._queue)
            if self._due[request.uid] > at_s:
                self._push(request, self._due[request.uid])
                continue
            if must_stay(request) or not await self._try_to_remove(request):
                self._due[request.uid] = self._clock() + _POSTPONE_S
                self._push(request, self._due[request.uid])
            else:
                del self._due[request.uid]
            await asyncio.sleep(1 / _REMOVALS_PER_S)

    def _push(self, request: Finished, due_s: float) -> None:
        heapq.heappush(self._queue, (due_s, request))
        self._added.set()

    async def _wait_until_due(self) -> None:
        while True:
            self._added.clear()
            wait_s = self._queue[0][0] - self._clock() if self._queue else None
            if wait_s is not None and wait_s <= 0:
                return
            # Not wait_for(): in Python 3.11 it loses a cancellation that comes with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._added.wait()

    async def _try_to_remove(self, request: Finished) -> bool:
        try:
            await self._remove(request.namespace, request.name, request.uid)
        except (NotFoundError, ConflictError):
            return True  # deleted already, or another request has its name
        except KubeError as error:
            log_failure(_log, "a finished request could not be removed", error)
            return False
        return True
