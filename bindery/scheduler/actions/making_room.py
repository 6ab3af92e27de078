"""The common part of reclaim, preempt and consolidation: one search for each waiting job."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from bindery.scheduler.actions.fruitless import FruitlessSearches
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.placing.claims import RoomClaim, choices
from bindery.scheduler.planning.attempt_timer import AttemptKind
from bindery.scheduler.planning.futures import take_out
from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.staging import keep_rooms
from bindery.scheduler.planning.statement import Commit, Statement
from bindery.scheduler.planning.work_list import WorkList
from bindery.scheduler.plugins.interface.jobs import VictimFilter
from bindery.scheduler.solver.bounds import exceeds_idle
from bindery.scheduler.solver.context import SearchContext
from bindery.scheduler.solver.making import RoomPlan, make_room
from bindery.scheduler.solver.rules import Rule, SparingRule, is_empty
from bindery.scheduler.solver.victims import VictimTable


class MakeRoom:
    """Evicts or moves running pods for waiting jobs, as `rule` allows."""

    tries_jobs = True
    fills = False

    def __init__(self, rule: Rule, sparing: Callable[[], SparingRule] | None = None) -> None:
        """`sparing`: makes a stricter rule for one search; its plans go before those of `rule`."""
        self._rule = rule
        self._sparing = sparing
        self._fruitless = FruitlessSearches()
        self.name = rule.name

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:
        """Try each waiting job once; yield the committed plans."""
        candidates = (
            job
            for job in session.state.waiting.values()
            if job not in session.failed and _may_try(session, job)
        )
        waiting = turn.members(candidates)
        if not waiting:
            return
        failed: _Failed = {}
        for job in turn.take(_in_turn(session, waiting)):
            made: Commit | _Outcome = _Outcome.NO_PLAN
            if job not in session.failed:
                with session.guarded(job, AttemptKind.MAKING_ROOM):
                    made = self._serve(session, job, failed)
                session.futures.clear()
            if isinstance(made, Commit):
                failed.clear()  # evictions change queues and nodes, so failed claims may fit now
                yield made

    def _serve(self, session: Session, job: Job, failed: "_Failed") -> "Commit | _Outcome":
        """Return the committed plan for `job`. `failed`: earlier claims without a plan."""
        for choice in choices(session, job):
            while (claim := choice.next()) is not None:
                tried = self._try(session, claim, failed)
                if tried.made is not _Outcome.NO_PLAN:
                    return tried.made
                if not choice.leave_out(claim, tried.lost):
                    break
        return _Outcome.NO_PLAN

    def could_serve(self, session: Session, job: Job) -> bool:
        """Return whether a plan exists now that makes room for `job`. Changes nothing."""
        could = False
        with session.guarded(job, AttemptKind.MAKING_ROOM):
            could = _may_try(session, job) and self._could_serve(session, job)
        session.futures.clear()
        return could

    def _could_serve(self, session: Session, job: Job) -> bool:
        for choice in choices(session, job):
            while (claim := choice.next()) is not None:
                found, lost = self._trial(session, claim)
                if found:
                    return True
                if not choice.leave_out(claim, lost):
                    break
        return False

    def _trial(self, session: Session, claim: RoomClaim) -> tuple[bool, Task | None]:
        """Return whether a plan for `claim` exists, or False and the pod without room."""
        if not self._may_claim(session, claim):
            return False, None
        with _own_room(session, claim), session.statement() as trial:
            found, lost = self._find(session, trial, claim)
            return found is not None, lost

    def _may_claim(self, session: Session, claim: RoomClaim) -> bool:
        return is_empty(self._rule.against_claim(session, claim))

    def _try(self, session: Session, claim: RoomClaim, failed: "_Failed") -> "_Tried":
        """Commit a plan for `claim`, unless the rule refuses or an equivalent claim has failed."""
        likeness = _likeness(session, claim) if failed else _UNKNOWN
        if likeness is not None and likeness in failed:
            return _Tried(_Outcome.NO_PLAN, _in_place_of(failed[likeness], claim))
        if not self._may_claim(session, claim):
            return _Tried(_Outcome.NO_PLAN, None)
        with _own_room(session, claim):
            tried = self._commit(session, claim)
        if tried.made is _Outcome.NO_PLAN:
            likeness = _likeness(session, claim) if likeness is _UNKNOWN else likeness
            if likeness is not None:
                failed[likeness] = _place_in(claim, tried.lost)
        return tried

    def _commit(self, session: Session, claim: RoomClaim) -> "_Tried":
        """Commit a plan for `claim` if there is one. The reservation of its job must be lifted."""
        with session.statement() as statement:
            found, lost = self._find(session, statement, claim)
            if found is None:
                return _Tried(_Outcome.NO_PLAN, lost)
            # Before the commit: a plan without its promises would evict for nothing.
            if not session.calls.is_pipelined(claim.job):
                return _Tried(_Outcome.HELD_BACK, None)
            _table(session).mark_gone(found.gone)
            session.await_release(claim.job)
            is_gang = len(claim.tasks) > 1
            if claim.starts:
                keep_rooms(session, claim.job, claim.starts, take_out(statement))
            return _Tried(Commit(claim.job, session.commit(statement), is_gang), None)

    def _find(
        self, session: Session, statement: Statement, claim: RoomClaim
    ) -> tuple[RoomPlan | None, Task | None]:
        """Return the plan that `statement` has then, or None and the pod without room.

        The pod is None if no search can name it.
        """
        # Moves free nothing in sum: a claim above the sum of idle room needs no search.
        if self._rule.moves_all:
            lost = exceeds_idle(session, claim)
            if lost is not None:
                return None, lost
            if self._fruitless.knows(session, claim):
                return None, self._fruitless.lost(claim)
        if self._sparing is not None:
            stricter = self._sparing()
            context = SearchContext(session, statement, claim, stricter, _table(session))
            found, lost = make_room(context)
            if found is not None and found.fits_now:
                return None, None
            if found is not None or not stricter.has_spared:
                return found, lost
        context = SearchContext(session, statement, claim, self._rule, _table(session))
        found, lost = make_room(context)
        if found is not None and found.fits_now:  # `allocate` holds it back for another reason
            found = None
        if found is None and self._rule.moves_all:
            self._fruitless.add(claim, lost)
        return found, lost


def _in_turn(session: Session, waiting: Sequence[Job]) -> Iterator[Job]:
    """Yield the jobs in the order of serving; jobs that were set aside come last."""
    is_late = session.memory.was_set_aside
    yield from WorkList(session, [job for job in waiting if not is_late(job)])
    yield from WorkList(session, [job for job in waiting if is_late(job)])


_Lost = tuple[Shape, str, int]
"""The pod of a claim without room: its shape, sub-group, and how many equal ones are before it."""
_Failed = dict[Hashable, _Lost | None]
"""Likeness of claims without a plan -> the pod that found no room; None if unknown."""
_UNKNOWN: Final = object()
"""The likeness of a claim that has not been compared with others, as none has failed."""


def _place_in(claim: RoomClaim, lost: Task | None) -> _Lost | None:
    """Return which pod of `claim` is `lost`, as it holds for claims that are alike."""
    if lost is None:
        return None
    return lost.shape, lost.sub_group, _equal(claim, lost.shape, lost.sub_group).index(lost)


def _in_place_of(lost: _Lost | None, claim: RoomClaim) -> Task | None:
    """Return the pod of `claim` that is in the place of `lost` in a claim that is alike."""
    if lost is None:
        return None
    shape, sub_group, before = lost
    equal = _equal(claim, shape, sub_group)
    return equal[before] if before < len(equal) else None


def _equal(claim: RoomClaim, shape: Shape, sub_group: str) -> list[Task]:
    return [t for t in claim.tasks if t.shape is shape and t.sub_group == sub_group]


class _Outcome(Enum):
    """The result of a claim without a commit."""

    NO_PLAN = "no plan"
    HELD_BACK = "held back"
    """There was a plan, but a plugin refused its promises."""


@dataclass(frozen=True, slots=True)
class _Tried:
    """The result of one claim."""

    made: Commit | _Outcome
    lost: Task | None
    """The pod for which no room can be made; None if unknown."""


def _own_room(session: Session, claim: RoomClaim) -> AbstractContextManager[None]:
    """Return a context in which `claim` may use the room that is reserved for its pods."""
    return session.reservations.lifted(lambda each: each.is_for(claim.job, claim.tasks))


def _table(session: Session) -> VictimTable:
    """Return the possible victims; the table is the same for all actions of a session."""
    return session.once(VictimTable, VictimTable)


def _likeness(session: Session, claim: RoomClaim) -> Hashable:
    """Return a key that equivalent claims share; None if a plugin may treat them differently."""
    job = claim.job
    sees_job = session.calls.are_tied(job, lambda: claim.tasks)
    if sees_job or session.plugins.of(VictimFilter):  # they see the job itself
        return None
    # Its other pods tie it to their domain.
    if job.is_constrained and (job.placed.total or job.promised.total):
        return None
    if session.placement.finder(claim.job).is_restricted or session.reservations.of(claim.job):
        return None
    if any(session.placement.is_filtered(task.shape) for task in claim.tasks):
        return None
    tree = job.tree if job.is_constrained else None
    shapes = Counter(
        (task.shape, task.is_preemptible, task.sub_group if job.tree is not None else "")
        for task in claim.tasks
    )
    constraints = job.topology, tree
    return session.queue_row(job), session.priority(job), constraints, frozenset(shapes.items())


def _may_try(session: Session, job: Job) -> bool:
    """Return whether `job` is valid and waits, and no pod of it has promised room."""
    with session.guarded(job):
        return _is_starving(session, job)
    return False


def _is_starving(session: Session, job: Job) -> bool:
    if not job.pending or job.promised.total or session.memory.has_tried_enough(job):
        return False
    if not session.calls.is_starving(job):
        return False
    return session.invalid(job) is None
