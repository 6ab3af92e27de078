"""Reads BindRequests into their Statements: between `operator` and `manager`.

The operator shows whole requests; the manager knows Statements alone. A request that carries no
Statement, or one id twice, is malformed as a whole.
"""

from collections.abc import Sequence
from typing import Protocol

from bindery.binder.outcome.retention import finished_as_a_whole
from bindery.binder.statements.manager import Malformed, Manager
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement


class StoredMemory(Protocol):
    """Keeps the newest state of requests whose Statements share their status."""

    def note(self, stored: BindRequest, statements: Sequence[CommittedStatement]) -> None:
        """Take in a request, and its Statements, as the watch shows them."""

    def drop(self, uid: str) -> None:
        """Forget a request that is gone."""

    def hurry(self, namespace: str, statement_id: str) -> None:
        """Note that a Statement builds on this one, whose success must be written at once."""


class Intake:
    """Turns changes of requests into changes of their Statements."""

    def __init__(self, manager: Manager, memory: StoredMemory) -> None:
        """Make an intake that knows no requests.

        Args:
            manager: is told about each Statement.
            memory: is told about each request.
        """
        self._manager, self._memory = manager, memory
        self._statements: dict[str, tuple[CommittedStatement, ...]] = {}
        """UID of a request of which a Statement has no outcome -> its Statements."""
        self._malformed: set[str] = set()
        """UIDs of requests that were reported as malformed."""

    def observe(self, stored: BindRequest, *, adopted: bool) -> None:
        """Take in a request that is new or has changed.

        Args:
            stored: its newest state.
            adopted: whether it was there before we looked, so that another may have worked on it.
        """
        if stored.is_fence:
            self._manager.announced(stored)
            return
        statements = stored.each()
        problem = _problem(statements)
        if problem:
            meta = stored.metadata
            malformed = Malformed(meta.namespace, meta.name, meta.uid, problem)
            self.malformed(malformed, is_final=stored.is_final)
            if stored.is_final:
                self._manager.retain(finished_as_a_whole(stored))
            return
        uid, left = stored.metadata.uid, {each.key for each in statements}
        for former in self._statements.pop(uid, ()):
            if former.key not in left:
                self._manager.gone(former)
        if not all(each.is_final for each in statements):
            self._statements[uid] = statements
        self._memory.note(stored, statements)
        for each in statements:
            self._manager.observe(each, adopted=adopted)
            after = each.spec.after
            if after is not None:
                self._memory.hurry(each.metadata.namespace, after)

    def gone(self, stored: BindRequest) -> None:
        """Take in that a request does not exist any more."""
        for each in self._statements.get(stored.metadata.uid) or stored.each():
            self._manager.gone(each)
        self.forget(stored.metadata.uid)

    def malformed(self, request: Malformed, *, is_final: bool) -> None:
        """Take in a request that cannot be understood."""
        is_reported = request.uid in self._malformed
        self.forget(request.uid)
        self._malformed.add(request.uid)
        if not is_reported and not is_final:
            self._manager.refuse(request)

    def forget(self, uid: str) -> None:
        """Forget a request that is gone or cannot be understood, and its Statements."""
        self._malformed.discard(uid)
        self._memory.drop(uid)
        for each in self._statements.pop(uid, ()):
            self._manager.gone(each)


def _problem(statements: tuple[CommittedStatement, ...]) -> str:
    """Return why `statements`, all of a request, make no sense together; "" if they do."""
    if not statements:
        return "it carries no Statement: spec.statements is empty"
    seen: set[str] = set()
    for each in statements:
        if each.key.statement in seen:
            return f"it carries the Statement {each.key.statement} twice"
        seen.add(each.key.statement)
        if len(statements) > 1 and each.spec.parts > 1:
            return f"the Statement {each.key.statement} is one of several and comes in parts"
    return ""
