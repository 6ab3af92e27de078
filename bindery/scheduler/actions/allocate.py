"""allocate: pending gangs onto idle room, or onto room that is being released.

First a job's gang up to its minimum, whole or not at all; then its extra pods, one at a time and in
turn with other jobs. A gang of which one pod must wait for room to be released waits as a whole:
its places are promised to it for this cycle and nothing is bound early.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from bindery.scheduler.actions.base import Commit, WorkList
from bindery.scheduler.actions.reserve import Reserver
from bindery.scheduler.explain import no_place_text, node_reasons
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model import gangs
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import Job, Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.placement import JobFinder
from bindery.scheduler.plugins.interface import Refusal
from bindery.scheduler.rounds import Turn
from bindery.scheduler.session import Session
from bindery.scheduler.statement import Statement


@dataclass(frozen=True, slots=True)
class _Placer:
    """How a wish places pods. `place`: all of them or none. `mark`: returns what goes back here."""

    place: Callable[[Sequence[Task]], bool]
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
        first = [job for job in waiting if session.has_room_coming(job)]
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
            self._refuse(job, Refusal("Unschedulable", "a plugin leaves it no nodes to try"))
        return Outcome.WAITS

    def _serve_in(self, job: Job, wish: _Wish, finder: JobFinder) -> Commit | Outcome:
        session = self._session
        with session.statement() as statement:

            def place(tasks: Sequence[Task]) -> bool:
                return self._place_chunk(job, statement, tasks, finder)

            def mark() -> Callable[[], None]:
                return partial(statement.rollback, statement.savepoint())

            if not wish(_Placer(place, mark)):
                return Outcome.WAITS
            tasks = [operation.task for operation in statement.operations]
            if any(task.status is TaskStatus.PIPELINED for task in tasks):
                return self._promise(job, statement, tasks)
            if not all(plugin.is_ready(session, job) for plugin in session.plugins.readiness):
                return self._refuse(job, Refusal("NotReady", "a plugin holds the job back"))
            session.refusals.pop(job, None)
            return Commit(job, statement.commit(), len(tasks) > 1)

    def _place_chunk(
        self, job: Job, statement: Statement, tasks: Sequence[Task], finder: JobFinder
    ) -> bool:
        """Place `tasks`, all of them or none; note why not."""
        session = self._session
        for task in tasks:
            problem = session.task_refusal(task)
            if problem is not None:
                text = f"pod {task.name}: {problem.message}"
                self._refuse(job, Refusal(problem.reason, text))
                return False
        for gate in session.plugins.capacity_gates:
            refusal = gate.over_capacity(session, job, tasks)
            if refusal is not None:
                self._refuse(job, refusal)
                return False
        shortage = self._known_shortage(tasks, finder)
        if shortage is None:
            savepoint = statement.savepoint()
            placed = self._place(statement, tasks, finder, session.promised_rows(job))
            if placed == len(tasks):
                return True
            shortage = self._shortage(tasks, finder, placed)
            session.give_up(job, statement.operations)
            statement.rollback(savepoint)
        self._refuse_short(job, tasks, shortage)
        return False

    def _place(
        self,
        statement: Statement,
        tasks: Sequence[Task],
        finder: JobFinder,
        kept: Mapping[Uid, int],
    ) -> int:
        """Place `tasks` in order until one fits nowhere; return how many were placed.

        `kept`: pod -> the node row where room is kept for it.
        """
        for placed, task in enumerate(tasks):
            later: list[int] = []
            while (place := finder.best_or_kept(task, kept.get(task.uid))) is not None:
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
                    break
            if place is None and not any(_is_promised(statement, task, row) for row in later):
                return placed
        return len(tasks)

    def _promise(self, job: Job, statement: Statement, tasks: Sequence[Task]) -> Outcome:
        """Turn the whole gang into promises and keep them for this session."""
        session = self._session
        rows = [task.row for task in tasks]
        statement.discard()
        with session.statement() as promises:
            self._refuse(job, Refusal("WaitsForRelease", _WAITS_FOR_RELEASE))
            try:
                for task, row in zip(tasks, rows, strict=True):
                    promises.pipeline(task, row)
            except LedgerRefusalError as refusal:
                return self._refuse(job, Refusal("Unschedulable", str(refusal)))
            if not all(plugin.is_pipelined(session, job) for plugin in session.plugins.pipelining):
                return Outcome.WAITS
            session.hold(promises)
        return Outcome.PROMISED

    # -- what does not fit ---------------------------------------------------------------------

    def _refuse(self, job: Job, refusal: Refusal) -> Outcome:
        self._session.refusals[job] = refusal
        return Outcome.WAITS

    def _refuse_short(self, job: Job, tasks: Sequence[Task], shortage: _Shortage) -> Outcome:
        text = shortage.text
        if len(tasks) > 1:
            text = f"{shortage.fitted} of {len(tasks)} pods fit; for the next one {text}"
        return self._refuse(job, Refusal("Unschedulable", text))

    def _known_shortage(self, tasks: Sequence[Task], finder: JobFinder) -> _Shortage | None:
        """Return why `tasks` cannot fit, if an earlier gang of equal pods has shown it."""
        shortage = self._shortages.get(tasks[0].shape)
        if shortage is None or len(tasks) <= shortage.fitted or not _are_equal(tasks, finder):
            return None
        return shortage

    def _shortage(self, tasks: Sequence[Task], finder: JobFinder, placed: int) -> _Shortage:
        """Return why no more than `placed` of `tasks` fit; called while these are placed."""
        session, task = self._session, tasks[placed]
        counts = node_reasons(session, session.placement, finder, task)
        shortage = _Shortage(placed, no_place_text(session, counts))
        if _are_equal(tasks, finder):
            self._shortages[task.shape] = shortage
        return shortage


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
    rest = session.minimum_pods(job)
    return not rest or placer.place(rest)


def _sub_group(session: Session, job: Job, group: Group, placer: _Placer) -> bool:
    def attempt(leaf: Group) -> bool:
        tasks = [task for task in session.pods_in_order(job) if task.sub_group == leaf.name]
        chunk = tasks[: job.lacking(leaf)]
        return len(chunk) == job.lacking(leaf) and placer.place(chunk)

    return gangs.satisfy(group, attempt, lambda each: each.is_satisfied(job.lacking), placer.mark)


def _is_promised(statement: Statement, task: Task, row: int) -> bool:
    """Promise `task` the node at `row`, if its room there will do."""
    try:
        statement.pipeline(task, row)
    except LedgerRefusalError:
        return False
    return True


def _one(task: Task, placer: _Placer) -> bool:
    return placer.place([task])


def _are_equal(tasks: Sequence[Task], finder: JobFinder) -> bool:
    """Return whether `tasks` are interchangeable with equal pods of other jobs."""
    shape = tasks[0].shape
    return finder.speaks_for_others(tasks[0]) and all(task.shape is shape for task in tasks)
