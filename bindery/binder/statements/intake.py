"""Splits BindRequests into their Statements, between `operator` and `manager`.

The operator passes whole requests; the manager knows only Statements. A request without Statements,
or with an id twice, is malformed as a whole.
"""

from collections.abc import Sequence
from typing import Protocol

from bindery.api.names import ROLL_BACK_FINALIZER
from bindery.binder.outcome.retention import finished_as_a_whole
from bindery.binder.statements.manager import Malformed, Manager
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement
from bindery.kube.objects.watched import Meta


class StoredMemory(Protocol):
    """Keeps the newest state of requests whose Statements share their status."""

    def note(self, stored: BindRequest, statements: Sequence[CommittedStatement]) -> None:
        """Store the newest state of a request and its Statements from the watch."""

    def drop(self, uid: str) -> None:
        """Forget a deleted request."""

    def hurry(self, namespace: str, statement_id: str) -> None:
        """Write the success of this Statement at once, because another Statement depends on it."""


class Intake:
    """Converts changes of requests to changes of their Statements."""

    def __init__(self, manager: Manager, memory: StoredMemory) -> None:
        """Make an intake that knows no requests.

        Args:
            manager: receives each Statement.
            memory: receives each request.
        """
        self._manager, self._memory = manager, memory
        self._statements: dict[str, tuple[CommittedStatement, ...]] = {}
        """UID of a request with a Statement without an outcome -> its Statements."""
        self._malformed: set[str] = set()
        """UIDs of requests that were reported as malformed."""
        self._leaving: set[str] = set()
        """UIDs of requests that are being deleted and stay until they are rolled back."""

    def observe(self, stored: BindRequest, *, adopted: bool) -> None:
        """Process a new or changed request.

        Args:
            stored: its newest state.
            adopted: whether it was in the first list, so that another process may have worked on
                it.
        """
        if stored.is_fence:
            self._manager.announced(stored)
            return
        statements = stored.each()
        if stored.metadata.deletion_timestamp is not None:
            self.leaving(stored.metadata, statements)
            return
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
        """Process the deletion of a request."""
        for each in self._statements.get(stored.metadata.uid) or stored.each():
            self._manager.gone(each)
        self.forget(stored.metadata.uid)

    def leaving(self, request: Meta, statements: Sequence[CommittedStatement]) -> None:
        """Process a request that is being deleted; `statements`: empty if it cannot be decoded."""
        is_known = request.uid in self._leaving
        for each in statements:
            self._manager.gone(each)
        self.forget(request.uid)
        if ROLL_BACK_FINALIZER in request.finalizers:
            self._leaving.add(request.uid)
            if not is_known:
                self._manager.leave(request, statements)

    def malformed(self, request: Malformed, *, is_final: bool) -> None:
        """Process a malformed request."""
        is_reported = request.uid in self._malformed
        self.forget(request.uid)
        self._malformed.add(request.uid)
        if not is_reported and not is_final:
            self._manager.refuse(request)

    def forget(self, uid: str) -> None:
        """Forget a deleted or malformed request, and its Statements."""
        self._malformed.discard(uid)
        self._leaving.discard(uid)
        self._memory.drop(uid)
        for each in self._statements.pop(uid, ()):
            self._manager.gone(each)


def _problem(statements: tuple[CommittedStatement, ...]) -> str:
    """Return why `statements` of one request contradict each other; "" if they do not."""
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
