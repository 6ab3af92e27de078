"""Prerequisite Statements: waiting for their outcomes.

`manager` makes a `Predecessor` for each Run. A prerequisite may be unknown because its event comes
later, or because it was deleted: kopf keeps the order of events of one request, not of two. Then
the prerequisite is read from the API server. Invariant: no Statement proceeds before its
prerequisite is known to have succeeded.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from bindery.api.bindrequest import BindFailureReason, Phase
from bindery.binder.outcome.outcome import PodFailure
from bindery.binder.outcome.ports import RequestStore
from bindery.binder.statements.entries import StatementEntry
from bindery.kube.errors import KubeError
from bindery.kube.http.outages import log_failure

_log: Final = structlog.get_logger(__name__)

_LOOK_AGAIN_S: Final = 1.0
"""Seconds between two checks of a waiting Run: whether the process is to stop, and whether an
unknown prerequisite exists in the API server."""


class Predecessor:
    """The prerequisite Statement of one Run, if it has one."""

    def __init__(
        self,
        entry: StatementEntry | None,
        store: RequestStore,
        pause: Callable[[float], Awaitable[bool]],
    ) -> None:
        """Record a follower in `entry`; call `leave` when the Run has ended.

        Args:
            entry: the prerequisite Statement; None without one.
            store: reads a Statement that is not known.
            pause: returns False when the process is to stop.
        """
        self.entry, self._store, self._pause = entry, store, pause
        self.refusal: PodFailure | None = None
        """The reason why the Run must not bind, set after waiting."""
        if entry is not None:
            entry.followers += 1

    @property
    def waits_for(self) -> str:
        """Description of what `wait` waits for; "" without a prerequisite."""
        if self.entry is None:
            return ""
        return f"prerequisite Statement {self.entry.id} has no outcome yet"

    def leave(self) -> None:
        """Record that the Run has ended."""
        if self.entry is not None:
            self.entry.followers -= 1

    async def wait(self) -> None:
        """Wait until the Run may proceed, or its refusal is known, or the process is to stop."""
        if self.entry is not None:
            self.refusal = await self._refusal_by(self.entry)

    async def _refusal_by(self, entry: StatementEntry) -> PodFailure | None:
        """Wait for the end of the Statement; return a failure if it did not succeed."""
        while True:
            news = entry.news()
            phases = entry.phases() or await self._ask(entry)
            if Phase.FAILED in phases:
                message = f"prerequisite Statement {entry.id} failed"
                return PodFailure(BindFailureReason.PREDECESSOR_FAILED, message, permanent=True)
            # All parts have the same outcome.
            if Phase.SUCCEEDED in phases:
                return None
            if not phases:
                message = f"prerequisite Statement {entry.id} is gone"
                return PodFailure(BindFailureReason.PREDECESSOR_GONE, message, permanent=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await news.wait()
            if not await self._pause(0):
                return None

    async def _ask(self, entry: StatementEntry) -> set[str]:
        """Return the phases of the Statement's parts from the API server."""
        try:
            found = await self._store.find_statement(entry.namespace, entry.id)
        except KubeError as error:
            log_failure(_log, "a Statement could not be looked up", error, id=entry.id)
            return {Phase.PENDING}  # unknown: it is read again later
        return {part.status.phase for part in found}
