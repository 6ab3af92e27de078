"""Writes BindRequests to the API server, and deletes stale ones.

The parts of a Statement are written together: if one is refused, the others are deleted again, so
that a gang is committed whole or not at all. Several requests are written concurrently.

Nothing is created after the Lease is lost: the next leader lists the requests when its term begins,
and would give the room of a later one away a second time.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from bindery.api.configuration import BindRequestConfiguration
from bindery.kube.bindings import void_bindings
from bindery.kube.client import Client
from bindery.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    KubeError,
    MalformedAnswerError,
    NamespaceTerminatingError,
    NotFoundError,
    OutcomeUnknownError,
    UnreachableError,
)
from bindery.kube.lease import Leadership
from bindery.kube.objects.bindrequests import StatementKey
from bindery.kube.objects.resources import BIND_REQUESTS, PODS
from bindery.kube.objects.watched import Meta
from bindery.kube.releases import release
from bindery.scheduler.commit.backlog import (
    Backlog,
    Parts,
    StatementId,
    identity,
    prerequisite,
)
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.metrics import REQUESTS
from bindery.scheduler.commit.requests import BindRequestDraft, content_of
from bindery.scheduler.commit.stale import StaleRequest

CONCURRENT_CREATIONS = 16
"""Maximum number of requests that are being created at once."""
UNCONFIRMED_AFTER_S = 30.0
"""Time after which a request that the watch does not show is looked up, in seconds."""
_REPEAT_AFTER_S = (0.2, 1.0, 4.0)
"""Pauses before a create call with an unknown outcome is repeated, in seconds."""

_NO_LEADER = "this scheduler no longer leads"
_DELETED = "a request with its name was just deleted"

_Removal = tuple[str, str]
"""UID of a request, and the id of its Statement to withdraw; "" to delete the request."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Refused:
    """A Statement that will not be written. `problem`: the reason; "" if another scheduler won."""

    draft: StatementDraft
    problem: str

    @property
    def statement(self) -> StatementId:
        """The identity of its Statement."""
        return identity(self.draft)


class RequestWriter:
    """Creates and deletes BindRequests in the background.

    A Statement gets a request of its own at once while fewer than `CONCURRENT_CREATIONS` are being
    created. Else it waits until one of them ends, and shares a request with others that wait.

    After a failure it calls `wake`, and the loop takes the results from `refused` and `missing`.
    """

    def __init__(
        self,
        client: Client,
        wake: Callable[[], None],
        configuration: Callable[[], BindRequestConfiguration] = BindRequestConfiguration,
    ) -> None:
        """Make a writer that creates nothing before `begin`; `wake` wakes the loop."""
        self._client = self._term_client = client
        """The second sends nothing after its term: what it deletes may be the next leader's."""
        self._wake = wake
        self._configuration = configuration
        self._leadership = Leadership.without_election()
        self.ending: set[str] = set()
        """Namespaces that are being deleted, in which nothing can be created."""
        self.refused: list[Refused] = []
        self.missing: list[StatementKey] = []
        """Statements whose request should exist but does not."""
        self._parts: dict[StatementId, list[StatementDraft]] = {}
        self._backlog = Backlog()
        self._being_written: set[StatementId] = set()
        self._uids: dict[tuple[str, str], str] = {}
        """Namespace and name of each request that is being written -> its UID, once it exists."""
        self._creations = 0
        """Number of requests that are being created."""
        self._sent: set[StatementKey] = set()
        """Statements being written whose request may exist."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._removing: set[_Removal] = set()
        """Removals in progress, or done but not shown by the watch."""
        self._looked_up: set[str] = set()
        """Namespaces whose requests are being listed."""

    def begin(self, leadership: Leadership) -> None:
        """Create requests as long as `leadership` is valid."""
        self._leadership = leadership
        self._term_client = self._client.within(leadership.is_valid)
        self._removing.clear()  # the end of the last term may have interrupted some

    def submit(self, draft: StatementDraft) -> None:
        """Write `draft` when all parts of its Statement have been submitted."""
        statement = identity(draft)
        parts = self._parts.setdefault(statement, [])
        parts.append(draft)
        if len(parts) < draft.spec.parts:
            return
        del self._parts[statement]
        # The loop empties `refused` before the next cycle, which names no refused prerequisite.
        before = prerequisite(draft)
        refused = next((each for each in self.refused if each.statement == before), None)
        if refused is not None:
            self._refuse([tuple(parts)], refused.problem)
        else:
            self._backlog.add(tuple(parts))
            self._write_more()

    def abandon(self) -> None:
        """Refuse the Statements with missing parts, after a cycle that ended early."""
        self._refuse([tuple(parts) for parts in self._parts.values()], "the cycle ended early")
        self._parts.clear()

    def clear(self, stale: Iterable[StaleRequest]) -> None:
        """Delete stale requests, or withdraw their Statements, in the background.

        `stale`: all stale requests; a removed one may be among them until the watch shows it.
        """
        wanted = {_removal(each): each for each in stale}
        self._removing &= wanted.keys()
        for key, each in wanted.items():
            if key not in self._removing:
                self._removing.add(key)
                self._spawn(self._withdraw(each) if each.has_neighbours else self._remove(each))

    def look_up(self, keys: Iterable[StatementKey]) -> None:
        """Check that a request carries each of `keys`, except Statements that are being written."""
        by_namespace: defaultdict[str, set[StatementKey]] = defaultdict(set)
        for key in keys:
            statement = StatementId(key.namespace, key.statement)
            if statement not in self._being_written and statement not in self._backlog:
                by_namespace[key.namespace].add(key)
        for namespace in by_namespace.keys() - self._looked_up:
            self._looked_up.add(namespace)
            self._spawn(self._look_up(namespace, by_namespace[namespace]))

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
        self._refuse(self._backlog.clear(), _NO_LEADER)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- creating ------------------------------------------------------------------------------

    def _write_more(self) -> None:
        """Start to create as many requests as may be in progress at once."""
        while self._creations < CONCURRENT_CREATIONS:
            most = self._configuration().max_statements
            statements = self._backlog.take(self._being_written, most)
            if not statements:
                return
            self._creations += 1
            self._being_written.update(identity(parts[0]) for parts in statements)
            task = self._spawn(self._write_together(statements))
            # Also called for a task that was cancelled before it began.
            task.add_done_callback(partial(self._written, statements))

    def _written(self, statements: list[Parts], task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("commit failed", exc_info=error)
        if task.cancelled() or error is not None:
            unsent = [parts for parts in statements if all(p.key not in self._sent for p in parts)]
            self._refuse(unsent, _NO_LEADER if error is None else f"unexpected error: {error}")
        for parts in statements:
            self._being_written.discard(identity(parts[0]))
            self._sent.difference_update(part.key for part in parts)
            for part in parts:
                self._uids.pop((part.namespace, part.name), None)
        self._creations -= 1
        self._write_more()

    async def _write_together(self, statements: list[Parts]) -> None:
        if len(statements[0]) > 1:
            await self._write_parts(statements[0])
            return
        request = BindRequestDraft(tuple(parts[0] for parts in statements))
        problem = await self._create(request)
        if problem is None:
            return
        is_shared_by_all = not self._leadership.is_valid() or request.namespace in self.ending
        if len(statements) == 1 or is_shared_by_all:
            self._refuse(statements, problem)
        else:  # the fault of one must not be that of its neighbours
            await self._write_one_by_one(statements)

    async def _write_one_by_one(self, statements: list[Parts]) -> None:
        problems: dict[StatementId | None, str] = {}
        for parts in statements:
            before = prerequisite(parts[0])
            problem = problems.get(before)
            if problem is None:
                problem = await self._create(BindRequestDraft(parts))
            if problem is not None:
                problems[identity(parts[0])] = problem
                self._refuse([parts], problem)

    async def _write_parts(self, parts: Parts) -> None:
        written: list[BindRequestDraft] = []
        for part in parts:
            request = BindRequestDraft((part,))
            problem = await self._create(request)
            if problem is not None:
                await self._take_back(written)
                self._refuse([parts], problem)
                return
            written.append(request)

    def _refuse(self, statements: Sequence[Parts], problem: str) -> None:
        """Give up `statements`, and those of the backlog that build on them."""
        if not statements:
            return
        followers = self._backlog.drop_followers({identity(parts[0]) for parts in statements})
        for parts in (*statements, *followers):
            self.refused.extend(Refused(draft, problem) for draft in parts)
        self._wake()

    async def _create(self, request: BindRequestDraft) -> str | None:
        """Create one request; return why it does not exist, None if it does or may exist."""
        pauses_s = iter(_REPEAT_AFTER_S)
        while True:
            if not self._leadership.is_valid():
                return None if request.keys <= self._sent else _NO_LEADER
            try:
                return await self._create_once(request)
            except (OutcomeUnknownError, UnreachableError, MalformedAnswerError) as error:
                _log.warning("commit outcome unknown", request=request.name, error=str(error))
                # Repeating is safe, as the name is always the same. The client has already
                # retried a request that it could not send.
                is_repeated = not isinstance(error, UnreachableError)
                pause_s = next(pauses_s, None) if is_repeated else None
                if pause_s is None:
                    # It may exist: its pods stay held until the watch or a look-up shows it.
                    REQUESTS.labels("unknown").inc()
                    return None
            await asyncio.sleep(pause_s)

    async def _create_once(self, request: BindRequestDraft) -> str | None:
        """Create one request; return why it does not exist, None if it does.

        The text is "" if another scheduler has written a request with its name.

        Raises:
            OutcomeUnknownError, UnreachableError, MalformedAnswerError: it may exist.
        """
        self._sent |= request.keys
        try:
            # The client repeats by itself what the API server could not take. It must not do so
            # when others may lead already.
            async with asyncio.timeout(self._leadership.valid_for_s()):
                body, namespace = request.to_object(), request.namespace
                created = await self._client.create(BIND_REQUESTS, body, namespace)
        except TimeoutError as error:
            raise OutcomeUnknownError("the Lease was not renewed in time") from error
        except AlreadyExistsError:
            # The same content is an earlier attempt of this process: its answer was lost.
            exists = await self._exists(request)
            problem = _DELETED if exists is None else ""
        except ApiError as error:
            if isinstance(error, NamespaceTerminatingError):
                self.ending.add(request.namespace)
            _log.warning("commit refused", request=request.name, error=str(error))
            # An earlier attempt, of the client too, may have taken effect without an answer. Then
            # its Statements must not be written a second time.
            exists = await self._exists(request)
            problem = error.message or str(error)
        except KubeError:
            raise
        except Exception as error:  # such as data of a plugin that cannot be written as JSON
            _log.exception("commit failed", request=request.name)
            exists = await self._exists(request)
            problem = f"unexpected error: {error}"
        else:
            exists, problem = True, ""
            self._uids[request.namespace, request.name] = created.metadata.uid
        if exists:
            REQUESTS.labels("created").inc()
            return None
        self._sent -= request.keys
        REQUESTS.labels("refused" if problem else "collided").inc()
        return problem

    async def _exists(self, request: BindRequestDraft) -> bool | None:
        """Return whether the API server has `request`, False if another one has its name.

        None means that no request has its name.

        Raises:
            OutcomeUnknownError: it could not be read.
        """
        try:
            found = await self._client.get(BIND_REQUESTS, request.name, request.namespace)
        except NotFoundError:
            return None
        except KubeError as error:
            raise OutcomeUnknownError(f"it could not be read: {error}") from error
        token = request.statements[0].fencing_token
        if found.spec.fencing_token != token or content_of(found.each()) != request.content:
            return False
        self._uids[request.namespace, request.name] = found.metadata.uid
        return True

    async def _take_back(self, written: Sequence[BindRequestDraft]) -> None:
        for request in written:
            name, namespace = request.name, request.namespace
            try:
                # The answer to its creation may be lost; then its UID is not known yet.
                if (namespace, name) not in self._uids and not await self._exists(request):
                    continue
                # By its name alone, a request of the next leader could be deleted.
                uid = self._uids[namespace, name]
                await self._term_client.delete(BIND_REQUESTS, name, namespace, uid=uid)
            except NotFoundError:
                continue
            except KubeError as error:
                # The stale-request rules remove an incomplete Statement later.
                _log.warning("part not deleted", request=request.name, error=str(error))

    # -- clearing ------------------------------------------------------------------------------

    async def _remove(self, stale: StaleRequest) -> None:
        meta = stale.statement.metadata
        try:
            await self._void_bindings(meta)
            if meta.deletion_timestamp is not None:
                await release(self._term_client, meta)
            else:
                name, namespace = meta.name, meta.namespace
                await self._term_client.delete(BIND_REQUESTS, name, namespace, uid=meta.uid)
        except NotFoundError:
            pass
        except KubeError as error:
            _log.warning("stale request not deleted", request=meta.name, error=str(error))
            self._removing.discard(_removal(stale))
            return
        REQUESTS.labels("cleared").inc()
        _log.info("request deleted", request=meta.name, reason=stale.reason, why=stale.message)

    async def _void_bindings(self, meta: Meta) -> None:
        """Refuse bindings of the request's pods that a binder may have sent.

        Other pods get their room as soon as the request is deleted.
        """
        found = await self._client.get(BIND_REQUESTS, meta.name, meta.namespace)
        if found.metadata.uid != meta.uid:
            return
        for statement in found.each():
            for pod in () if statement.is_final else statement.spec.pods:
                with suppress(NotFoundError, ConflictError):  # a binding names the UID, too
                    await void_bindings(
                        self._term_client,
                        PODS,
                        meta.namespace,
                        pod.pod_name,
                        pod.pod_uid,
                        subresource="status",
                    )

    async def _withdraw(self, stale: StaleRequest) -> None:
        """Withdraw one Statement of a request, so that the binder ends it."""
        meta, statement = stale.statement.metadata, stale.statement.key.statement
        try:
            await self._add_withdrawn(meta, statement)
        except NotFoundError:
            return
        except KubeError as error:
            _log.warning("stale Statement not withdrawn", request=meta.name, error=str(error))
            self._removing.discard(_removal(stale))
            return
        REQUESTS.labels("withdrawn").inc()
        _log.info(
            "Statement withdrawn",
            request=meta.name,
            statement=statement,
            reason=stale.reason,
            why=stale.message,
        )

    async def _add_withdrawn(self, meta: Meta, statement: str) -> None:
        for is_last in (False, False, True):
            found = await self._client.get(BIND_REQUESTS, meta.name, meta.namespace)
            if found.metadata.uid != meta.uid or statement in found.spec.withdrawn:
                return
            # The version keeps the ids that are added at the same time for its neighbours.
            patch = {
                "metadata": {"resourceVersion": found.metadata.resource_version},
                "spec": {"withdrawn": [*found.spec.withdrawn, statement]},
            }
            try:
                await self._term_client.patch(
                    BIND_REQUESTS, meta.name, patch, namespace=meta.namespace
                )
            except ConflictError:  # also after each write of its status
                if is_last:
                    raise
            else:
                return

    async def _look_up(self, namespace: str, keys: Collection[StatementKey]) -> None:
        try:
            found = await self._client.list(BIND_REQUESTS, namespace=namespace)
        except KubeError as error:
            _log.warning("request lookup failed", namespace=namespace, error=str(error))
            return
        finally:
            self._looked_up.discard(namespace)
        carried = {each.key for stored in found for each in stored.each()}
        missing = [key for key in keys if key not in carried]
        if missing:
            _log.warning("requests do not exist", statements=[key.statement for key in missing])
            self.missing += missing
            self._wake()


def _removal(stale: StaleRequest) -> _Removal:
    statement = stale.statement.key.statement if stale.has_neighbours else ""
    return stale.statement.metadata.uid, statement
