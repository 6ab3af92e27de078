"""allocate: places pending gangs on idle room, or on room that is being released.

The gang of a job comes first, up to its minimum and as a whole. Its extra pods come one at a time,
in turn with other jobs. If one pod of a gang needs room that is being released, the whole gang
waits: all its places are promised for this cycle, and nothing is bound early.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum

from bindery.scheduler.actions.reserved_places import TAKEN, ReservedPlaces
from bindery.scheduler.actions.reserving import Reserver
from bindery.scheduler.actions.wishes import Placing, Wish, wishes
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.domains import Domain
from bindery.scheduler.model.holdings import is_elastic
from bindery.scheduler.model.jobs import Job, Task, TaskStatus
from bindery.scheduler.model.parts import Divider
from bindery.scheduler.model.reasons import ABOVE_LIMIT_ALONE, JobReason
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.by_size import largest_first
from bindery.scheduler.planning.explain import no_place_text, node_reasons
from bindery.scheduler.planning.futures import take_out
from bindery.scheduler.planning.hopeless import EmptyNodes
from bindery.scheduler.planning.nesting import Nest
from bindery.scheduler.planning.next_pods import Barred, WantedPods, kind
from bindery.scheduler.planning.placement import JobFinder
from bindery.scheduler.planning.ranks import lay_out
from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.stage_rooms import keep_rooms, later_pods, own_stages
from bindery.scheduler.planning.staging import gathering
from bindery.scheduler.planning.statement import Commit, Savepoint, Statement
from bindery.scheduler.planning.work_list import WorkList
from bindery.scheduler.plugins.interface.jobs import WaitsForRelease
from bindery.scheduler.solver.moves import promise

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


@dataclass(frozen=True, slots=True)
class _Shortage:
    """How many equal pods fitted when a gang of them failed, and why no more."""

    fitted: int
    text: str


class Attempts:
    """Tries to place jobs, and remembers attempts that cannot succeed again in this session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._shortages: dict[Shape, _Shortage] = {}
        """Allocate only takes room, so these bounds hold until the session ends."""
        self._unfit: dict[Shape, str] = {}
        """Why no node takes a pod, even if it is empty."""
        self._over_quota: list[Task] = []
        """Extra pods that are planned as preemptible, as they are over the quota."""
        self._reserved_places = session.once(ReservedPlaces, ReservedPlaces)

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
        for wish in wishes(session, job):
            session.timer.check()
            served = self._serve_stage(job, wish) if wish.starts else self._serve_wish(job, wish)
            if served is not UncommittedResult.WAITS:
                return served
        self._note_gathering(job)
        return served

    def _serve_stage(self, job: Job, wish: Wish) -> Commit | UncommittedResult:
        """Serve `wish` on the room that is kept for its stages."""
        session, names = self._session, own_stages(job, wish.starts)
        known, self._shortages = self._shortages, {}  # they are bounds without the kept room
        try:
            with session.reservations.lifted(lambda each: each.job is job and each.stage in names):
                return self._serve_wish(job, wish)
        finally:
            self._shortages = known
            session.futures.clear()

    def _note_gathering(self, job: Job) -> None:
        """Note why a later stage waits of which not all pods exist."""
        found = gathering(job) if job.stages and job not in self._session.refusals else None
        if found is not None:
            stage, count = found
            text = f"{count} pods of its later stage {stage.name} exist, which are too few"
            self._refuse(job, Refusal(JobReason.NOT_ENOUGH_PODS, text))

    def _serve_wish(self, job: Job, wish: Wish) -> Commit | UncommittedResult:
        """Place all pods of `wish`, or none, in the first domain that has room."""
        session, tried = self._session, False
        self._take_over_quota_back()

        def pods() -> Sequence[Task]:
            return [*session.next_pods(job), *later_pods(session, job, wish.starts)]

        for domain in session.calls.job_domains(job, pods):
            served = self._serve_in(job, wish, domain)
            if served is not UncommittedResult.WAITS:
                self._over_quota.clear()
                return served
            self._take_over_quota_back()
            tried = True
        if not tried:
            self._refuse(
                job, Refusal(JobReason.UNSCHEDULABLE, "a plugin leaves it no nodes to try")
            )
        return UncommittedResult.WAITS

    def _serve_in(self, job: Job, wish: Wish, domain: Domain) -> Commit | UncommittedResult:
        session = self._session
        with session.statement() as statement:
            nest = Nest(session, job, statement, domain)
            if not wish.place(Placing(session, job, statement, nest, self.place)):
                self._note_missing_domain(job, nest)
                return UncommittedResult.WAITS
            later = take_out(statement) if wish.starts else ()
            if job.is_constrained:
                lay_out(session, job, statement, Divider(job).key)
            tasks = [operation.task for operation in statement.operations]
            if any(task.status is TaskStatus.PIPELINED for task in tasks) or any(
                gate.waits_for_release(session, job, tasks)
                for gate in session.plugins.of(WaitsForRelease)
            ):
                promised = self._promise(job, statement, tasks)
                if promised is UncommittedResult.PROMISED and wish.starts:
                    keep_rooms(session, job, wish.starts, later)
                return promised
            if not session.calls.is_ready(job):
                return self._refuse(
                    job, Refusal(JobReason.NOT_READY, "a plugin holds the job back")
                )
            session.refusals.pop(job, None)
            committed = Commit(job, statement.commit(), len(tasks) > 1)
            if wish.starts:
                keep_rooms(session, job, wish.starts, later)
            return committed

    def _note_missing_domain(self, job: Job, nest: Nest) -> None:
        """Refuse `job` because a group of its pods has no domain to try, if that is the reason."""
        ask = nest.take_ask()
        if ask is not None:
            self._refuse(job, self._session.calls.no_domain(ask))

    def place(self, job: Job, statement: Statement, wanted: WantedPods, finder: JobFinder) -> bool:
        """Place all `wanted` pods and return True, or place none and note why.

        Greedy: a pod that cannot be placed is barred with all equal pods, and the next candidates
        are tried until too few are left. At last the first candidates are tried again by size.
        """
        attempt = _Attempt(job, statement, wanted, finder, Barred(self._session.placement))
        savepoint, problem = statement.savepoint(), None
        tasks = wanted.next(attempt.barred)
        asked = len(tasks or ())
        while tasks:
            stopped = self._advance(attempt, tasks)
            problem = problem or stopped
            tasks = wanted.next(attempt.barred)
        if tasks is not None:
            return True
        if isinstance(problem, Task):
            placed = len(statement.operations) - savepoint
            problem = self._shortage(attempt, problem, placed)
            self._session.give_up(job, statement.operations)
        statement.rollback(savepoint)
        if isinstance(problem, _Shortage):
            if self._place_by_size(attempt):
                return True
            self._refuse_short(job, asked, problem)
        elif problem is not None:
            self._refuse(job, problem)
        return False

    def _place_by_size(self, attempt: "_Attempt") -> bool:
        """Place the first candidates of `attempt`, the largest first, or none; return whether."""
        session, statement = self._session, attempt.statement
        tasks = largest_first(attempt.wanted.all() or (), session.cluster_total)
        if not tasks or session.calls.over_capacity(attempt.job, tasks) is not None:
            return False
        kept, savepoint = session.memory.promised_rows(attempt.job), statement.savepoint()
        for task in tasks:
            is_refused = session.calls.task_refusal(task) is not None
            if is_refused or not self._is_placed(attempt, task, kept.get(task.uid)):
                statement.rollback(savepoint)
                return False
        return True

    def _advance(self, attempt: "_Attempt", tasks: Sequence[Task]) -> "_Problem | None":
        """Place `tasks` in order; bar the first that cannot be placed and return the problem."""
        session, job, barred = self._session, attempt.job, attempt.barred
        session.timer.check()
        refusals = [(task, session.calls.task_refusal(task)) for task in tasks]
        refused = [(task, refusal) for task, refusal in refusals if refusal is not None]
        for task, _ in refused:
            barred.add(task)
        if refused:
            task, refusal = refused[0]
            return Refusal(refusal.reason, f"pod {task.name}: {refusal.message}")
        over = session.calls.over_capacity(job, tasks)
        if over is not None and self._may_run_over_quota(job, tasks, over):
            over = session.calls.over_capacity(job, tasks)
        if over is not None:
            unfit = None if ABOVE_LIMIT_ALONE in over.message else self._never_fits(tasks)
            if unfit is not None:  # to wait for the queue would not help
                barred.add_shape(unfit)
                text = f"{self._unfit_text(attempt, unfit)}; besides, {over.message}"
                return Refusal(JobReason.FITS_NO_NODE, text)
            attempt.bar_excess(tasks, lambda some: session.calls.over_capacity(job, some) is None)
            return over
        # Saves an attempt for each of many equal gangs in a full cluster.
        shortage = self._known_shortage(attempt, tasks)
        if shortage is not None:
            barred.add_shape(tasks[0])
            return shortage
        kept = session.memory.promised_rows(job)
        for task in tasks:
            if not self._is_placed(attempt, task, kept.get(task.uid)):
                barred.add_shape(task)
                return task
        return None

    def _may_run_over_quota(self, job: Job, tasks: Sequence[Task], over: Refusal) -> bool:
        """Let extra pods of a non-preemptible gang be preemptible where they exceed the quota.

        The gang keeps its minimum in the quota; a pod's own annotation comes first.
        """
        is_extra = is_elastic(job) and job.is_satisfied
        if over.reason != JobReason.NON_PREEMPTIBLE_OVER_QUOTA or not is_extra:
            return False
        pinned = [task for task in tasks if not task.is_preemptible]
        if any(task.own_preemptible is not None for task in pinned):
            return False
        for task in pinned:
            task.is_preemptible = True
        self._over_quota += pinned
        return True

    def _take_over_quota_back(self) -> None:
        for task in self._over_quota:
            task.is_preemptible = False
        self._over_quota.clear()

    def _never_fits(self, tasks: Sequence[Task]) -> Task | None:
        """Return the first of `tasks` that no node takes, even if it is empty; None if all fit."""
        empty = self._session.once(EmptyNodes, EmptyNodes)
        return next((task for task in tasks if not empty.take(task.shape)), None)

    def _unfit_text(self, attempt: "_Attempt", task: Task) -> str:
        """Return why no node takes `task`."""
        text = self._unfit.get(task.shape)
        if text is None:
            counts = node_reasons(self._session, self._session.placement, attempt.finder, task)
            text = self._unfit[task.shape] = no_place_text(self._session, counts)
        return text

    def _is_placed(self, attempt: "_Attempt", task: Task, kept_row: int | None) -> bool:
        """Place `task` on the best node that all ledgers accept; return False if there is none.

        `kept_row`: the node with room that was promised to it earlier.
        """
        statement, finder, later = attempt.statement, attempt.finder, list[int]()
        while (place := finder.best_or_kept(task, kept_row)) is not None:
            try:
                if place.fits_now and place.row not in attempt.opening:
                    statement.allocate(task, place.row)
                else:
                    statement.pipeline(task, place.row)
            except LedgerRefusalError as refusal:
                finder.exclude(task, place.row, str(refusal))
                if refusal.fits_later:  # tried last: idle room elsewhere is better than a promise
                    later.append(place.row)
            else:
                if self._reserved_places.allow(task):
                    return True
                statement.rollback(Savepoint(statement.savepoint() - 1))
                finder.exclude(task, place.row, TAKEN)
        if not any(promise(statement, task, row) for row in later):
            return False
        # Equal pods that follow are promised such nodes, too.
        attempt.opening.update(later)
        for row in later:
            finder.readmit(task, row)
        return True

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

    # -- refusals ------------------------------------------------------------------------------

    def _refuse(self, job: Job, refusal: Refusal) -> UncommittedResult:
        self._session.refusals[job] = refusal
        return UncommittedResult.WAITS

    def _refuse_short(self, job: Job, asked: int, shortage: _Shortage) -> UncommittedResult:
        text = shortage.text
        if asked > 1:
            text = f"{shortage.fitted} of {asked} pods fit; for the next one {text}"
        return self._refuse(job, Refusal(JobReason.UNSCHEDULABLE, text))

    def _known_shortage(self, attempt: "_Attempt", tasks: Sequence[Task]) -> _Shortage | None:
        """Return why `tasks` cannot fit, if an earlier gang of equal pods has failed."""
        shortage = self._shortages.get(tasks[0].shape)
        if shortage is None or not attempt.is_of_equals:
            return None
        is_known = len(attempt.statement.operations) + len(tasks) > shortage.fitted
        return shortage if is_known else None

    def _shortage(self, attempt: "_Attempt", task: Task, placed: int) -> _Shortage:
        """Return why `task` does not fit, while the `placed` pods that fit are still placed."""
        session = self._session
        counts = node_reasons(session, session.placement, attempt.finder, task)
        shortage = _Shortage(placed, no_place_text(session, counts))
        if attempt.is_of_equals:
            fitted = len(attempt.statement.operations)
            self._shortages[task.shape] = replace(shortage, fitted=fitted)
        return shortage


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt to place the wanted pods of a job."""

    job: Job
    statement: Statement
    wanted: WantedPods
    finder: JobFinder
    barred: Barred
    opening: set[int] = field(default_factory=set)
    """Rows that a ledger opens only after releases."""

    @property
    def is_of_equals(self) -> bool:
        """Whether all its pods have one shape and no wishes: the result then holds for any job."""
        first, *others = self.wanted.candidates
        placed = (operation.task for operation in self.statement.operations)
        return self.finder.speaks_for_others(first) and all(
            task.shape is first.shape for task in (*others, *placed)
        )

    def bar_excess(self, tasks: Sequence[Task], may_have: Callable[[Sequence[Task]], bool]) -> None:
        """Bar the first of `tasks` beyond what the job `may_have`, and equal pods after it.

        If there are no other candidates, bar all of `tasks`.
        """
        pending = [t for t in self.wanted.candidates if t.status is TaskStatus.PENDING]
        if len(pending) == len(tasks) or len({kind(task) for task in pending}) == 1:
            for task in pending:
                self.barred.add(task)
            return
        counts = range(1, len(tasks))  # with all of them they are too many
        at = bisect_left(counts, True, key=lambda count: not may_have(tasks[:count]))
        first = tasks[at]
        for task in pending[pending.index(first) :]:
            if kind(task) == kind(first):
                self.barred.add(task)


_Problem = Refusal | _Shortage | Task
"""Why an attempt failed: a refusal, a known shortage, or the pod without a node."""
