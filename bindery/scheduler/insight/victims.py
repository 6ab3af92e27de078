"""The cheapest victims that would make a waiting gang fit, and the rules that protect them.

The solver runs with fewer and fewer rules until it finds a plan. Then the plan is replayed step by
step, and all rules are asked about each victim. All Statements are discarded.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from bindery.scheduler.actions.consolidation import ConsolidationRule
from bindery.scheduler.insight.objections import BUDGET, BlockingBudget, Judge, Objection
from bindery.scheduler.ledgers.base import OperationKind
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import NO_ROW, Job, JobKey
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.placing.claims import RoomClaim, first_claim
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Plan
from bindery.scheduler.solver.bounds import exceeds_idle
from bindery.scheduler.solver.context import SearchContext
from bindery.scheduler.solver.rules import Rule
from bindery.scheduler.solver.search import Search
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable

_HARDEST = 3


@dataclass(frozen=True, slots=True)
class VictimPod:
    """A pod that must leave its node in the plan."""

    name: str
    node: str
    moves_to: str
    """The node it would move to; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Victim:
    """Pods of one job that must leave in the plan."""

    job: JobKey
    queue: str
    priority: int
    action: str
    """The action for victims of this kind."""
    is_core: bool
    """Whether its gang falls below its minimum without them."""
    pods: tuple[VictimPod, ...]
    objections: tuple[Objection, ...]
    """What protects them."""


@dataclass(frozen=True, slots=True)
class VictimPlan:
    """The victims of a plan, and the objections to it."""

    victims: tuple[Victim, ...]
    objections: tuple[Objection, ...]
    """The objections to the plan as a whole, whatever its victims."""

    @property
    def killed_pods(self) -> int:
        """Number of pods without another place."""
        return sum(not pod.moves_to for victim in self.victims for pod in victim.pods)

    @property
    def pod_count(self) -> int:
        """Number of pods that leave their nodes."""
        return sum(len(victim.pods) for victim in self.victims)


@dataclass(frozen=True, slots=True)
class _Permissive(Rule):
    """A rule that lets all units of `among` (mask) go."""

    among: BoolColumn
    moves_all: bool = False
    most_jobs: int | None = None
    name: str = "reclaim"
    """The action that plugins see when they are asked about victims."""

    def against_claim(self, session: Session, claim: RoomClaim) -> Iterator[Refusal]:  # noqa: ARG002
        """Refuse no claim."""
        yield from ()

    def eligible(self, session: Session, claim: RoomClaim, table: VictimTable) -> BoolColumn:  # noqa: ARG002
        """Return the units of `among`."""
        return self.among.copy()


def cheapest_victims(
    session: Session,
    job: Job,
    actions: Collection[str],
    most_moved: int,
    blocking_budget: BlockingBudget,
) -> VictimPlan | None:
    """Return the cheapest victims that make the next pods of `job` fit; None if nothing helps.

    The plan breaks the softest rules possible, and then kills and moves the fewest pods. `actions`:
    the configured actions; `most_moved`: how many jobs consolidation may move; `blocking_budget`:
    returns the disruption budget that protects a pod.
    """
    claim = first_claim(session, job)
    if claim is None:
        return None
    table = VictimTable(session, lambda _, task: task.row != NO_ROW and task.is_ours)
    judge = Judge(session, claim, table, actions, blocking_budget)
    hardness = judge.hardness(table)
    others = np.array([unit.job is not job for unit in table.units], dtype=np.bool_)
    # Moves come first: they cost the victims least.
    if exceeds_idle(session, claim) is None:
        movable = others & (hardness < _HARDEST)
        mover = _Permissive(movable, moves_all=True, name=ConsolidationRule.name)
        found = _search(session, claim, mover, table)
        if found is not None:
            return _moving(session, judge, table, found, (actions, most_moved))
    # Softer rules first. Among equal plans of a level, `min` takes those of a single action.
    own_queue = table.queue == session.queue_row(job)
    for level in range(_HARDEST + 1):
        softer = others & (hardness <= level)
        rules = (
            _Permissive(softer & own_queue, name="preempt"),
            _Permissive(softer & ~own_queue),
            _Permissive(softer),
        )
        plans = [
            _replayed(session, judge, table, found)
            for rule in rules
            if rule.among.any() and (found := _search(session, claim, rule, table))
        ]
        if plans:
            return min(plans, key=lambda plan: (plan.killed_pods, plan.pod_count))
    return None


@dataclass(frozen=True, slots=True)
class _Found:
    """A plan of the solver."""

    plan: Plan
    gone: tuple[int, ...]
    """Units in the order of eviction."""


def _search(session: Session, claim: RoomClaim, rule: Rule, table: VictimTable) -> _Found | None:
    with session.statement() as statement:
        search = Search(SearchContext(session, statement, claim, rule, table))
        if search.run() and search.gone:
            return _Found(statement.extract(), tuple(search.gone))
    return None


def _replayed(session: Session, judge: Judge, table: VictimTable, found: _Found) -> VictimPlan:
    """Return the plan with the objections of the rules to each step."""
    places = _new_places(found.plan)
    victims: list[Victim] = []
    unit_of = {task.uid: i for i in found.gone for task in table.units[i].tasks}
    heard: set[int] = set()
    against: list[Objection] = []
    # An action chooses from the units that are eligible before anything is evicted. Evictions can
    # remove the objection to a later unit, but the action cannot choose it then either.
    at_start = {
        index: tuple(judge.against(table.units[index]))
        for index in found.gone
        if not judge.is_eligible(index, table.units[index])
    }
    with session.statement() as statement:
        for step in found.plan.operations:
            index = unit_of.get(step.task.uid)
            if step.kind is OperationKind.EVICT and index is not None and index not in heard:
                heard.add(index)
                unit = table.units[index]
                against += judge.against_claim(unit)
                objections = tuple(judge.against(unit)) or at_start.get(index, ())
                victims.append(_victim(session, unit, places, judge.action_for(unit), objections))
            statement.replay(Plan((step,)))
        killed = [
            table.units[i]
            for i in found.gone
            if any(task.uid not in places for task in table.units[i].tasks)
        ]
        if not against and not any(victim.objections for victim in victims):
            against += judge.against_plan([table.units[i] for i in found.gone], killed)
    return VictimPlan(tuple(victims), tuple(dict.fromkeys(against)))


def _moving(
    session: Session,
    judge: Judge,
    table: VictimTable,
    found: _Found,
    configured: tuple[Collection[str], int],
) -> VictimPlan:
    """Return a plan that moves all victims, with the objections to it."""
    name, (actions, most_moved) = ConsolidationRule.name, configured
    places = _new_places(found.plan)
    units = [table.units[index] for index in found.gone]
    against: list[Objection] = []
    if name not in actions:
        against.append(
            Objection(name, JobReason.ACTION_OFF, "the action consolidation is not configured")
        )
    refusals = list(ConsolidationRule(most_moved).against_claim(session, judge.claim))
    against += (Objection(name, refusal.reason, refusal.message) for refusal in refusals)
    jobs = table.job_count(found.gone)
    if not refusals and jobs > most_moved:
        text = f"pods of {jobs} jobs would move, and consolidation moves at most {most_moved} jobs"
        against.append(Objection(name, JobReason.TOO_MANY_MOVES, text))
    victims = tuple(
        _victim(
            session,
            unit,
            places,
            name,
            (Objection(name, BUDGET, guard),) if (guard := judge.guard(unit)) else (),
        )
        for unit in units
    )
    return VictimPlan(victims, tuple(against))


def _new_places(plan: Plan) -> dict[str, str]:
    """Return the nodes that the plan promises: pod UID -> node name."""
    promised = (step for step in plan.operations if step.kind is OperationKind.PIPELINE)
    return {step.task.uid: step.node_name for step in promised}


def _victim(
    session: Session,
    unit: EvictionUnit,
    places: dict[str, str],
    action: str,
    objections: tuple[Objection, ...],
) -> Victim:
    return Victim(
        job=unit.job.key,
        queue=unit.job.queue,
        priority=session.priority(unit.job),
        action=action,
        is_core=unit.is_core,
        pods=tuple(_pods(unit, places)),
        objections=objections,
    )


def _pods(unit: EvictionUnit, places: dict[str, str]) -> Iterator[VictimPod]:
    for task in unit.tasks:
        yield VictimPod(task.name, task.node_name, places.get(task.uid, ""))
