"""allocate: pending gangs onto idle room, or onto room that is being released.

First a job's gang up to its minimum, whole or not at all; then its extra pods, one at a time and in
turn with other jobs. A gang of which one pod must wait for room to be released waits as a whole:
its places are promised to it for this cycle and nothing is bound early.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from bindery.scheduler.actions.reserving import Reserver
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model import gangs
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import Job, Task, TaskStatus
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning import next_pods
from bindery.scheduler.planning.explain import no_place_text, node_reasons
from bindery.scheduler.planning.next_pods import Barred, Wanted, kind
from bindery.scheduler.planning.placement import JobFinder
from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Commit, Statement
from bindery.scheduler.planning.work_list import WorkList
from bindery.scheduler.solver.moves import over_capacity, promise


@dataclass(frozen=True, slots=True)
class _Placer:
    """How a wish places pods. `place`: all that are wanted or none. `mark`: returns what goes back
    here.
    """

    place: Callable[[Wanted], bool]
    mark: Callable[[], Callable[[], None]]


_Wish = Callable[[_Placer], bool]
"""Places what shall be placed together; returns whether it all was."""

_WAITS_FOR_RELEASE = "it waits for pods that are being deleted to go"


class Allocate:
    """Places what fits; explains what does not. `reserver`: keeps room for what does not fit."""

    name = "allocate"
    tries_jobs = True
    fills = True

    def __init__(self, reserver: Reserver | None = None) -> None:
        self._reserver = reserver

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:
        """Serve every waiting job once, and again for each extra pod that finds a place.

        What was promised or reserved in earlier cycles is served whatever the time.
        """
        attempts = Attempts(session)
        waiting = [job for job in session.state.waiting.values() if job.pending]
        first = [job for job in waiting if session.memory.has_room_coming(job)]
        # Those for which others were evicted get their places before these ask for them again.
        yield from self._serve(attempts, session, WorkList(session, first), reserves=False)
        unserved = [job for job in waiting if job.pending and not job.promised.total]
        members = turn.members(unserved)
        reserved = [job for job in unserved if job.key in turn.reserved]
        tried_before = [job for job in reserved if job.key not in turn.untried]
        yield from self._serve(attempts, session, WorkList(session, tried_before))
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
        """Serve each of `jobs`. `put_back`: serves a job again; `reserves`: keep room for it."""
        for job in jobs:
            served = attempts.serve(job)
            if isinstance(served, Commit):
                yield served
            elif reserves and served is Outcome.WAITS and self._reserver is not None:
                with session.guarded(job):
                    self._reserver.consider(session, job)
            # A gang that is only promised its places gets no extra pods before it has them.
            has_gang = isinstance(served, Commit) or job.is_satisfied
            if served is not Outcome.WAITS and has_gang and job.pending:
                put_back(job)


class Outcome(Enum):
    """What became of a job that was not committed."""

    PROMISED = "promised"
    WAITS = "waits"


@dataclass(frozen=True, slots=True)
class _Shortage:
    """How many equal pods fitted when a gang of them last failed, and why no more."""

    fitted: int
    text: str


class Attempts:
    """Tries to place jobs, and remembers what cannot succeed again in this session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._shortages: dict[Shape, _Shortage] = {}
        """Allocate only takes room: until the session ends no more than that will fit."""

    def serve(self, job: Job) -> Commit | Outcome:
        """Place the gang of `job`, or one extra pod of it; note why it waits otherwise."""
        served: Commit | Outcome = Outcome.WAITS
        if job not in self._session.failed:
            with self._session.guarded(job):
                served = self._serve(job)
        return served

    def _serve(self, job: Job) -> Commit | Outcome:
        session = self._session
        for validator in session.plugins.validity:
            refusal = validator.invalid(session, job)
            if refusal is not None:
                return self._refuse(job, refusal)
        served: Commit | Outcome = Outcome.WAITS
        for wish in _wishes(session, job):
            served = self._serve_wish(job, wish)
            if served is not Outcome.WAITS:
                break
        return served

    def _serve_wish(self, job: Job, wish: _Wish) -> Commit | Outcome:
        """Place all that `wish` asks for, or nothing."""
        session, tried = self._session, False
        for domain in session.domains(job):
            served = self._serve_in(job, wish, session.placement.finder(job, domain))
            if served is not Outcome.WAITS:
                return served
            tried = True
        if not tried:
            self._refuse(
                job, Refusal(JobReason.UNSCHEDULABLE, "a plugin leaves it no nodes to try")
            )
        return Outcome.WAITS

    def _serve_in(self, job: Job, wish: _Wish, finder: JobFinder) -> Commit | Outcome:
        session = self._session
        with session.statement() as statement:

            def place(wanted: Wanted) -> bool:
                return self._place_chunk(job, statement, wanted, finder)

            def mark() -> Callable[[], None]:
                return partial(statement.rollback, statement.savepoint())

            if not wish(_Placer(place, mark)):
                return Outcome.WAITS
            tasks = [operation.task for operation in statement.operations]
            if any(task.status is TaskStatus.PIPELINED for task in tasks) or any(
                gate.waits_for_release(session, job, tasks)
                for gate in session.plugins.release_gates
            ):
                return self._promise(job, statement, tasks)
            if not all(plugin.is_ready(session, job) for plugin in session.plugins.readiness):
                return self._refuse(
                    job, Refusal(JobReason.NOT_READY, "a plugin holds the job back")
                )
            session.refusals.pop(job, None)
            return Commit(job, statement.commit(), len(tasks) > 1)

    def _place_chunk(
        self, job: Job, statement: Statement, wanted: Wanted, finder: JobFinder
    ) -> bool:
        """Place as many pods as are `wanted`, or none; note why not.

        Greedy: a pod that cannot be placed is left out with all that are alike, and the next ones
        are tried instead, for as long as they are enough.
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
            self._refuse_short(job, asked, problem)
        elif problem is not None:
            self._refuse(job, problem)
        return False

    def _advance(self, attempt: "_Attempt", tasks: Sequence[Task]) -> "_Problem | None":
        """Place `tasks` in order until one cannot be; bar that and return what is the matter."""
        session, job, barred = self._session, attempt.job, attempt.barred
        refusals = [(task, session.task_refusal(task)) for task in tasks]
        refused = [(task, refusal) for task, refusal in refusals if refusal is not None]
        for task, _ in refused:
            barred.add(task)
        if refused:
            task, refusal = refused[0]
            return Refusal(refusal.reason, f"pod {task.name}: {refusal.message}")
        over = over_capacity(session, job, tasks)
        if over is not None:
            attempt.bar_what_exceeds(tasks, lambda some: over_capacity(session, job, some) is None)
            return over
        shortage = self._known_shortage(attempt, tasks)
        if shortage is not None:
            barred.add_shape(tasks[0])
            return shortage
        kept = session.memory.promised_rows(job)
        for task in tasks:
            if not _is_placed(attempt.statement, task, attempt.finder, kept.get(task.uid)):
                barred.add_shape(task)
                return task
        return None

    def _promise(self, job: Job, statement: Statement, tasks: Sequence[Task]) -> Outcome:
        """Turn the whole gang into promises and keep them for this session."""
        session = self._session
        rows = [task.row for task in tasks]
        statement.discard()
        with session.statement() as promises:
            self._refuse(job, Refusal(JobReason.WAITS_FOR_RELEASE, _WAITS_FOR_RELEASE))
            try:
                for task, row in zip(tasks, rows, strict=True):
                    promises.pipeline(task, row)
            except LedgerRefusalError as refusal:
                return self._refuse(job, Refusal(JobReason.UNSCHEDULABLE, str(refusal)))
            if not all(plugin.is_pipelined(session, job) for plugin in session.plugins.pipelining):
                return Outcome.WAITS
            session.hold(promises)
        return Outcome.PROMISED

    # -- what does not fit ---------------------------------------------------------------------

    def _refuse(self, job: Job, refusal: Refusal) -> Outcome:
        self._session.refusals[job] = refusal
        return Outcome.WAITS

    def _refuse_short(self, job: Job, asked: int, shortage: _Shortage) -> Outcome:
        text = shortage.text
        if asked > 1:
            text = f"{shortage.fitted} of {asked} pods fit; for the next one {text}"
        return self._refuse(job, Refusal(JobReason.UNSCHEDULABLE, text))

    def _known_shortage(self, attempt: "_Attempt", tasks: Sequence[Task]) -> _Shortage | None:
        """Return why `tasks` cannot fit, if an earlier gang of equal pods has shown it."""
        shortage = self._shortages.get(tasks[0].shape)
        if shortage is None or not attempt.is_of_equals:
            return None
        is_known = len(attempt.statement.operations) + len(tasks) > shortage.fitted
        return shortage if is_known else None

    def _shortage(self, attempt: "_Attempt", task: Task, placed: int) -> _Shortage:
        """Return why `task` does not fit; called while as many as fit, `placed`, are placed."""
        session = self._session
        counts = node_reasons(session, session.placement, attempt.finder, task)
        shortage = _Shortage(placed, no_place_text(session, counts))
        if attempt.is_of_equals:
            fitted = len(attempt.statement.operations)
            self._shortages[task.shape] = replace(shortage, fitted=fitted)
        return shortage


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt to place what is wanted of a job."""

    job: Job
    statement: Statement
    wanted: Wanted
    finder: JobFinder
    barred: Barred

    @property
    def is_of_equals(self) -> bool:
        """Whether all its pods, and all placed before, are like equal pods of other jobs."""
        first, *others = self.wanted.candidates
        placed = (operation.task for operation in self.statement.operations)
        return self.finder.speaks_for_others(first) and all(
            task.shape is first.shape for task in (*others, *placed)
        )

    def bar_what_exceeds(
        self, tasks: Sequence[Task], may_have: Callable[[Sequence[Task]], bool]
    ) -> None:
        """Bar the first of `tasks` with which they are more than the job `may_have`, and those
        after it that are alike; all of them if no others could take their place.
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
"""Why an attempt cannot place a pod: what is said against it, or which one has no node."""


def _wishes(session: Session, job: Job) -> Iterator[_Wish]:
    """Yield what `job` asks for next: its gang; or when it has that, one more of anything."""
    if not job.is_satisfied:
        yield partial(_gang, session, job)
        return
    if job.tree is not None:
        for group in gangs.optional(job.tree, job.lacking):
            yield partial(_sub_group, session, job, group)
    tasks = session.pods_in_order(job)
    lacking = {leaf.name for leaf in job.tree.leaves() if job.lacking(leaf) > 0} if job.tree else ()
    # Of equal pods the first speaks for all.
    first_of_kind = {
        task.uid if session.placement.is_filtered(task.shape) else task.shape: task
        for task in reversed(tasks)
        if task.sub_group not in lacking
    }
    for task in sorted(first_of_kind.values(), key=tasks.index):
        yield partial(_one, task)


def _gang(session: Session, job: Job, placer: _Placer) -> bool:
    """Place what the gang lacks: its sub-groups, then its roles and the rest of its minimum."""
    if job.tree is not None and not _sub_group(session, job, job.tree, placer):
        return False
    return placer.place(next_pods.of_gang(session, job))


def _sub_group(session: Session, job: Job, group: Group, placer: _Placer) -> bool:
    def attempt(leaf: Group) -> bool:
        return placer.place(next_pods.of_leaf(session, job, leaf))

    return gangs.satisfy(group, attempt, lambda each: each.is_satisfied(job.lacking), placer.mark)


def _one(task: Task, placer: _Placer) -> bool:
    return placer.place(next_pods.of_one(task))


def _is_placed(statement: Statement, task: Task, finder: JobFinder, kept_row: int | None) -> bool:
    """Place `task` on the best node that all ledgers agree to; return whether there is one.

    `kept_row`: the node where room is kept for it.
    """
    later: list[int] = []
    while (place := finder.best_or_kept(task, kept_row)) is not None:
        try:
            if place.fits_now:
                statement.allocate(task, place.row)
            else:
                statement.pipeline(task, place.row)
        except LedgerRefusalError as refusal:
            finder.exclude(task, place.row, str(refusal))
            if refusal.fits_later:
                later.append(place.row)
        else:
            return True
    return any(promise(statement, task, row) for row in later)
