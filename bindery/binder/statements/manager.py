"""Decides when each Statement is executed.

`intake` passes every change of every Statement to `observe` and `gone`, which only store the change
and start or interrupt a `run.run`. `entries` stores the Statements, with the transitions of their
parts. The manager executes the transitions, and enforces the rules across requests: a Statement
starts when all parts are known and its prerequisite has succeeded, a pod belongs to one Run at a
time, and a Statement of a scheduler that no longer leads is refused.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from bindery.api.bindrequest import BindFailureReason
from bindery.api.times import timestamp_milli
from bindery.binder.outcome.fencing import Fence
from bindery.binder.outcome.outcome import PodFailure, Wait
from bindery.binder.outcome.ports import RequestChangedError, RequestGoneError
from bindery.binder.outcome.retention import Finished, finished, finished_as_a_whole
from bindery.binder.outcome.status import announced_status, malformed_status
from bindery.binder.run.dependencies import RunDependencies
from bindery.binder.run.run import Interruption, Run
from bindery.binder.statements.entries import (
    OPEN,
    TRANSITIONS,
    UNDER_A_RUN,
    Event,
    Part,
    State,
    StatementEntry,
)
from bindery.binder.statements.predecessors import Predecessor
from bindery.binder.statements.problems import problem_of, problem_of_parts
from bindery.binder.statements.run_start import PodClaims, RunStart
from bindery.kube.errors import KubeError
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement
from bindery.kube.objects.watched import Meta

_FRESH_S: Final = 10.0
"""Seconds within which parts that came together are used unread; older parts are read again."""
_ASK_AGAIN_S: Final = 1.0
"""Pause after a failed request to the API server."""


class Retention(Protocol):
    """Deletes finished requests after their time to live."""

    def add(self, request: Finished) -> None:
        """Add a finished request."""


@dataclass(frozen=True)
class UnwrittenWait:
    """A waiting Statement without a wait reason in its status."""

    statement: CommittedStatement
    wait: Wait
    since_s: float


@dataclass(frozen=True)
class Malformed:
    """A BindRequest that cannot be decoded or executed: its identity and the problem."""

    namespace: str
    name: str
    uid: str
    message: str
    statement: CommittedStatement | None = None
    """The malformed Statement; None for the whole request."""


class MalformedSink(Protocol):
    """Reports malformed requests to users."""

    async def refuse(self, request: Malformed, status: Mapping[str, object]) -> None:
        """Write an event and, if the API server accepts it, the status."""


class Manager:
    """Starts and stops all Runs. Methods are called in the event loop; only `drain` waits."""

    def __init__(
        self,
        dependencies: RunDependencies,
        fence: Fence,
        retention: Retention,
        malformed: MalformedSink,
    ) -> None:
        self._dependencies, self._fence = dependencies, fence
        self._retention, self._malformed = retention, malformed
        self.entries: dict[tuple[str, str], StatementEntry] = {}
        """Namespace and id of a Statement -> its entry."""
        self._claims = PodClaims()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def run_count(self) -> int:
        """The number of Statements in progress, including waits for the next attempt."""
        return sum(len(entry.runs) for entry in self.entries.values())

    def note_token(self, labels: dict[str, str], token: int) -> None:
        """Record the fencing token of a request, before any Run is started."""
        self._fence.note(labels, token)

    def observe(self, statement: CommittedStatement, *, adopted: bool) -> None:
        """Process a new or changed Statement.

        Args:
            statement: its newest state.
            adopted: whether it was in the first list, so that another process may have worked on
                it.
        """
        meta = statement.metadata
        self._fence.note(meta.labels, statement.fencing_token)
        entry = self._entry(meta.namespace, statement.spec.id)
        former = entry.carriers.get(meta.name)
        if former is not None and (former.uid != meta.uid or meta.deletion_timestamp):
            self._drop(entry, former)
        if not meta.deletion_timestamp:
            part = entry.find(statement)
            if part is None:
                now = self._dependencies.clock()
                part = entry.carriers[meta.name] = Part(statement, adopted, now)
            self._apply(entry, part, part.take(statement))
            entry.wake_waiters()
        self._tidy(entry)

    def announced(self, request: BindRequest) -> None:
        """Process the announcement of a new leader; it is deleted some time after the next one."""
        self._fence.note(request.metadata.labels, request.spec.fencing_token)
        if request.is_final:
            superseded = self._fence.keep(request)
            if superseded is not None:
                self._retention.add(finished_as_a_whole(superseded))
        elif not request.metadata.deletion_timestamp:
            self._spawn(self._acknowledge(request))

    def gone(self, statement: CommittedStatement) -> None:
        """Process the deletion of a Statement."""
        entry = self.entries.get((statement.metadata.namespace, statement.spec.id))
        part = entry.find(statement) if entry is not None else None
        if entry is not None and part is not None:
            self._drop(entry, part)
            self._tidy(entry)

    def leave(self, request: Meta, statements: Sequence[CommittedStatement]) -> None:
        """Roll back a request that is being deleted, as `gone` was called for; then let it go."""
        self._spawn(self._leave(request, statements))

    def refuse(self, request: Malformed) -> None:
        """Report a malformed request, or a malformed Statement of one."""
        now = timestamp_milli(self._dependencies.clock())
        pods = request.statement.spec.pods if request.statement is not None else None
        status = malformed_status(request.message, now, pods)
        self._spawn(self._malformed.refuse(request, status))

    def retain(self, request: Finished) -> None:
        """Schedule the deletion of a request that has ended as a whole."""
        self._retention.add(request)

    def is_needed(self, request: Finished) -> bool:
        """Whether the outcome of this request is still needed, or not complete.

        It is needed by parts of its Statements, and by dependent Statements, without an outcome.
        """
        entries = (self.entries.get((request.namespace, each)) for each in request.statement_ids)
        return any(entry.is_open or entry.followers > 0 for entry in entries if entry is not None)

    def is_waited_for(self, namespace: str, statement_id: str) -> bool:
        """Whether a Statement in progress depends on the given one."""
        entry = self.entries.get((namespace, statement_id))
        return entry is not None and entry.followers > 0

    def unwritten_waits(self, patience_s: float) -> list[UnwrittenWait]:
        """Return the Statements that have waited longer than `patience_s` without a wait reason."""
        latest_s = self._dependencies.clock() - patience_s
        found = []
        for entry in self.entries.values():
            for part in entry.carriers.values():
                if part.is_wait_written or part.state not in OPEN:
                    continue
                run = entry.run_of(part)
                newest = run.parts[part.key] if run is not None else part.statement
                wait = run.wait if run is not None else entry.wait
                since_s = run.since_s if run is not None else part.since_s
                if since_s <= latest_s and wait is not None and not newest.status.reason:
                    found.append(UnwrittenWait(newest, wait, since_s))
        return found

    def wait_written(
        self, statement: CommittedStatement, written: CommittedStatement | None
    ) -> None:
        """Record that the wait reason of `statement` was written, or could not be written."""
        entry = self.entries.get((statement.metadata.namespace, statement.spec.id))
        part = entry.find(statement) if entry is not None else None
        if entry is None or part is None:
            return
        part.is_wait_written = True
        run = entry.run_of(part)
        if run is not None and written is not None:
            run.rewritten(part.key, statement, written)

    async def drain(self, grace_s: float) -> None:
        """Wait at most `grace_s` for Runs in progress, then cancel the rest.

        The pause of the dependencies now returns False, so that waiting Runs end at once.
        """
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=grace_s)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    # ---- the states of parts --------------------------------------------------------------------

    def _apply(self, entry: StatementEntry, part: Part, event: Event) -> None:
        """Set a part to its next state, and execute the consequences."""
        state = TRANSITIONS[part.state][event]
        assert state is not None, f"{event.name} in the state {part.state.name}"
        part.state = state
        if state is State.NEW:
            self._judge(entry, part)
        elif event is Event.CHANGED:
            self._interrupt(entry, part, Interruption.CHANGED)
        elif event is Event.FINAL:
            # After a restart, no other part will come: the parts without an outcome need not wait.
            if not entry.is_under_a_run:
                self._begin(entry)
            self._retention.add(finished(part.statement))

    def _entry(self, namespace: str, statement_id: str) -> StatementEntry:
        """Return the entry of a Statement; create it if needed."""
        identity = (namespace, statement_id)
        return self.entries.setdefault(identity, StatementEntry(*identity))

    def _tidy(self, entry: StatementEntry) -> None:
        """Forget the unneeded state of an entry."""
        entry.shed()
        if not entry.is_needed:
            self.entries.pop((entry.namespace, entry.id), None)

    def _drop(self, entry: StatementEntry, part: Part) -> None:
        """Forget a deleted part."""
        del entry.carriers[part.statement.metadata.name]
        self._interrupt(entry, part, Interruption.GONE)
        entry.wake_waiters()

    def _interrupt(self, entry: StatementEntry, part: Part, why: Interruption) -> None:
        run = entry.run_of(part)
        if run is not None:
            run.interrupt(part.key, why)

    def _judge(self, entry: StatementEntry, part: Part) -> None:
        part.since_s, part.is_wait_written = self._dependencies.clock(), False
        problem = problem_of(part.statement)
        if entry.other_carrier(part) is not None:
            part.state = State.COPY
            if not part.is_examined:
                part.is_examined = True
                self._spawn(self._examine(entry, part))
        elif problem:
            part.state = State.REFUSED
            self._refuse(part, problem)
        else:
            part.state = State.GATHERING
            self._begin(entry)

    def _begin(self, entry: StatementEntry) -> None:
        """Start a Run if all parts are known and agree."""
        if not entry.is_ready:
            return
        parts = entry.parts
        problem = problem_of_parts([part.statement for part in parts]) if len(parts) > 1 else ""
        if not problem:
            self._start(entry, parts)
        for part in parts if problem else ():
            self._refuse(part, problem)

    def _refuse(self, part: Part, problem: str) -> None:
        """Report that a part is malformed, once for each of its generations."""
        meta = part.statement.metadata
        if part.refused_at != meta.generation:
            part.refused_at = meta.generation
            self.refuse(Malformed(meta.namespace, meta.name, meta.uid, problem, part.statement))

    async def _examine(self, entry: StatementEntry, copy: Part) -> None:
        """Refuse a copy, unless the other request is deleted; the other request is not changed."""
        # kopf keeps the order of events of one request, not of two: the deletion of the other
        # request may not have been delivered yet.
        while (other := entry.other_carrier(copy)) is not None:
            try:
                await self._dependencies.store.confirm(other.statement)
            except RequestGoneError:
                self.gone(other.statement)
                continue
            except RequestChangedError:
                pass
            except KubeError:
                if not await self._dependencies.pause(_ASK_AGAIN_S):
                    return
                continue
            break
        copy.is_examined = False
        if entry.find(copy.statement) is not copy or copy.statement.is_final:
            return
        if other is None:
            copy.is_adopted = True
            self._apply(entry, copy, Event.SHOWN)
        else:
            noun = "part of the same Statement" if other.statement.spec.parts > 1 else "Statement"
            self._refuse(copy, f"{other.statement.metadata.name} carries the same {noun}")

    async def _acknowledge(self, request: BindRequest) -> None:
        now = timestamp_milli(self._dependencies.clock())
        status = announced_status(request.spec.fencing_token, now)
        await self._dependencies.store.acknowledge(request, status)

    # ---- Runs -----------------------------------------------------------------------------------

    def _start(self, entry: StatementEntry, parts: list[Part]) -> None:
        now = self._dependencies.clock()
        gathering = [part.since_s for part in parts if part.state is State.GATHERING]
        waited_s = now - min(gathering, default=now)
        before = list(entry.runs)
        statements = [part.statement for part in parts]
        # A withdrawn part takes the others with it.
        speaker = next((each for each in statements if each.is_withdrawn), statements[0])
        predecessor = self._predecessor_of(speaker)
        run = Run(
            statements,
            self._dependencies,
            fence=self._fence_of(speaker, predecessor),
            adopted=any(part.is_adopted or part.statement.is_final for part in parts),
            confirm_first=bool(before) or waited_s > _FRESH_S,
        )
        entry.runs.append(run)
        for part in parts:
            part.is_adopted = True
            self._apply(entry, part, Event.STARTED)
        run.start(RunStart(run, before, predecessor, self._claims), self._spawn)
        self._spawn(self._finish(entry, run, predecessor))

    async def _leave(self, request: Meta, statements: Sequence[CommittedStatement]) -> None:
        async with asyncio.TaskGroup() as group:
            for statement in statements:
                if not statement.is_final:
                    group.create_task(self._take_back(statement))
        # A process that is to stop may not have rolled back everything.
        if await self._dependencies.pause(0.0):
            await self._dependencies.store.release(request)

    async def _take_back(self, statement: CommittedStatement) -> None:
        """Wait until `statement` is rolled back, also after an earlier process."""
        entry = self._entry(statement.metadata.namespace, statement.spec.id)
        at_work = [run for run in entry.runs if run.has(statement)]
        for run in at_work:
            await run.ended.wait()
        if not at_work:
            await self._take_back_unread(entry, statement)
        self._tidy(entry)

    async def _take_back_unread(self, entry: StatementEntry, statement: CommittedStatement) -> None:
        store, pause = self._dependencies.store, self._dependencies.pause
        run = Run(
            [statement], self._dependencies, fence=lambda: None, adopted=True, confirm_first=False
        )
        run.interrupt(statement.key, Interruption.GONE)
        # Another request may carry one of the pods: its Run must not lose what it prepares.
        while others := self._claims.others(run):
            await others[0].ended.wait()
            await asyncio.sleep(0)  # `ended` is set a moment before the pods are released
        self._claims.claim(run)
        entry.runs.append(run)
        run.start(RunStart(run, (), Predecessor(None, store, pause), self._claims), self._spawn)
        await run.ended.wait()
        self._claims.release(run)
        entry.runs.remove(run)

    def _predecessor_of(self, statement: CommittedStatement) -> Predecessor:
        """Return the prerequisite of a Statement; a withdrawn Statement waits for none."""
        after = statement.spec.after if not statement.is_withdrawn else None
        entry = self._entry(statement.metadata.namespace, after) if after is not None else None
        return Predecessor(entry, self._dependencies.store, self._dependencies.pause)

    def _fence_of(
        self, statement: CommittedStatement, predecessor: Predecessor
    ) -> Callable[[], PodFailure | None]:
        labels, token = statement.metadata.labels, statement.fencing_token
        if statement.is_withdrawn:
            text = "the scheduler has withdrawn its Statement"
            withdrawn = PodFailure(BindFailureReason.WITHDRAWN, text, permanent=True)
            return lambda: withdrawn
        return lambda: self._fence.refusal(labels, token) or predecessor.refusal

    async def _finish(self, entry: StatementEntry, run: Run, predecessor: Predecessor) -> None:
        """Clean up after a Run; start again if one of its parts has changed meanwhile."""
        await run.ended.wait()
        predecessor.leave()
        if predecessor.entry is not None:
            self._tidy(predecessor.entry)
        self._claims.release(run)
        entry.runs.remove(run)
        changed = []
        for left in run.parts.values():
            part = entry.find(left)
            if part is None:
                continue
            part.refresh(left)
            if part.state in UNDER_A_RUN and entry.run_of(part) is None:
                self._apply(entry, part, Event.ENDED)
            if left.is_changed_in(part.statement):
                changed.append(part)
        entry.wake_waiters()
        if run.has_changed and changed:
            self._start_again(entry, changed)
        self._tidy(entry)

    def _start_again(self, entry: StatementEntry, changed: list[Part]) -> None:
        """Start a new Run for the newest states of the parts of a Run that has ended."""
        for part in changed:
            if part.state is State.ENDED:
                self._apply(entry, part, Event.CHANGED)
        # A part that has ended is not judged again, but the others cannot end without its change.
        if not entry.is_under_a_run:
            self._begin(entry)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
