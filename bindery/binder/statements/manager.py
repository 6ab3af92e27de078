"""Decides when each Statement is carried out: the binder's memory of Statements.

`operator` shows it every change of every BindRequest by `observe`, `gone` and `malformed`, which
only take note and start or interrupt a `run.run`. It keeps the rules that go over more than one
request: a Statement begins when all parts have come and the Statement that it builds on has
succeeded, a pod is under one Run at a time, and a Statement of a scheduler that does not lead any
more is refused.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from bindery.api.bindrequest import BindFailureReason
from bindery.api.times import timestamp_milli
from bindery.binder.outcome.fencing import Fence
from bindery.binder.outcome.outcome import PodFailure, Wait
from bindery.binder.outcome.ports import RequestChangedError, RequestGoneError
from bindery.binder.outcome.retention import Finished, finished, finished_as_a_whole
from bindery.binder.outcome.status import announced_status, malformed_status
from bindery.binder.run.dependencies import RunDependencies
from bindery.binder.run.pod_claims import PodClaims
from bindery.binder.run.predecessors import Predecessor, Predecessors
from bindery.binder.run.run import Interruption, Run
from bindery.binder.run.run_start import RunStart
from bindery.binder.run.statements import Gatherings, problem_of, problem_of_parts
from bindery.kube.errors import KubeError
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement, StatementKey

_log: Final = structlog.get_logger(__name__)

_FRESH_S: Final = 10.0
"""Parts that came together within this time are taken as they came; older ones are read again."""
_ASK_AGAIN_S: Final = 1.0
"""Pause after the API server could not be asked."""

_Identity = tuple[str, str]
"""UID of a request, and the id of one of its Statements; "" for the request as a whole."""


class Retention(Protocol):
    """Removes finished requests when their time is over."""

    def add(self, request: Finished) -> None:
        """Take in a finished request."""


@dataclass(frozen=True)
class UnsaidWait:
    """A waiting Statement without a wait reason in its status."""

    statement: CommittedStatement
    wait: Wait
    since_s: float


@dataclass(frozen=True)
class Malformed:
    """A BindRequest that cannot be decoded or carried out: its identity and the problem."""

    namespace: str
    name: str
    uid: str
    message: str
    statement: CommittedStatement | None = None
    """The one of its Statements that is malformed; None for the whole request."""


class MalformedSink(Protocol):
    """Tells the world that a request is malformed."""

    async def refuse(self, request: Malformed, status: Mapping[str, object]) -> None:
        """Write an event and, if the API server accepts it, the status."""


class Manager:
    """All Runs. Every method is called in the event loop; none waits, except `drain`."""

    def __init__(
        self,
        dependencies: RunDependencies,
        fence: Fence,
        retention: Retention,
        malformed: MalformedSink,
    ) -> None:
        self._dependencies, self._fence = dependencies, fence
        self._retention, self._malformed = retention, malformed
        self._gatherings = Gatherings()
        self._predecessors = Predecessors(dependencies.store, dependencies.pause)
        self._known: dict[
            StatementKey, CommittedStatement
        ] = {}  # live Statements that have been admitted
        # parts that wait for others -> when they came
        self._first_seen: dict[StatementKey, float] = {}
        self._said: set[StatementKey] = set()  # live; their wait was written
        self._runs: dict[StatementKey, Run] = {}
        self._claims = PodClaims()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: dict[_Identity, int] = {}  # malformed and reported -> at which generation
        # Statements that another request carries too, while that one is looked for
        self._copies: dict[_Identity, CommittedStatement] = {}

    @property
    def run_count(self) -> int:
        """How many Statements are being carried out or wait for their next attempt."""
        return len({id(run) for run in self._runs.values()})

    def note_token(self, labels: dict[str, str], token: int) -> None:
        """Take in the fencing token of a request, before any Run is started."""
        self._fence.note(labels, token)

    def observe(self, statement: CommittedStatement, *, adopted: bool) -> None:
        """Take in a Statement that is new or has changed.

        Args:
            statement: its newest state.
            adopted: whether it was there before we looked, so that another may have worked on it.
        """
        key = statement.key
        self._fence.note(statement.metadata.labels, statement.fencing_token)
        known = self._known.get(key)
        if known is not None and known.metadata.name != statement.metadata.name:
            self._take_copy(statement, known)
            return
        if known is not None and known.metadata.uid != statement.metadata.uid:
            self.gone(known)
            known = None
        if statement.metadata.deletion_timestamp:
            self.gone(statement)
            return
        self._predecessors.note(statement)
        if statement.is_final:
            self._finish(key, statement)
        elif known is None:
            self._admit(key, statement, adopted=adopted)
        elif known.is_changed_in(statement):
            self._replace(key, statement)

    def announced(self, request: BindRequest) -> None:
        """Take in the announcement of a new leader; it is removed as any finished request."""
        self._fence.note(request.metadata.labels, request.spec.fencing_token)
        if request.is_final:
            self._retention.add(finished_as_a_whole(request))
        elif not request.metadata.deletion_timestamp:
            self._spawn(self._acknowledge(request))

    def gone(self, statement: CommittedStatement) -> None:
        """Take in that a Statement does not exist any more."""
        key, uid = statement.key, statement.metadata.uid
        for identity in ((uid, ""), (uid, key.statement)):
            self._refused.pop(identity, None)
            self._copies.pop(identity, None)
        known = self._known.get(key)
        if known is not None and known.metadata.uid != uid:
            return
        self._forget(key)
        self._gatherings.drop(statement)
        self._predecessors.drop(statement)
        run = self._runs.get(key)
        if run is not None and run.parts[key].metadata.uid == statement.metadata.uid:
            run.interrupt(key, Interruption.GONE)

    def malformed(self, request: Malformed, *, is_final: bool) -> None:
        """Take in a request, or one of its Statements, that cannot be understood."""
        statement = request.statement
        if statement is None:
            of_request = [e for e in self._known.values() if e.metadata.uid == request.uid]
            for each in of_request:
                self.gone(each)
        identity = (request.uid, statement.key.statement if statement is not None else "")
        generation = statement.metadata.generation if statement is not None else 0
        if self._refused.get(identity) == generation or is_final:
            return
        self._refused[identity] = generation
        now = timestamp_milli(self._dependencies.clock())
        pods = statement.spec.pods if statement is not None else None
        status = malformed_status(request.message, now, pods)
        self._spawn(self._malformed.refuse(request, status))

    def retain(self, request: Finished) -> None:
        """Take in a request that has ended as a whole."""
        self._retention.add(request)

    def is_needed(self, request: Finished) -> bool:
        """Whether the outcome of this request is still needed, or not complete.

        Others that need it are parts of its Statements, and Statements that build on them, without
        an outcome.
        """
        return any(
            self._is_open(request, statement_id)
            or self._gatherings.has_open_part(request.namespace, statement_id)
            or self.is_waited_for(request.namespace, statement_id)
            for statement_id in request.statement_ids
        )

    def _is_open(self, request: Finished, statement_id: str) -> bool:
        """Whether the Statement of this request, in one part, has no outcome yet."""
        known = self._known.get(StatementKey(request.namespace, statement_id, 0))
        return known is not None and known.metadata.uid == request.uid

    def is_waited_for(self, namespace: str, statement_id: str) -> bool:
        """Whether a Statement in progress has this one as its prerequisite."""
        return self._predecessors.is_waited_for(namespace, statement_id)

    def unsaid_waits(self, patience_s: float) -> list[UnsaidWait]:
        """Return the Statements that have waited longer than `patience_s` without a wait reason."""
        latest_s = self._dependencies.clock() - patience_s
        found = []
        for key, statement in self._known.items():
            run = self._runs.get(key)
            since_s = run.since_s if run is not None else self._first_seen.get(key, latest_s)
            if since_s > latest_s or key in self._said:
                continue
            newest = run.parts.get(key, statement) if run is not None else statement
            wait = self._gatherings.wait(statement) if run is None else run.wait
            if wait is not None and not newest.status.reason:
                found.append(UnsaidWait(newest, wait, since_s))
        return found

    def wait_said(self, statement: CommittedStatement, written: CommittedStatement | None) -> None:
        """Note that the wait reason of `statement` was written, or could not be."""
        key = statement.key
        self._said.add(key)
        run = self._runs.get(key)
        if run is not None and written is not None:
            run.rewritten(key, statement, written)

    async def drain(self, grace_s: float) -> None:
        """Wait at most `grace_s` for Runs in progress, then cancel the rest.

        The pause of the dependencies answers False by now, so that waiting Runs end at once.
        """
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=grace_s)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    # ---- admission ------------------------------------------------------------------------------

    def _admit(self, key: StatementKey, statement: CommittedStatement, *, adopted: bool) -> None:
        problem = problem_of(statement)
        other = self._gatherings.other_carrier(statement)
        if other is not None:
            problem = _problem_of_copy(other)
        if problem:
            self._refuse(statement, problem)
            return
        self._known[key] = statement
        if statement.spec.parts == 1:
            self._start([statement], adopted=adopted)
            return
        self._first_seen[key] = self._dependencies.clock()
        gathering = self._gatherings.add(statement)
        if gathering.is_ready:
            parts = gathering.in_order()
            problem = problem_of_parts(parts)
            if problem:
                for part in parts:
                    self._refuse(part, problem)
            else:
                self._start(parts, adopted=adopted or any(part.is_final for part in parts))

    def _replace(self, key: StatementKey, statement: CommittedStatement) -> None:
        """Start a new Run for a Statement with a changed spec, when the old Run has ended."""
        self._known[key] = statement
        if statement.spec.parts > 1:
            self._gatherings.add(statement)
        run = self._runs.get(key)
        if run is not None:
            run.interrupt(key, Interruption.CHANGED)
        else:
            self._forget(key)
            self._admit(key, statement, adopted=True)

    def _finish(self, key: StatementKey, statement: CommittedStatement) -> None:
        self._forget(key)
        if statement.spec.parts > 1:
            gathering = self._gatherings.add(statement)
            # Seen last at a start: the parts without an outcome wait for nothing else.
            if gathering.is_ready and not gathering.is_final:
                parts = gathering.in_order()
                if not any(part.key in self._runs for part in parts):
                    self._start(parts, adopted=True)
        self._retention.add(finished(statement))

    async def _acknowledge(self, request: BindRequest) -> None:
        now = timestamp_milli(self._dependencies.clock())
        status = announced_status(request.spec.fencing_token, now)
        await self._dependencies.store.acknowledge(request, status)

    def _refuse(self, statement: CommittedStatement, problem: str) -> None:
        meta = statement.metadata
        malformed = Malformed(meta.namespace, meta.name, meta.uid, problem, statement)
        self.malformed(malformed, is_final=False)

    def _take_copy(self, statement: CommittedStatement, known: CommittedStatement) -> None:
        """Take in a Statement that another request carries too."""
        identity = (statement.metadata.uid, statement.key.statement)
        if statement.is_final:
            self._retention.add(finished(statement))
        elif not statement.metadata.deletion_timestamp:
            is_new = identity not in self._copies
            self._copies[identity] = statement
            if is_new:
                self._spawn(self._examine_copy(identity, known))

    async def _examine_copy(self, identity: _Identity, known: CommittedStatement) -> None:
        """Refuse a copy, unless the other request is gone; that one stays as it is."""
        # kopf keeps the order of one request's events, not of two: that the other request is gone
        # may not have been told yet.
        is_gone: bool | None = None
        while is_gone is None:
            try:
                await self._dependencies.store.confirm(known)
            except RequestGoneError:
                is_gone = True
            except RequestChangedError:
                is_gone = False
            except KubeError:
                if not await self._dependencies.pause(_ASK_AGAIN_S):
                    return
            else:
                is_gone = False
        copy = self._copies.pop(identity, None)
        if copy is None:
            return
        if is_gone:
            self.gone(known)
            self.observe(copy, adopted=True)
        else:
            self._refuse(copy, _problem_of_copy(known))

    def _forget(self, key: StatementKey) -> None:
        self._known.pop(key, None)
        self._first_seen.pop(key, None)
        self._said.discard(key)

    # ---- Runs -----------------------------------------------------------------------------------

    def _start(self, parts: list[CommittedStatement], *, adopted: bool) -> None:
        now = self._dependencies.clock()
        waited_s = max(now - self._first_seen.pop(part.key, now) for part in parts)
        before = [self._runs[part.key] for part in parts if part.key in self._runs]
        # A part that is withdrawn takes the others with it.
        speaker = next((part for part in parts if part.is_withdrawn), parts[0])
        predecessor = self._predecessors.of(speaker)
        run = Run(
            parts,
            self._dependencies,
            fence=self._fence_of(speaker, predecessor),
            adopted=adopted,
            confirm_first=bool(before) or waited_s > _FRESH_S,
        )
        for part in parts:
            self._runs[part.key] = run
        run.start(RunStart(run, before, predecessor, self._claims), self._spawn)
        self._spawn(self._see_off(run, predecessor))

    def _fence_of(
        self, statement: CommittedStatement, predecessor: Predecessor
    ) -> Callable[[], PodFailure | None]:
        labels, token = statement.metadata.labels, statement.fencing_token
        if statement.is_withdrawn:
            text = "the scheduler has withdrawn its Statement"
            withdrawn = PodFailure(BindFailureReason.WITHDRAWN, text, permanent=True)
            return lambda: withdrawn
        return lambda: self._fence.refusal(labels, token) or predecessor.refusal

    async def _see_off(self, run: Run, predecessor: Predecessor) -> None:
        """Clear up after a Run; start again if one of its parts has changed meanwhile."""
        await run.ended.wait()
        predecessor.leave()
        self._claims.release(run)
        for key, part in run.parts.items():
            self._gatherings.refresh(part)
            self._predecessors.refresh(part)
            if self._runs.get(key) is run:
                del self._runs[key]
        if run.has_changed:
            self._start_again(run)

    def _start_again(self, run: Run) -> None:
        """Start a new Run for the newest states of the parts of `run`."""
        for key, part in run.parts.items():
            known = self._known.get(key)
            if known and part.is_changed_in(known):
                self._forget(key)
                self._admit(key, known, adopted=True)
        # A part that has ended is not admitted, but the others cannot end without its change.
        gathering = self._gatherings.of(next(iter(run.parts.values())))
        if gathering is None or gathering.is_final or not gathering.is_ready:
            return
        parts = gathering.in_order()
        has_changed = any(
            part.key in run.parts and run.parts[part.key].is_changed_in(part) for part in parts
        )
        if has_changed and not any(part.key in self._runs for part in parts):
            self._start(parts, adopted=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _problem_of_copy(other: CommittedStatement) -> str:
    """Return why a Statement is malformed that `other` carries too."""
    what = "part of the same Statement" if other.spec.parts > 1 else "Statement"
    return f"{other.metadata.name} carries the same {what}"
