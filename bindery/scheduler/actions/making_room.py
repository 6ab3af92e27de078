"""The common part of reclaim, preempt and consolidation: one search for each waiting job."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice

import numpy as np

from bindery.scheduler.actions.fruitless import FruitlessSearches
from bindery.scheduler.ledgers.base import OperationKind
from bindery.scheduler.model.domains import Freeable
from bindery.scheduler.model.holdings import is_exclusive
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.planning.attempt_timer import AttemptKind
from bindery.scheduler.planning.by_size import largest_first
from bindery.scheduler.planning.futures import take_out
from bindery.scheduler.planning.next_pods import Barred
from bindery.scheduler.planning.pod_domains import PodDomains, pod_domains, pod_without_domain
from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.stage_rooms import keep_rooms
from bindery.scheduler.planning.statement import Commit, Plan, Statement
from bindery.scheduler.planning.work_list import WorkList
from bindery.scheduler.plugins.interface.jobs import VictimFilter
from bindery.scheduler.plugins.interface.nodes import CandidateDomains
from bindery.scheduler.solver.bounds import exceeds_idle
from bindery.scheduler.solver.claims import do_without, next_claim, starts
from bindery.scheduler.solver.context import SearchContext
from bindery.scheduler.solver.order import victims
from bindery.scheduler.solver.rearrange import Rearrangement
from bindery.scheduler.solver.rules import RoomClaim, Rule, SparingRule, is_empty
from bindery.scheduler.solver.search import Search
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
        barred = Barred(session.placement)
        while (claim := next_claim(session, job, barred)) is not None:
            tried = self._try(session, claim, failed)
            if tried.made is not _Outcome.NO_PLAN:
                return tried.made
            if not do_without(barred, claim, tried.lost):
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
        barred = Barred(session.placement)
        while (claim := next_claim(session, job, barred)) is not None:
            if not self._may_claim(session, claim):
                lost = None
            else:
                with (
                    _own_room(session, claim),
                    session.statement() as trial,
                ):
                    found, lost = self._find(session, trial, claim)
                    if found is not None:
                        return True
            if not do_without(barred, claim, lost):
                break
        return False

    def _may_claim(self, session: Session, claim: RoomClaim) -> bool:
        return is_empty(self._rule.against_claim(session, claim))

    def _try(self, session: Session, claim: RoomClaim, failed: "_Failed") -> "_Tried":
        """Commit a plan for `claim`, unless the rule refuses or an equivalent claim has failed."""
        likeness = _likeness(session, claim)
        if likeness is not None and likeness in failed:
            shape = failed[likeness]
            lost = next((task for task in claim.tasks if task.shape is shape), None)
            return _Tried(_Outcome.NO_PLAN, lost)
        if not self._may_claim(session, claim):
            return _Tried(_Outcome.NO_PLAN, None)
        with _own_room(session, claim):
            tried = self._commit(session, claim)
        if tried.made is _Outcome.NO_PLAN and likeness is not None:
            failed[likeness] = tried.lost.shape if tried.lost is not None else None
        return tried

    def _commit(self, session: Session, claim: RoomClaim) -> "_Tried":
        """Commit a plan for `claim` if there is one. The reservation of its job must be lifted."""
        # Before the plan, in which the groups of the claim have their pods.
        starting = starts(claim.job, [task for task in claim.tasks if not task.is_future])
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
            if starting:
                keep_rooms(session, claim.job, starting, take_out(statement))
            return _Tried(Commit(claim.job, session.commit(statement), is_gang), None)

    def _find(
        self, session: Session, statement: Statement, claim: RoomClaim
    ) -> tuple[Search | Rearrangement | None, Task | None]:
        """Return the search that wrote a plan into `statement`, or None and the pod without room.

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
            found, lost = self._find_by(stricter, session, statement, claim)
            if found is not None or not stricter.has_spared:
                return found, lost
        found, lost = self._find_by(self._rule, session, statement, claim)
        if found is None and self._rule.moves_all:
            self._fruitless.add(claim, lost)
        return found, lost

    def _find_by(
        self, rule: Rule, session: Session, statement: Statement, claim: RoomClaim
    ) -> tuple[Search | Rearrangement | None, Task | None]:
        """Return what `_find` returns, with victims that `rule` allows."""
        table, lost = _table(session), None
        freeable = _freeable(session, claim, rule)
        start = statement.savepoint()
        best: _Candidate | None = None

        def choices(tasks: Sequence[Task]) -> Iterator[PodDomains]:
            return pod_domains(session, claim.job, tasks, freeable=freeable)

        offered = list(islice(choices(claim.tasks), _MOST_CHOICES))
        if not offered:
            return None, pod_without_domain(claim.tasks, choices)
        for found in offered:
            exact = _with_domains(session, claim, found)
            if exact is not claim and not is_empty(rule.against_claim(session, exact)):
                continue
            context = SearchContext(session, statement, exact, rule, table, found)
            search, without = _search_in(context)
            lost = without or lost
            if search is None:
                continue
            if len(offered) == 1:
                return search, None
            plan = _Candidate(_cost(statement, found), search, statement.extract())
            statement.rollback(start)
            if best is None or _is_better(session, plan, best):
                best = plan
        if best is None:
            return None, lost
        statement.replay(best.plan)
        return best.search, None


def _with_domains(session: Session, claim: RoomClaim, found: PodDomains) -> RoomClaim:
    """Return `claim` with what its job holds beside its pods in the domains `found`."""
    beside = found.beside_pods(session, claim.job, claim.tasks)
    if beside is None:
        return claim
    held = session.account.of(claim.job)
    return replace(claim, beside_pods=beside if held is None else beside + held)


def _search_in(
    context: SearchContext,
) -> tuple[Search | Rearrangement | None, Task | None]:
    """Return what `_find` returns, for the domains of `context`."""
    start, lost = context.statement.savepoint(), None
    for search in _searches(context):
        if search.run():
            return search, None
        lost = search.lost or lost
        context.statement.rollback(start)
    tasks = largest_first(context.claim.tasks, context.session.cluster_total)
    if tasks:
        by_size = replace(context, claim=replace(context.claim, tasks=tuple(tasks)))
        for search in _searches(by_size):
            if search.run():
                return search, None
            context.statement.rollback(start)
    return None, lost


def _freeable(session: Session, claim: RoomClaim, rule: Rule) -> Freeable | None:
    """Return what the pods hold that may go or move for `claim`; None if it needs no domain."""
    job = claim.job
    if not job.is_constrained and not session.calls.are_tied(job, lambda: claim.tasks):
        return None
    table = _table(session)
    eligible = rule.eligible(session, claim, table)
    eligible = (eligible | rule.movable(session, claim, table)) & table.alive
    pods: Collection[Uid] = ()
    if is_exclusive(job):
        units = (table.units[index] for index in np.flatnonzero(eligible).tolist())
        pods = {task.uid for unit in units for task in unit.tasks}
    room = table.evictable(eligible, range(len(session.state.axis)))
    return Freeable(room, table.first_places(eligible), pods)


def _searches(context: SearchContext) -> Iterator[Search | Rearrangement]:
    """Yield the searches in order; plans that move protected pods come last.

    The Statement is rolled back between them.
    """
    if context.rule.moves_all:
        yield Rearrangement(context)
    has_idle = _has_idle(context.session, context.claim)
    for with_moves in (False, True) if has_idle else (False,):
        yield Search(context, with_moves=with_moves)


def _in_turn(session: Session, waiting: Sequence[Job]) -> Iterator[Job]:
    """Yield the jobs in the order of serving; jobs that were set aside come last."""
    is_late = session.memory.was_set_aside
    yield from WorkList(session, [job for job in waiting if not is_late(job)])
    yield from WorkList(session, [job for job in waiting if is_late(job)])


_Cost = tuple[int, int, int]
"""Number of pods that are killed, of pods that move, and the rank of the domains."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A plan in some choice of domains."""

    cost: _Cost
    search: Search | Rearrangement
    plan: Plan


def _cost(statement: Statement, found: PodDomains) -> _Cost:
    evicted = {o.task.uid for o in statement.operations if o.kind is OperationKind.EVICT}
    moved = {
        o.task.uid
        for o in statement.operations
        if o.kind is OperationKind.PIPELINE and o.task.uid in evicted
    }
    return len(evicted) - len(moved), len(moved), found.rank


def _is_better(session: Session, plan: _Candidate, than: _Candidate) -> bool:
    """Return whether `plan` is better.

    It costs less, its victims have lower priorities, or they go before the others in their order.
    """
    if plan.cost != than.cost:
        return plan.cost < than.cost
    table = _table(session)
    among = np.zeros(len(table.units), dtype=np.bool_)
    among[[*plan.search.gone, *than.search.gone]] = True
    place = {index: at for at, index in enumerate(victims(session, table, among))}
    one, other = (
        # The victim that would go last counts most, and priorities count before ages.
        (
            sorted(
                (session.priority(table.units[index].job) for index in each.search.gone),
                reverse=True,
            ),
            sorted((place[index] for index in each.search.gone), reverse=True),
        )
        for each in (plan, than)
    )
    return one < other


_MOST_CHOICES = 8
"""In how many domains a plan is sought; they are tried in the order of the room that they lack."""

_Failed = dict[Hashable, Shape | None]
"""Likeness of claims without a plan -> the shape that found no room; None if unknown."""


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


def _has_idle(session: Session, claim: RoomClaim) -> bool:
    """Return whether some of each requested resource is idle, so that victims could move."""
    idle = session.state.nodes.idle
    return all(bool((idle[index] > 0).any()) for index in claim.request)


def _likeness(session: Session, claim: RoomClaim) -> Hashable:
    """Return a key that equivalent claims share; None if a plugin may treat them differently."""
    job = claim.job
    sees_job = any(
        p.domains(session, job) is not None for p in session.plugins.of(CandidateDomains)
    )
    sees_job |= session.calls.are_tied(job, lambda: claim.tasks)
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
        (task.shape, task.is_preemptible, task.sub_group if tree is not None else "")
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
