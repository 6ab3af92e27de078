"""Limits concurrent work: a fixed number of places, by priority and fairly among namespaces.

Every binding takes a place (`api_server.api_adapter`), and so does every call of a plugin for a pod
(`term`). The highest priority goes first. Among equal priorities, the namespace with the fewest
places goes first, so that a namespace with thousands of pods does not block a small one. Within a
namespace, the order is first come, first served. A place is never given twice.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_Line = deque[asyncio.Future[None]]


class FairLimiter:
    """Gives out up to `places` at the same time. For one event loop."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._held: Counter[str] = Counter()  # namespace -> places
        self._lines: dict[int, dict[str, _Line]] = {}  # priority -> namespace -> waiters

    @asynccontextmanager
    async def taken(self, namespace: str, priority: int) -> AsyncIterator[None]:
        """Wait for a place, and hold it while the body runs; the wait may be cancelled."""
        await self._take(namespace, priority)
        try:
            yield
        finally:
            self._give_back(namespace)

    async def _take(self, namespace: str, priority: int) -> None:
        if self._free:
            self._grant(namespace)
            return
        turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault(priority, {}).setdefault(namespace, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(namespace)  # the place was granted at the same moment
            raise

    def _grant(self, namespace: str) -> None:
        self._free -= 1
        self._held[namespace] += 1

    def _give_back(self, namespace: str) -> None:
        self._free += 1
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
        self._call_next()

    def _call_next(self) -> None:
        while self._lines:
            priority = max(self._lines)
            lines = self._lines[priority]
            # Earlier lines come first: min() keeps the order of equals.
            namespace = min(lines, key=lambda name: self._held[name])
            turn = lines[namespace].popleft()
            if not lines[namespace]:
                del lines[namespace]
            if not lines:
                del self._lines[priority]
            if not turn.done():
                self._grant(namespace)
                turn.set_result(None)
                return
