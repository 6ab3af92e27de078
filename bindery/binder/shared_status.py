"""Writes the statuses of Statements that share a request: several by one write.

Used by `api_adapter` for all Runs. A failure is written when it happens. A success waits until all
Statements of the request have ended, for `GATHER_S` at most, and not at all when a Statement in
progress builds on it. The Run that writes first also writes for those that come meanwhile; no task
of its own is needed. Invariant: a status that was written stays, whatever becomes of the others.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from bindery.api.states import Phase
from bindery.binder.ports import RequestChangedError, RequestGoneError
from bindery.binder.status import shared_status
from bindery.kube.bindrequests import BindRequest, StoredBindRequest
from bindery.kube.errors import ConflictError, KubeError, NotFoundError

GATHER_S: Final = 1.0
"""How long the success of a Statement waits for the ends of its neighbours."""


class StoredRequests(Protocol):
    """Reads and writes whole requests."""

    async def read(self, namespace: str, name: str) -> StoredBindRequest:
        """Read a request."""

    async def patch_status(
        self, stored: StoredBindRequest, status: Mapping[str, object]
    ) -> StoredBindRequest:
        """Write the status of the request if it is still at the version of `stored`."""

    async def back_off(self, stored: StoredBindRequest, error: KubeError, failures: int) -> None:
        """Wait before the next of several attempts, of which so many have failed."""


@dataclass(eq=False)
class _Pending:
    """The status of one Statement that is to be written."""

    request: BindRequest
    status: Mapping[str, object]
    written: BindRequest | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.written is not None or self.error is not None

    @property
    def may_wait(self) -> bool:
        return self.status.get("phase") == Phase.SUCCEEDED


@dataclass(eq=False)
class _Shared:
    """A request whose Statements are being written."""

    newest: StoredBindRequest
    pending: dict[str, _Pending] = field(default_factory=dict)
    """Statement id -> what is to be written."""
    since_s: float = 0.0
    """When the first of `pending` came."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the Run that waits and writes for all."""


class SharedStatuses:
    """The requests with several Statements, by UID."""

    def __init__(
        self,
        requests: StoredRequests,
        is_waited_for: Callable[[str, str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make an empty memory.

        Args:
            requests: the API server.
            is_waited_for: whether a Statement in progress builds on that of this namespace and id.
            clock: seconds; measures how long a success has waited.
        """
        self._requests, self._is_waited_for, self._clock = requests, is_waited_for, clock
        self._shared: dict[str, _Shared] = {}

    async def write(self, request: BindRequest, status: Mapping[str, object]) -> BindRequest:
        """Write `status`, again and again until it is known to stand; return the newer request.

        Raises:
            RequestGoneError, RequestChangedError: it cannot stand any more.
        """
        shared = await self._of(request)
        pending = _Pending(request, status)
        if not shared.pending:
            shared.since_s = self._clock()
        shared.pending[request.key.statement] = pending
        shared.news.set()
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
        self, request: BindRequest, status: Mapping[str, object]
    ) -> BindRequest | None:
        """Write the given fields of a status at once; return None if that fails."""
        shared = await self._of(request)
        pending = _Pending(request, status)
        async with shared.lock:
            if request.key.statement in shared.pending:
                return None  # it has an outcome by now, which says more
            shared.pending[request.key.statement] = pending
            try:
                await self._write_all(shared)
            except KubeError:
                return None
            finally:
                self._leave(shared, pending)
        return pending.written

    def note(self, stored: StoredBindRequest) -> None:
        """Take in a request with Statements as the watch shows it."""
        if stored.is_final or not stored.spec.statements:
            return
        shared = self._shared.setdefault(stored.metadata.uid, _Shared(stored))
        # What the watch shows may be older than what was written here, but not of a newer spec.
        if stored.metadata.generation > shared.newest.metadata.generation:
            shared.newest = stored

    def drop(self, uid: str) -> None:
        """Forget a request that is gone."""
        self._shared.pop(uid, None)

    async def _of(self, request: BindRequest) -> _Shared:
        meta = request.metadata
        if meta.uid not in self._shared:
            try:
                newest = await self._requests.read(meta.namespace, meta.name)
            except NotFoundError as error:
                raise RequestGoneError from error
            # Another Run may have been quicker.
            self._shared.setdefault(meta.uid, _Shared(newest))
        return self._shared[meta.uid]

    def _leave(self, shared: _Shared, pending: _Pending) -> None:
        statement = pending.request.key.statement
        if shared.pending.get(statement) is pending:
            del shared.pending[statement]
        if shared.newest.is_final and not shared.pending:
            self.drop(pending.request.metadata.uid)

    # ---- waiting --------------------------------------------------------------------------------

    async def _wait_for_others(self, shared: _Shared) -> None:
        while not self._is_due(shared):
            shared.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(shared.since_s + GATHER_S - self._clock()):
                    await shared.news.wait()

    def _is_due(self, shared: _Shared) -> bool:
        namespace = shared.newest.metadata.namespace
        if self._clock() >= shared.since_s + GATHER_S:
            return True
        for statement_id, pending in shared.pending.items():
            if not pending.may_wait or self._is_waited_for(namespace, statement_id):
                return True
        ended = {each.id for each in shared.newest.status.statements if each.is_final}
        return len(ended | shared.pending.keys()) == len(shared.newest.spec.statements)

    # ---- writing --------------------------------------------------------------------------------

    async def _try_all(self, shared: _Shared, failures: int) -> int:
        """Try once to write all that is pending; return how many tries have failed in a row."""
        try:
            await self._write_all(shared)
        except NotFoundError:
            _fail(shared.pending.values(), RequestGoneError())
        except ConflictError as error:
            # Somebody touched the object, or an earlier try took effect.
            await self._requests.back_off(shared.newest, error, failures)
            await self._read_again(shared)
        except KubeError as error:
            await self._requests.back_off(shared.newest, error, failures)
        else:
            return 0
        return failures + 1

    async def _write_all(self, shared: _Shared) -> None:
        chosen = {key: each for key, each in shared.pending.items() if not each.is_done}
        status = shared_status(shared.newest, {key: each.status for key, each in chosen.items()})
        shared.newest = await self._requests.patch_status(shared.newest, status)
        written = {each.key.statement: each for each in shared.newest.each()}
        for key, pending in chosen.items():
            pending.written = written.get(key)
            if pending.written is None:
                pending.error = RequestGoneError()

    async def _read_again(self, shared: _Shared) -> None:
        """Read the request, and give up what cannot be written any more."""
        meta = shared.newest.metadata
        try:
            found = await self._requests.read(meta.namespace, meta.name)
        except NotFoundError:
            _fail(shared.pending.values(), RequestGoneError())
            return
        except KubeError:
            return  # the write will conflict again, and this is tried again
        if found.metadata.uid != meta.uid or found.metadata.deletion_timestamp:
            _fail(shared.pending.values(), RequestGoneError())
            return
        shared.newest = found
        views = {each.key.statement: each for each in found.each()}
        for key, pending in shared.pending.items():
            if key not in views:
                _fail([pending], RequestGoneError())
            elif pending.request.is_changed_in(views[key]):
                _fail([pending], RequestChangedError())


def _fail(pending: Iterable[_Pending], error: Exception) -> None:
    for each in pending:
        if not each.is_done:
            each.error = error
