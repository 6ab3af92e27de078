"""allocate: places pending gangs on idle room, or on room that is being released.

The gang of a job comes first, up to its minimum and as a whole. Its extra pods come one at a time,
in turn with other jobs. If one pod of a gang needs room that is being released, the whole gang
waits: all its places are promised for this cycle, and nothing is bound early.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum

from bindery.scheduler.actions.reserved_places import ReservedPlaces
from bindery.scheduler.actions.reserving import Reserver
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.jobs import Job, Task, TaskStatus
from bindery.scheduler.model.parts import Divider
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.placing.claims import Choice, choices
from bindery.scheduler.placing.idle import IdleRoom
from bindery.scheduler.planning.futures import take_out
from bindery.scheduler.planning.ranks import lay_out
from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.staging import keep_rooms, own_stages
from bindery.scheduler.planning.statement import Commit, Statement
from bindery.scheduler.planning.work_list import WorkList
from bindery.scheduler.plugins.interface.jobs import WaitsForRelease

_WAITS_FOR_RELEASE = "it waits for pods that are being deleted to go"


class Allocate:
    """Places jobs that fit and explains the others. `reserver`: reserves room for the others."""

    name = "allocate"
    tries_jobs = True
    fills = True

    def __init__(self, reserver: Reserver | None = None) -> None:
        self._reserver = reserver

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:
        """Serve every waiting job once, and again after each extra pod that finds a place.

        Jobs with promises or reservations of earlier cycles are served even after the deadline.
        """
        attempts = Attempts(session)
        waiting = [job for job in session.state.waiting.values() if job.pending]
        first = [job for job in waiting if session.memory.has_room_coming(job)]
        # Jobs with evictions get their places before the evicted pods request them again.
        yield from self._serve(attempts, session, WorkList(session, first), reserves=False)
        with session.statement() as kept:
            for job in first:
                _keep_promised(session, kept, job)
            yield from self._serve_others(attempts, session, turn, waiting)

    def _serve_others(
        self, attempts: "Attempts", session: Session, turn: Turn, waiting: Sequence[Job]
    ) -> Iterator[Commit]:
        """Serve the jobs of `waiting` that have no room promised."""
        unserved = [job for job in waiting if job.pending and not job.promised.total]
        members = turn.members(unserved)
        reserved = [job for job in unserved if job.key in turn.reserved]
        tried_before = [job for job in reserved if job.key not in turn.untried]
        yield from self._serve(attempts, session, WorkList(session, tried_before))
        newcomers = WorkList(session, turn.newcomers(unserved))
        yield from self._serve(
            attempts, session, turn.take_newcomers(newcomers), newcomers.put_back
        )
        work = WorkList(session, members)
        yield from self._serve(attempts, session, turn.take(work), work.put_back)
        if turn.is_cut:
            late = [job for job in reserved if job.key in turn.untried]
            yield from self._serve(attempts, session, WorkList(session, late))

    def _serve(
        self,
        attempts: "Attempts",
        session: Session,
        jobs: Iterable[Job],
        put_back: Callable[[Job], None] = lambda _: None,
        *,
        reserves: bool = True,
    ) -> Iterator[Commit]:
        """Serve each of `jobs`. `put_back`: serves a job again; `reserves`: may reserve room."""
        for job in jobs:
            served = attempts.serve(job)
            if isinstance(served, Commit):
                yield served
            elif reserves and served is UncommittedResult.WAITS and self._reserver is not None:
                with session.guarded(job):
                    self._reserver.consider(session, job)
            # A gang with promised places gets no extra pods before it is bound.
            has_gang = isinstance(served, Commit) or job.is_satisfied
            may_go_on = has_gang and session.timer.has_time(job)
            if served is not UncommittedResult.WAITS and may_go_on and job.pending:
                put_back(job)


def _keep_promised(session: Session, statement: Statement, job: Job) -> None:
    """Promise the pods of `job` the room that was made for them and is free or being freed.

    After interrupted evictions, as at the end of an earlier leader, this is only a part of the
    room. It must not go back to the evicted pods before the other victims are evicted.
    """
    rows = session.memory.promised_rows(job)
    for task in list(job.pending.values()) if rows and not job.promised.total else ():
        if (row := rows.get(task.uid)) is not None:
            with suppress(LedgerRefusalError):
                statement.pipeline(task, row)


class UncommittedResult(Enum):
    """The result for a job without a commit."""

    PROMISED = "promised"
    WAITS = "waits"


class Attempts:
    """Tries to place jobs, and remembers attempts that cannot succeed again in this session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.idle = IdleRoom(session, session.once(ReservedPlaces, ReservedPlaces).allow)

    def serve(self, job: Job) -> Commit | UncommittedResult:
        """Place the gang of `job`, or one extra pod; else note why it waits."""
        served: Commit | UncommittedResult = UncommittedResult.WAITS
        if job not in self._session.failed:
            with self._session.guarded(job):
                served = self._serve(job)
        return served

    def _serve(self, job: Job) -> Commit | UncommittedResult:
        session = self._session
        refusal = session.invalid(job)
        if refusal is not None:
            return self._refuse(job, refusal)
        served: Commit | UncommittedResult = UncommittedResult.WAITS
        if self.idle.has_refused_equals(job):
            return served
        for choice in choices(session, job):
            session.timer.check()
            if choice.starts:
                served = self._serve_stage(job, choice)
            else:
                served = self._serve_part(job, choice)
            if served is not UncommittedResult.WAITS:
                return served
        return served

    def _serve_stage(self, job: Job, choice: Choice) -> Commit | UncommittedResult:
        """Serve `choice` on the room that is kept for its stages."""
        session, names = self._session, own_stages(job, choice.starts)
        try:
            with (
                self.idle.without_bounds(),
                session.reservations.lifted(lambda each: each.job is job and each.stage in names),
            ):
                return self._serve_part(job, choice)
        finally:
            session.futures.clear()

    def _serve_part(self, job: Job, choice: Choice) -> Commit | UncommittedResult:
        """Place all pods of `choice` and commit or promise them, or place none."""
        served: Commit | UncommittedResult = UncommittedResult.WAITS
        try:
            served = self._plan(job, choice)
        finally:
            self.idle.end(is_kept=served is not UncommittedResult.WAITS)
        return served

    def _plan(self, job: Job, choice: Choice) -> Commit | UncommittedResult:
        session = self._session
        with session.statement() as statement:
            if not self.idle.place(choice, statement):
                return UncommittedResult.WAITS
            later = take_out(statement) if choice.starts else ()
            served = self._conclude(job, statement)
        if choice.starts and served is not UncommittedResult.WAITS:
            keep_rooms(session, job, choice.starts, later)
        return served

    def _conclude(self, job: Job, statement: Statement) -> Commit | UncommittedResult:
        """Commit or promise the pods of `job`, which `statement` has placed."""
        session = self._session
        if job.is_constrained:
            lay_out(session, job, statement, Divider(job).key)
        tasks = [operation.task for operation in statement.operations]
        if any(task.status is TaskStatus.PIPELINED for task in tasks) or any(
            gate.waits_for_release(session, job, tasks)
            for gate in session.plugins.of(WaitsForRelease)
        ):
            return self._promise(job, statement, tasks)
        if not session.calls.is_ready(job):
            return self._refuse(job, Refusal(JobReason.NOT_READY, "a plugin holds the job back"))
        session.refusals.pop(job, None)
        return Commit(job, statement.commit(), len(tasks) > 1)

    def _promise(self, job: Job, statement: Statement, tasks: Sequence[Task]) -> UncommittedResult:
        """Turn the placed gang into promises and keep them for this session."""
        session = self._session
        rows = [task.row for task in tasks]
        # The pods are placed in a second Statement, because an allocated pod cannot be promised.
        statement.discard()
        with session.statement() as promises:
            self._refuse(job, Refusal(JobReason.WAITS_FOR_RELEASE, _WAITS_FOR_RELEASE))
            try:
                for task, row in zip(tasks, rows, strict=True):
                    promises.pipeline(task, row)
            except LedgerRefusalError as refusal:
                return self._refuse(job, Refusal(JobReason.UNSCHEDULABLE, str(refusal)))
            if not session.calls.is_pipelined(job):
                return UncommittedResult.WAITS
            session.hold(promises)
        return UncommittedResult.PROMISED

    def _refuse(self, job: Job, refusal: Refusal) -> UncommittedResult:
        self._session.refusals[job] = refusal
        return UncommittedResult.WAITS
