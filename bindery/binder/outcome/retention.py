"""Removal of finished requests after their time to live.

`statements.manager` adds every request that is seen with a final status, also at a start, so that
nothing is forgotten over a restart; the time counts from the status's completionTime. Removal keeps
to a rate, so that a burst of finished requests does not become a burst of deletions that delays
bindings.
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
"""Below what an API server takes beside other work, and above the rate at which requests can be
finished for long, or they would pile up."""
_POSTPONE_S: Final = 10.0
"""When to look again at a request that must stay for now, or could not be removed."""


@dataclass(frozen=True, order=True)
class Finished:
    """A request of which a Statement has ended."""

    completed_s: float
    namespace: str = field(compare=False)
    name: str = field(compare=False)
    uid: str = field(compare=False)
    statement_ids: tuple[str, ...] = field(compare=False)
    """Of all Statements that it carries."""


def finished(statement: CommittedStatement) -> Finished:
    """Return what is kept of a finished request; without a completion time it is due at once."""
    meta = statement.metadata
    completed_s = seconds(statement.status.completion_time) or 0.0
    return Finished(completed_s, meta.namespace, meta.name, meta.uid, statement.siblings)


def finished_as_a_whole(stored: BindRequest) -> Finished:
    """Return what is kept of a request that has an outcome, but no Statements with theirs."""
    meta = stored.metadata
    completed_s = seconds(stored.status.completion_time) or 0.0
    return Finished(completed_s, meta.namespace, meta.name, meta.uid, ())


class RetentionQueue:
    """The finished requests in the order of their completion, and the task that removes them."""

    def __init__(
        self,
        remove: Callable[[str, str, str], Awaitable[None]],
        time_to_live_s: float,
        clock: Callable[[], float],
    ) -> None:
        """Make an empty queue.

        Args:
            remove: deletes the request of this namespace, name and UID.
            time_to_live_s: how long after its completion a request is kept.
            clock: seconds since the epoch.
        """
        self._remove, self._time_to_live_s, self._clock = remove, time_to_live_s, clock
        self._queue: list[tuple[float, Finished]] = []  # when it is due, soonest first
        self._due: dict[str, float] = {}  # UID in the queue -> when its last Statement makes it due
        self._added = asyncio.Event()

    def add(self, request: Finished) -> None:
        """Take in a finished request, once for each of its Statements."""
        due_s = request.completed_s + self._time_to_live_s
        if request.uid not in self._due:
            self._push(request, due_s)
        self._due[request.uid] = max(due_s, self._due.get(request.uid, 0.0))

    async def run(self, must_stay: Callable[[Finished], bool]) -> None:
        """Remove what is due, for ever; what `must_stay` is asked about again later."""
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
            # Not wait_for(), which in Python 3.11 loses a cancellation that comes with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._added.wait()

    async def _try_to_remove(self, request: Finished) -> bool:
        try:
            await self._remove(request.namespace, request.name, request.uid)
        except (NotFoundError, ConflictError):
            return True  # it is gone, or another one has its name now
        except KubeError as error:
            log_failure(_log, "a finished request could not be removed", error)
            return False
        return True
