"""Writes BindRequests to the API server, and deletes stale ones.

The parts of a Statement are written together: if one is refused, the others are deleted again, so
that a gang is committed whole or not at all. Several Statements are written concurrently, but a
Statement only after its prerequisite. So if the binder does not find a prerequisite, it is gone,
not late.

Nothing is created after the Lease is lost: the next leader lists the requests when its term begins,
and would give the room of a later one away a second time.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import (
    AlreadyExistsError,
    ApiError,
    KubeError,
    NamespaceTerminatingError,
    NotFoundError,
    OutcomeUnknownError,
    UnreachableError,
)
from bindery.kube.lease import Leadership
from bindery.kube.resources import BIND_REQUESTS
from bindery.scheduler.cache.holds import RequestKey
from bindery.scheduler.commit.drafts import BindRequestDraft
from bindery.scheduler.commit.metrics import REQUESTS
from bindery.scheduler.commit.stale import StaleRequest

CONCURRENT_STATEMENTS = 16
UNCONFIRMED_AFTER_S = 30.0
"""Time after which a request that the watch does not show is looked up, in seconds."""
_REPEAT_AFTER_S = (0.2, 1.0, 4.0)
"""Pauses before a create call with an unknown outcome is repeated, in seconds."""

_NO_LEADER = "this scheduler no longer leads"

_Statement = tuple[str, str | None]
"""Namespace and id of a Statement."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Refused:
    """A draft that will not be created. `problem`: the reason; "" if another scheduler won."""

    draft: BindRequestDraft
    problem: str

    @property
    def statement(self) -> tuple[str, str]:
        """Namespace and id of its Statement."""
        return self.draft.namespace, self.draft.spec.statement.id


class RequestWriter:
    """Creates and deletes BindRequests in the background.

    After a failure it calls `wake`, and the loop takes the results from `refused` and `missing`.
    """

    def __init__(self, client: Client, wake: Callable[[], None]) -> None:
        self._client = client
        self._wake = wake
        self._leadership = Leadership.without_election()
        self.ending: set[str] = set()
        """Namespaces that are being deleted, in which nothing can be created."""
        self.refused: list[Refused] = []
        self.missing: list[RequestKey] = []
        """Requests that should exist but do not."""
        self._slots = asyncio.Semaphore(CONCURRENT_STATEMENTS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._parts: dict[_Statement, list[BindRequestDraft]] = {}
        self._writing: set[RequestKey] = set()
        self._sent: set[RequestKey] = set()
        """Those of `_writing` that may exist."""
        self._statements: dict[_Statement, asyncio.Event] = {}
        """Statements that are being written -> event that is set at the end."""
        self._removing: set[str] = set()
        """UIDs of stale requests whose deletion is in progress or done."""

    def begin(self, leadership: Leadership) -> None:
        """Create requests as long as `leadership` is valid."""
        self._leadership = leadership

    def submit(self, draft: BindRequestDraft) -> None:
        """Write `draft` when all parts of its Statement have been submitted."""
        statement = (draft.namespace, draft.spec.statement.id)
        parts = self._parts.setdefault(statement, [])
        parts.append(draft)
        if len(parts) == draft.spec.statement.parts:
            del self._parts[statement]
            self._writing.update(part.key for part in parts)
            self._statements[statement] = asyncio.Event()
            self._spawn(self._write(statement, parts))

    def abandon(self) -> None:
        """Refuse the Statements with missing parts, after a cycle that ended early."""
        for parts in self._parts.values():
            self._refuse(parts, "the cycle ended early")
        self._parts.clear()

    def remove(self, stale: StaleRequest) -> None:
        """Delete a stale request in the background."""
        # The watch may show the request for a while after its deletion.
        if stale.request.metadata.uid not in self._removing:
            self._removing.add(stale.request.metadata.uid)
            self._spawn(self._remove(stale))

    def look_up(self, key: RequestKey) -> None:
        """Check that a request exists, unless it is being written."""
        if key not in self._writing:
            self._spawn(self._look_up(key))

    async def drain(self) -> None:
        """Wait until all submitted requests have been written or refused."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self, grace_s: float) -> None:
        """Wait at most `grace_s` for what is being written, and only while we lead; drop the rest.

        A request whose creation was sent may exist. Its pods stay held until it is looked up.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(min(grace_s, self._leadership.valid_for_s())):
                await self.drain()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- creating ------------------------------------------------------------------------------

    async def _write(self, statement: _Statement, parts: list[BindRequestDraft]) -> None:
        try:
            problem = await self._problem_before(parts[0])
            if problem is not None:
                self._refuse(parts, problem)
                return
            async with self._slots:
                await self._write_parts(parts)
        except asyncio.CancelledError:
            self._refuse([part for part in parts if part.key not in self._sent], _NO_LEADER)
            raise
        finally:
            # Also after a refusal: Statements that wait for this one then look into `refused`.
            self._writing.difference_update(part.key for part in parts)
            self._sent.difference_update(part.key for part in parts)
            self._statements.pop(statement).set()

    async def _problem_before(self, draft: BindRequestDraft) -> str | None:
        """Wait for the prerequisite of `draft`; return why it was refused, None if it was not."""
        before = (draft.namespace, draft.spec.statement.after)
        written = self._statements.get(before)
        if written is not None:
            await written.wait()
        # The loop empties `refused` before the next cycle, which names no refused prerequisite.
        refused = (each for each in self.refused if each.statement == before)
        return next((each.problem for each in refused), None)

    async def _write_parts(self, parts: list[BindRequestDraft]) -> None:
        written: list[BindRequestDraft] = []
        for draft in parts:
            problem = await self._create(draft)
            if problem is not None:
                await self._take_back(written)
                self._refuse(parts, problem)
                return
            written.append(draft)

    def _refuse(self, parts: list[BindRequestDraft], problem: str) -> None:
        self.refused.extend(Refused(draft, problem) for draft in parts)
        self._wake()

    async def _create(self, draft: BindRequestDraft) -> str | None:
        """Create one request; return why it does not exist, None if it does or may exist."""
        pauses_s = iter(_REPEAT_AFTER_S)
        while True:
            if not self._leadership.is_valid():
                return None if draft.key in self._sent else _NO_LEADER
            try:
                return await self._create_once(draft)
            except (OutcomeUnknownError, UnreachableError) as error:
                _log.warning("commit outcome unknown", request=draft.name, error=str(error))
                # Repeating is safe, as the name is always the same. The client has already
                # retried a request that it could not send.
                pause_s = next(pauses_s, None) if isinstance(error, OutcomeUnknownError) else None
                if pause_s is None:
                    # It may exist: its pods stay held until the watch or a look-up shows it.
                    REQUESTS.labels("unknown").inc()
                    return None
            await asyncio.sleep(pause_s)

    async def _create_once(self, draft: BindRequestDraft) -> str | None:
        """Create one request; return why it does not exist, None if it does.

        Raises:
            OutcomeUnknownError, UnreachableError: it may exist.
        """
        self._sent.add(draft.key)
        try:
            # The client repeats by itself what the API server could not take. It must not do so
            # when others may lead already.
            async with asyncio.timeout(self._leadership.valid_for_s()):
                await self._client.create(BIND_REQUESTS, draft.to_object(), draft.namespace)
        except TimeoutError as error:
            raise OutcomeUnknownError("the Lease was not renewed in time") from error
        except AlreadyExistsError:
            return await self._compare(draft)
        except ApiError as error:
            if isinstance(error, NamespaceTerminatingError):
                self.ending.add(draft.namespace)
            _log.warning("commit refused", request=draft.name, error=str(error))
            REQUESTS.labels("refused").inc()
            return error.message or str(error)
        REQUESTS.labels("created").inc()
        return None

    async def _compare(self, draft: BindRequestDraft) -> str | None:
        """Return None if the existing request is equal to `draft`, else why it is not.

        The text is "" if another scheduler wrote the request.
        """
        try:
            found = await self._client.get(BIND_REQUESTS, draft.name, draft.namespace)
        except NotFoundError:
            return "a request with its name was just deleted"
        except KubeError as error:
            return str(error)
        # The same content is an earlier attempt of this process: its answer was lost.
        ours = [(pod.pod_uid, pod.selected_node) for pod in draft.spec.pods]
        theirs = [(pod.pod_uid, pod.selected_node) for pod in found.spec.pods]
        if ours == theirs and found.spec.fencing_token == draft.spec.fencing_token:
            REQUESTS.labels("created").inc()
            return None
        REQUESTS.labels("collided").inc()
        return ""

    async def _take_back(self, written: list[BindRequestDraft]) -> None:
        for draft in written:
            try:
                await self._client.delete(BIND_REQUESTS, draft.name, draft.namespace)
            except NotFoundError:
                continue
            except KubeError as error:
                # The stale-request rules remove an incomplete Statement later.
                _log.warning("part not deleted", request=draft.name, error=str(error))

    # -- clearing ------------------------------------------------------------------------------

    async def _remove(self, stale: StaleRequest) -> None:
        meta = stale.request.metadata
        try:
            await self._client.delete(BIND_REQUESTS, meta.name, meta.namespace, uid=meta.uid)
        except NotFoundError:
            pass
        except KubeError as error:
            _log.warning("stale request not deleted", request=meta.name, error=str(error))
            self._removing.discard(meta.uid)
            return
        REQUESTS.labels("cleared").inc()
        _log.info("request deleted", request=meta.name, reason=stale.reason, why=stale.message)

    async def _look_up(self, key: RequestKey) -> None:
        namespace, name = key
        try:
            await self._client.get(BIND_REQUESTS, name, namespace)
        except NotFoundError:
            _log.warning("request does not exist", request=name)
            self.missing.append(key)
            self._wake()
        except KubeError as error:
            _log.warning("request lookup failed", request=name, error=str(error))
