"""Prerequisite Statements: their outcomes, and waiting for them.

`statements.manager` records every Statement here, and gets a `Predecessor` for each Run. A
prerequisite may be unknown because its event comes later, or because it was deleted: kopf keeps the
order of events of one request, not of two. Then the prerequisite is read from the API server.
Invariant: no Statement proceeds before its prerequisite is known to have succeeded.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from bindery.api.bindrequest import BindFailureReason, Phase
from bindery.binder.outcome.outcome import PodFailure
from bindery.binder.outcome.ports import RequestStore
from bindery.kube.errors import KubeError
from bindery.kube.http.outages import log_failure
from bindery.kube.objects.bindrequests import CommittedStatement

_log: Final = structlog.get_logger(__name__)

_LOOK_AGAIN_S: Final = 1.0
"""Seconds between two checks of a waiting Run: whether the process is to stop, and whether an
unknown prerequisite exists in the API server."""

_Identity = tuple[str, str]
"""Namespace and id of a Statement."""


class _Part(NamedTuple):
    uid: str
    phase: str


class Predecessors:
    """The phases of all Statements, and their waiters."""

    def __init__(self, store: RequestStore, pause: Callable[[float], Awaitable[bool]]) -> None:
        """Make an empty memory.

        Args:
            store: reads Statements that are not known.
            pause: returns False when the process is to stop.
        """
        self._store, self._pause = store, pause
        self._parts: dict[_Identity, dict[str, _Part]] = {}  # Statement -> name -> part
        self._news: dict[_Identity, asyncio.Event] = {}  # set and dropped at the next change
        self._followers: Counter[_Identity] = Counter()

    def note(self, statement: CommittedStatement) -> None:
        """Record the newest state of a Statement or part."""
        identity = _identity(statement)
        part = _Part(statement.metadata.uid, statement.status.phase)
        self._parts.setdefault(identity, {})[statement.metadata.name] = part
        self._tell(identity)

    def drop(self, statement: CommittedStatement) -> None:
        """Forget a deleted Statement or part."""
        identity, name = _identity(statement), statement.metadata.name
        parts = self._parts.get(identity, {})
        if name in parts and parts[name].uid == statement.metadata.uid:
            del parts[name]
            if not parts:
                del self._parts[identity]
            self._tell(identity)

    def refresh(self, statement: CommittedStatement) -> None:
        """Record a newer state of a Statement or part, if it still exists."""
        known = self._parts.get(_identity(statement), {}).get(statement.metadata.name)
        if known is not None and known.uid == statement.metadata.uid:
            self.note(statement)

    def is_waited_for(self, namespace: str, statement_id: str) -> bool:
        """Whether a Statement in progress depends on the given one."""
        return (namespace, statement_id) in self._followers

    def of(self, statement: CommittedStatement) -> "Predecessor":
        """Return the prerequisite of `statement`; call `leave` on it at the end."""
        after = statement.spec.after if not statement.is_withdrawn else None
        identity = (statement.metadata.namespace, after) if after is not None else None
        if identity is not None:
            self._followers[identity] += 1
        return Predecessor(self, identity)

    def leave(self, identity: _Identity) -> None:
        """Record that a dependent of the Statement has ended."""
        self._followers[identity] -= 1
        if not self._followers[identity]:
            del self._followers[identity]

    async def await_success(self, identity: _Identity) -> PodFailure | None:
        """Wait for the end of the Statement; return a failure if it did not succeed.

        Also returns when the process is to stop; then the caller's next pause returns False.
        """
        while True:
            news = self._news.setdefault(identity, asyncio.Event())
            phases = {part.phase for part in self._parts.get(identity, {}).values()}
            if not phases:
                phases = await self._ask(identity)
            if Phase.FAILED in phases:
                message = f"prerequisite Statement {identity[1]} failed"
                return PodFailure(BindFailureReason.PREDECESSOR_FAILED, message, permanent=True)
            # All parts have the same outcome.
            if Phase.SUCCEEDED in phases:
                return None
            if not phases:
                message = f"prerequisite Statement {identity[1]} is gone"
                return PodFailure(BindFailureReason.PREDECESSOR_GONE, message, permanent=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await news.wait()
            if not await self._pause(0):
                return None

    async def _ask(self, identity: _Identity) -> set[str]:
        """Return the phases of the Statement's parts from the API server."""
        try:
            found: Iterable[CommittedStatement] = await self._store.find_statement(*identity)
        except KubeError as error:
            log_failure(_log, "a Statement could not be looked up", error, id=identity[1])
            return {Phase.PENDING}  # unknown: it is read again later
        return {part.status.phase for part in found}

    def _tell(self, identity: _Identity) -> None:
        news = self._news.pop(identity, None)
        if news is not None:
            news.set()


class Predecessor:
    """The prerequisite Statement of one Run, if it has one."""

    def __init__(self, memory: Predecessors, identity: _Identity | None) -> None:
        self._memory, self._identity = memory, identity
        self.refusal: PodFailure | None = None
        """The reason why the Run must not bind, set after waiting."""

    @property
    def waits_for(self) -> str:
        """Description of what `wait` waits for; "" without a prerequisite."""
        if self._identity is None:
            return ""
        return f"prerequisite Statement {self._identity[1]} has no outcome yet"

    async def wait(self) -> None:
        """Wait until the Run may proceed, or its refusal is known."""
        if self._identity is not None:
            self.refusal = await self._memory.await_success(self._identity)

    def leave(self) -> None:
        """Record that the Run has ended."""
        if self._identity is not None:
            self._memory.leave(self._identity)


def _identity(statement: CommittedStatement) -> _Identity:
    return statement.metadata.namespace, statement.spec.id
