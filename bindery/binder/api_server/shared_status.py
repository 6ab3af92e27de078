"""Writes the statuses of Statements; Statements that share a request share one write.

Used by `api_adapter` for all Runs. A failure is written immediately. A success waits until all
Statements of the request have ended, at most `GATHER_S`, and not at all if a Statement in progress
depends on it. The Run that writes first also writes for Runs that come meanwhile, so no separate
task is needed. Invariant: a status that was written stays, whatever the later writes for other
Statements.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from bindery.api.states import Phase
from bindery.binder.outcome.ports import RequestChangedError, RequestGoneError
from bindery.binder.outcome.status import shared_status
from bindery.kube.errors import ConflictError, KubeError, NotFoundError
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement, StatementKey
from bindery.kube.objects.watched import KubeObject

GATHER_S: Final = 1.0
"""Maximum seconds that the success of a Statement waits for other Statements of the request."""
_OPTIONAL_TRIES: Final = 2
"""Two tries: enough to repeat a write after another client has changed the request's labels."""


class StoredRequests(Protocol):
    """Reads and writes whole requests."""

    async def read(self, namespace: str, name: str) -> BindRequest:
        """Read a request."""

    async def patch_status(self, stored: BindRequest, status: Mapping[str, object]) -> BindRequest:
        """Write the status of the request if it is still at the version of `stored`."""

    async def back_off(self, stored: KubeObject, error: KubeError, failures: int) -> None:
        """Pause before the next attempt; `failures`: the number of failed attempts so far."""


@dataclass(eq=False)
class _Pending:
    """The status of one Statement, to be written."""

    statement: CommittedStatement
    status: Mapping[str, object]
    is_optional: bool = False
    """Whether to give up the write if another status of the Statement was written first."""
    written: CommittedStatement | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.written is not None or self.error is not None

    @property
    def may_wait(self) -> bool:
        return self.status.get("phase") == Phase.SUCCEEDED

    def compare(self, found: CommittedStatement | None) -> None:
        """Give up the write if `found`, the newest state of the Statement, no longer allows it."""
        if found is None:
            self.error = RequestGoneError()
        elif self.statement.is_changed_in(found) or (
            self.is_optional and found.status != self.statement.status
        ):
            self.error = RequestChangedError()


@dataclass(eq=False)
class _Shared:
    """A request with statuses to be written."""

    newest: BindRequest
    statements: Mapping[StatementKey, CommittedStatement]
    """The Statements of `newest`."""
    pending: dict[str, _Pending] = field(default_factory=dict)
    """Statement id -> status to be written."""
    since_s: float = 0.0
    """Time when the first of `pending` was added."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the Run that writes for all."""

    @property
    def is_over(self) -> bool:
        """Whether all Statements have ended."""
        return all(each.is_final for each in self.statements.values())

    def take(self, stored: BindRequest, statements: Iterable[CommittedStatement]) -> None:
        """Store the newest state."""
        self.newest, self.statements = stored, {each.key: each for each in statements}

    def open(self) -> list[_Pending]:
        """Return the statuses that are still to be written and still allowed."""
        chosen = []
        for pending in self.pending.values():
            if not pending.is_done:
                pending.compare(self.statements.get(pending.statement.key))
            if not pending.is_done:
                chosen.append(pending)
        return chosen

    def fail(self, error: Exception) -> None:
        """Give up all writes."""
        for pending in self.pending.values():
            if not pending.is_done:
                pending.error = error


class SharedStatuses:
    """The requests with Statements that have no outcome, by UID."""

    def __init__(
        self,
        requests: StoredRequests,
        is_waited_for: Callable[[str, str], bool],
    ) -> None:
        """Make an empty memory.

        Args:
            requests: the API server.
            is_waited_for: whether a Statement in progress depends on the one of this namespace and
                id.
        """
        self._requests, self._is_waited_for = requests, is_waited_for
        self._shared: dict[str, _Shared] = {}
        self._waiting: dict[tuple[str, str], _Shared] = {}
        """Namespace and id of a Statement with a status to be written -> its request."""

    def __len__(self) -> int:
        """Return the number of remembered requests."""
        return len(self._shared)

    async def write(
        self, statement: CommittedStatement, status: Mapping[str, object]
    ) -> CommittedStatement:
        """Write `status`, with retries until it has succeeded; return the newer state.

        Raises:
            RequestGoneError, RequestChangedError: the status can no longer be written.
        """
        pending = _Pending(statement, status)
        shared = await self._join_surely(pending)
        try:
            async with shared.lock:
                if not pending.is_done:
                    await self._wait_for_others(shared)
                failures = 0
                while not pending.is_done:
                    failures = await self._try_all(shared, failures)
        finally:
            self._leave(shared, pending)
        if pending.error is not None:
            raise pending.error
        assert pending.written is not None
        return pending.written

    async def try_to_write(
        self, statement: CommittedStatement, status: Mapping[str, object]
    ) -> CommittedStatement | None:
        """Write the given fields of a status immediately; return None if that fails.

        Nothing is written if another status of the Statement was written or is about to be written.

        Raises:
            KubeError, RequestGoneError: the request cannot be read.
        """
        pending = _Pending(statement, status, is_optional=True)
        shared = await self._join(pending)
        if shared is None:
            return None
        try:
            async with shared.lock:
                for failures in range(_OPTIONAL_TRIES):
                    if (
                        shared.pending.get(statement.key.statement) is not pending
                        or pending.is_done
                    ):
                        break
                    await self._try_all(shared, failures)
        finally:
            self._leave(shared, pending)
        return pending.written

    def note(self, stored: BindRequest, statements: Sequence[CommittedStatement]) -> None:
        """Store the state of a request from the watch.

        Args:
            stored: the request.
            statements: its Statements, as `BindRequest.each` returns them.
        """
        uid = stored.metadata.uid
        shared = self._shared.get(uid)
        if shared is None:
            if not all(each.is_final for each in statements):
                self._remember(stored, statements)
            return
        # The watch may deliver an older status than the one written here, but never an older spec.
        if stored.metadata.generation > shared.newest.metadata.generation:
            shared.take(stored, statements)
        if not shared.pending and all(each.is_final for each in statements):
            self.drop(uid)

    def drop(self, uid: str) -> None:
        """Forget a deleted request."""
        self._shared.pop(uid, None)

    def hurry(self, namespace: str, statement_id: str) -> None:
        """Write the success of this Statement at once, because another Statement depends on it."""
        shared = self._waiting.get((namespace, statement_id))
        if shared is not None:
            shared.news.set()

    # ---- joining and leaving --------------------------------------------------------------------

    async def _join_surely(self, pending: _Pending) -> _Shared:
        failures = 0
        while True:
            try:
                shared = await self._join(pending)
            except KubeError as error:
                await self._requests.back_off(pending.statement, error, failures)
                failures += 1
            else:
                assert shared is not None  # only an optional write may be refused here
                return shared

    async def _join(self, pending: _Pending) -> _Shared | None:
        """Add `pending` to the statuses to be written; return None if another one has priority."""
        shared = await self._of(pending.statement)
        key = pending.statement.key
        former = shared.pending.get(key.statement)
        if pending.is_optional and former is not None:
            return None  # the Statement has an outcome by now, with more details
        if former is not None and not former.is_done:
            former.error = RequestChangedError()  # the newer status replaces it
        if not shared.pending:
            shared.since_s = asyncio.get_running_loop().time()
        shared.pending[key.statement] = pending
        self._waiting[key.namespace, key.statement] = shared
        shared.news.set()
        return shared

    async def _of(self, statement: CommittedStatement) -> _Shared:
        meta = statement.metadata
        if meta.uid not in self._shared:
            try:
                found = await self._requests.read(meta.namespace, meta.name)
            except NotFoundError as error:
                raise RequestGoneError from error
            if found.metadata.uid != meta.uid:
                raise RequestGoneError
            if meta.uid not in self._shared:  # another Run may have been faster
                self._remember(found, found.each())
        return self._shared[meta.uid]

    def _remember(self, stored: BindRequest, statements: Iterable[CommittedStatement]) -> None:
        self._shared[stored.metadata.uid] = _Shared(stored, {each.key: each for each in statements})

    def _leave(self, shared: _Shared, pending: _Pending) -> None:
        key = pending.statement.key
        if shared.pending.get(key.statement) is pending:
            del shared.pending[key.statement]
            self._waiting.pop((key.namespace, key.statement), None)
        uid = shared.newest.metadata.uid
        if not shared.pending and shared.is_over and self._shared.get(uid) is shared:
            self.drop(uid)

    # ---- waiting --------------------------------------------------------------------------------

    async def _wait_for_others(self, shared: _Shared) -> None:
        while not self._is_due(shared):
            shared.news.clear()
            try:
                async with asyncio.timeout(
                    shared.since_s + GATHER_S - asyncio.get_running_loop().time()
                ):
                    await shared.news.wait()
            except TimeoutError:
                return

    def _is_due(self, shared: _Shared) -> bool:
        namespace = shared.newest.metadata.namespace
        if asyncio.get_running_loop().time() >= shared.since_s + GATHER_S:
            return True
        for statement_id, pending in shared.pending.items():
            if not pending.may_wait or self._is_waited_for(namespace, statement_id):
                return True
        return all(
            each.is_final or key.statement in shared.pending
            for key, each in shared.statements.items()
        )

    # ---- writing --------------------------------------------------------------------------------

    async def _try_all(self, shared: _Shared, failures: int) -> int:
        """Try once to write all pending statuses; return the number of failures in a row."""
        try:
            await self._write_all(shared)
        except NotFoundError:
            self._give_up(shared)
        except ConflictError as error:
            # Another client changed the object, or an earlier try took effect.
            await self._requests.back_off(shared.newest, error, failures)
            await self._read_again(shared)
        except KubeError as error:
            await self._requests.back_off(shared.newest, error, failures)
        else:
            return 0
        return failures + 1

    async def _write_all(self, shared: _Shared) -> None:
        chosen = shared.open()
        if not chosen:
            return
        changes = {each.statement.key.statement: each.status for each in chosen}
        written = await self._requests.patch_status(
            shared.newest, shared_status(shared.newest, changes)
        )
        statements = {each.key: each for each in written.each()}
        for pending in chosen:
            pending.written = statements[pending.statement.key]
        # The watch may have delivered a newer spec meanwhile.
        if written.metadata.generation >= shared.newest.metadata.generation:
            shared.take(written, statements.values())

    async def _read_again(self, shared: _Shared) -> None:
        meta = shared.newest.metadata
        try:
            found = await self._requests.read(meta.namespace, meta.name)
        except NotFoundError:
            self._give_up(shared)
            return
        except KubeError:
            return  # the next write will conflict and be repeated
        if found.metadata.uid != meta.uid or found.metadata.deletion_timestamp:
            self._give_up(shared)
        else:
            shared.take(found, found.each())

    def _give_up(self, shared: _Shared) -> None:
        """Give up all statuses of a deleted request."""
        shared.fail(RequestGoneError())
        self.drop(shared.newest.metadata.uid)
