"""Making room for a claim: the best plan of several, each in other domains of its pods.

A plan evicts or moves victims that a rule allows. Plans are compared by what they cost the victims.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from bindery.scheduler.ledgers.base import OperationKind
from bindery.scheduler.model.domains import Freeable
from bindery.scheduler.model.holdings import is_exclusive
from bindery.scheduler.model.jobs import Task, Uid
from bindery.scheduler.placing.best import best_plan
from bindery.scheduler.placing.by_size import largest_first
from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.placing.domains import (
    ANYWHERE,
    DomainChoices,
    DomainFinders,
    PodDomains,
    need_domains,
)
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Savepoint, promise
from bindery.scheduler.solver.context import SearchContext
from bindery.scheduler.solver.few import FewVictims
from bindery.scheduler.solver.order import victims
from bindery.scheduler.solver.rearrange import Rearrangement
from bindery.scheduler.solver.rules import NoVictims, is_empty
from bindery.scheduler.solver.search import Search

_MOST_CHOICES = 8
"""In how many domains a plan is sought; they are tried in the order of the room that they lack."""


def make_room(context: SearchContext) -> tuple["RoomPlan | None", Task | None]:
    """Leave the best plan in the Statement and return it, or None and the pod without room.

    The pod is None if no search can name it.
    """
    session, claim = context.session, context.claim
    freeable = _freeable(context)
    if freeable is not None:  # the order of domains is another with victims than without
        without = replace(context, rule=NoVictims())
        domains = DomainChoices(session, claim.job)
        room = _VictimRoom(without, domains)
        offered = islice(domains.of(claim.tasks), _MOST_CHOICES)
        best = best_plan(context.statement, offered, room)
        if best is not None:
            return best, None
    domains = DomainChoices(session, claim.job, freeable)
    room = _VictimRoom(context, domains)
    best = best_plan(context.statement, islice(domains.of(claim.tasks), _MOST_CHOICES), room)
    if not room.has_tried:
        return None, domains.lost(claim.tasks)
    return (best, None) if best is not None else (None, room.lost)


def _freeable(context: SearchContext) -> Freeable | None:
    """Return what the pods hold that may go or move for the claim; None if it needs no domain."""
    session, claim, rule, table = context.session, context.claim, context.rule, context.table
    job = claim.job
    if not need_domains(session, job, claim.tasks):
        return None
    eligible = rule.eligible(session, claim, table)
    eligible = (eligible | rule.movable(session, claim, table)) & table.alive
    pods: Collection[Uid] = ()
    if is_exclusive(job):
        units = (table.units[index] for index in np.flatnonzero(eligible).tolist())
        pods = {task.uid for unit in units for task in unit.tasks}
    room = table.evictable(eligible, range(len(session.state.axis)))
    return Freeable(room, table.first_places(eligible), pods)


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """A plan in some choice of domains."""

    gone: tuple[int, ...]
    """The units that are evicted, in order."""
    killed: int
    """Number of pods without another place."""
    moved: int
    """Number of pods with another place."""
    ranks: tuple[int, bool, int]
    """Rank of the domain of all pods, whether pods wait for releases, sum of all ranks."""
    fits_now: bool
    """Whether the search found all room idle, as `allocate` does, so that no pod has to go."""
    is_ideal: bool
    """Whether its pods need no domain, so that there is no other choice."""


class _VictimRoom:
    """The room that victims of one rule leave to a claim, in each of `choices`."""

    def __init__(self, context: SearchContext, choices: DomainChoices) -> None:
        self._context = context
        self._choices = choices
        self.has_tried = False
        """Whether there were domains to try."""
        self.lost: Task | None = None
        """The pod without room; None if no search can name it."""

    def plan(self, domains: PodDomains) -> RoomPlan | None:
        """Write a plan in `domains`."""
        self.has_tried = True
        claim, rule = _with_domains(self._context, domains), self._context.rule
        if claim is not self._context.claim and not is_empty(
            rule.against_claim(self._context.session, claim)
        ):
            return None
        context = replace(self._context, domains=domains, claim=claim)
        search, lost = self._search(context)
        if search is None:
            self.lost = lost or self.lost
            if lost is not None:
                self._choices.reject(lost)
            return None
        is_alone = search.gone and not _takes_room(context) and _stands_alone(context)
        gone = () if is_alone else tuple(search.gone)
        operations = context.statement.operations
        evicted = {o.task.uid for o in operations if o.kind is OperationKind.EVICT}
        promised = (o.task.uid for o in operations if o.kind is OperationKind.PIPELINE)
        moved = evicted.intersection(promised)
        waits = bool(search.gone) or search.waits
        return RoomPlan(
            gone,
            len(evicted) - len(moved),
            len(moved),
            (domains.whole.rank, waits, domains.rank),
            not waits,
            domains is ANYWHERE,
        )

    def is_enough(self, best: RoomPlan, plans: int, coming: PodDomains) -> bool:
        """Return whether `best` evicts no pod and was compared with enough plans.

        Evictions cost more than a search: such a plan is compared with all others.
        """
        is_worse = plans >= _MOST_CHOICES or coming.whole.rank > best.ranks[0]
        return not best.gone and is_worse

    def is_better(self, plan: RoomPlan, than: RoomPlan) -> bool:
        """Return whether `plan` is better.

        It costs less, its victims have lower priorities, or they go before the others in order.
        """
        cost, other_cost = ((p.killed, p.moved, p.ranks) for p in (plan, than))
        if cost != other_cost:
            return cost < other_cost
        session, table = self._context.session, self._context.table
        among = np.zeros(len(table.units), dtype=np.bool_)
        among[[*plan.gone, *than.gone]] = True
        place = {index: at for at, index in enumerate(victims(session, table, among))}
        one, other = (
            # The victim that would go last counts most, and priorities count before ages.
            (
                sorted(
                    (session.priority(table.units[index].job) for index in each.gone),
                    reverse=True,
                ),
                sorted((place[index] for index in each.gone), reverse=True),
            )
            for each in (plan, than)
        )
        return one < other

    def _search(self, context: SearchContext) -> tuple[Search | Rearrangement | None, Task | None]:
        """Return the search that wrote a plan, or None and the pod without room.

        The pods are placed in the order of the claim, and then the largest first.
        """
        start, lost = context.statement.savepoint(), None
        for search in _searches(context):
            if search.run():
                return search, None
            lost = search.lost or lost
            context.statement.rollback(start)
        tasks = largest_first(context.claim.tasks, context.session.cluster_total)
        if tasks:
            for search in _searches(replace(context, claim=context.claim.in_order(tasks))):
                if search.run():
                    return search, None
                context.statement.rollback(start)
        return None, lost


def _takes_room(context: SearchContext) -> bool:
    """Return whether pods of the claim need what pods on their nodes give that the plan evicts.

    It only looks at the amounts on nodes: of most plans, that is enough to know.
    """
    nodes, operations = context.session.state.nodes, context.statement.operations
    own = {task.uid for task in context.claim.tasks}
    places = [o for o in operations if o.task.uid in own]
    rooms = {
        o.row: nodes.idle[:, o.row] + nodes.releasing[:, o.row] - nodes.pipelined[:, o.row]
        for o in places
    }
    for other in operations:
        room = rooms.get(other.row)
        if room is not None and other.task.uid not in own:
            sign = -1 if other.kind is OperationKind.EVICT else 1
            request = nodes.demand(other.row, other.task.shape.request)
            room[list(request.indices)] += sign * np.array(request.amounts)
    return any(
        (rooms[o.row][list(nodes.demand(o.row, o.task.shape.request).indices)] < 0).any()
        for o in places
    )


def _stands_alone(context: SearchContext) -> bool:
    """Leave out all victims and return True if the claim fits at its places without them.

    With a victim gone, its pods are tried on other nodes, and may fit there without the room of the
    victim: a volume that they share is where the first of them is. `allocate` tries the promised
    nodes first.
    """
    session, statement, claim = context.session, context.statement, context.claim
    plan, rows = statement.extract(), {o.task.uid: o.row for o in statement.operations}
    statement.rollback(Savepoint(0))
    finders = DomainFinders(session, claim.job, context.domains)

    def stands(task: Task) -> bool:
        place, row = finders.of(task).best_or_kept(task, rows[task.uid]), rows[task.uid]
        return place is not None and place.row == row and promise(statement, task, row)

    over = session.calls.over_capacity(claim.job, claim.tasks)
    if over is None and all(map(stands, claim.tasks)):
        return True
    statement.rollback(Savepoint(0))
    statement.replay(plan)
    return False


def _with_domains(context: SearchContext, domains: PodDomains) -> RoomClaim:
    """Return the claim with what its job holds beside its pods in `domains`."""
    session, claim = context.session, context.claim
    beside = domains.beside_pods(session, claim.job, claim.tasks)
    if beside is None:
        return claim
    held = session.account.of(claim.job)
    return replace(claim, beside_pods=beside if held is None else beside + held)


def _searches(context: SearchContext) -> Iterator[Search | Rearrangement]:
    """Yield the searches in order; plans that move protected pods come last.

    The Statement is rolled back between them.
    """
    if context.rule.moves_all:
        yield Rearrangement(context)
    has_idle = _has_idle(context.session, context.claim)
    for with_moves in (False, True) if has_idle else (False,):
        yield Search(context, with_moves=with_moves)
    if not context.rule.moves_all:
        yield FewVictims(context)


def _has_idle(session: Session, claim: RoomClaim) -> bool:
    """Return whether some of each requested resource is idle, so that victims could move."""
    idle = session.state.nodes.idle
    return all(bool((idle[index] > 0).any()) for index in claim.request)
