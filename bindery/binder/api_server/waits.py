"""Writes a wait reason to Statements that have no outcome after two seconds.

Run by `term` beside the transactions. Each Statement gets at most one such write; the outcome or a
failed attempt replaces the reason. Most Statements never get one. The rate is limited, because in a
burst many Statements only wait for their turn, and these writes must not slow them down.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from bindery.binder.outcome.status import waiting_status
from bindery.binder.statements.manager import Manager, UnwrittenWait
from bindery.kube.objects.bindrequests import CommittedStatement

PATIENCE_S: Final = 2.0
"""Seconds that a Statement waits before its status gets the reason."""
_LOOK_EVERY_S: Final = 0.5
_AT_ONCE: Final = 5
"""Maximum number of writes in one round."""


class WaitSink(Protocol):
    """Writes the wait reason of a Statement."""

    async def try_to_write(
        self, statement: CommittedStatement, status: dict[str, object]
    ) -> CommittedStatement | None:
        """Write `status` once; return the newer state, or None if it was not written."""


class Waits:
    """The task that looks for Statements that have waited too long."""

    def __init__(
        self, manager: Manager, sink: WaitSink, pause: Callable[[float], Awaitable[bool]]
    ) -> None:
        self._manager, self._sink, self._pause = manager, sink, pause

    async def run(self) -> None:
        """Write reasons at intervals until the process is to stop."""
        while await self._pause(_LOOK_EVERY_S):
            unwritten = self._manager.unwritten_waits(PATIENCE_S)
            # Statements that only wait for their turn come last: there may be hundreds.
            unwritten.sort(key=lambda each: (each.wait.is_for_a_turn, each.since_s))
            await asyncio.gather(*(self._write(each) for each in unwritten[:_AT_ONCE]))

    async def _write(self, unwritten: UnwrittenWait) -> None:
        status = waiting_status(unwritten.wait)
        written = await self._sink.try_to_write(unwritten.statement, status)
        self._manager.wait_written(unwritten.statement, written)
