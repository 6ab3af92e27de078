"""The rules of reclaim, preempt and consolidation: vectors, refusals and reasons agree."""

from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from bindery.scheduler.actions.consolidation import ConsolidationRule
from bindery.scheduler.actions.keeping_quotas import QuotaKeepingReclaim
from bindery.scheduler.actions.preempt import PreemptRule
from bindery.scheduler.actions.reclaim import ReclaimRule
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.placing.claims import RoomClaim, first_claim
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.rules import Rule
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable
from tests.scheduler.contestedworlds import scenarios
from tests.sizes import examples

RULES: list[Rule] = [PreemptRule(), ReclaimRule(), ConsolidationRule(16)]
ONLY_OF_THE_PLAN = {JobReason.WOULD_BE_FULLER}
"""Reasons that depend on the evictions of the plan, so that the vectors do not count them."""
protections = st.sampled_from([None, None, "30s", "1h"])


@st.composite
def protected_worlds(draw: st.DrawFn) -> Scenario:
    """Draw a world in which some queues protect jobs that have just begun to run."""
    world = draw(scenarios())
    times: list[dict[str, Any]] = [
        {"preemptMinRuntime": draw(protections), "reclaimMinRuntime": draw(protections)}
        for _ in world.queues
    ]
    said = world.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for job in said["jobs"]:
        job["runtime"] = draw(st.sampled_from(["1s", "1m"]))
    for queue, of_queue in zip(said["queues"], times, strict=True):
        queue.update({key: time for key, time in of_queue.items() if time is not None})
    return Scenario.model_validate(said)


def claims(session: Session) -> Iterator[RoomClaim]:
    for job in session.state.waiting.values():
        claim = first_claim(session, job)
        if claim is not None:
            yield claim


@settings(max_examples=examples(21), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(world=protected_worlds())
def test_the_vectors_exclude_exactly_the_refused_eviction_units(world: Scenario) -> None:
    planner = Planner(world, Faults(()))
    planner.cluster.populate()

    with planner.engine.session() as session:
        table = VictimTable(session)
        for claim in claims(session):
            for rule in (*RULES, QuotaKeepingReclaim()):
                eligible = rule.eligible(session, claim, table).tolist()
                movable = rule.movable(session, claim, table).tolist()
                for index, unit in enumerate(table.units):
                    refusals = list(rule.against_unit(session, claim, unit))
                    reasons = {refusal.reason for refusal in refusals} - ONLY_OF_THE_PLAN
                    is_own = unit.job is claim.job
                    assert eligible[index] == (not reasons) or is_own
                    assert reasons or not is_own, "a job makes no room for itself"
                    assert movable[index] or not eligible[index]
                    assert movable[index] == (reasons <= {JobReason.WITHIN_SHARE}) or is_own
                    assert all(refusal.text() for refusal in refusals)


EVERY_REASON = {
    "preempt": {"NotAllowed", "PriorityNotLower", "MinRuntime"},
    "reclaim": {"RelatedQueue", "NotReclaimable", "WithinShare", "WouldBeFuller", "MinRuntime"},
    "consolidation": {"NotAllowed"},
}
WORLD = """
nodes: [{name: node0, gpus: 16}]
queues:
- {name: own, gpu: {quota: 3, weight: 1}, preemptMinRuntime: 1h}
- {name: below, parent: own}
- {name: keeps, gpu: {quota: 4}}
- {name: closed, gpu: {quota: 0}, reclaimable: false}
- {name: young, gpu: {quota: 0, weight: 1}, reclaimMinRuntime: 1h}
jobs:
- {name: same, queue: own, runtime: 1m, pods: [{gpus: 2, state: Running, node: node0}]}
- {name: child, queue: below, pods: [{gpus: 1, state: Running, node: node0}]}
- {name: kept, queue: keeps, pods: [{gpus: 4, state: Running, node: node0}]}
- {name: fixed, queue: closed, pods: [{gpus: 1, state: Running, node: node0}]}
- {name: begun, queue: young, runtime: 1m, pods: [{gpus: 8, state: Running, node: node0}]}
- {name: waits, queue: own, priority: 50, pods: [{gpus: 12}]}
"""


def test_every_reason_of_a_rule_occurs() -> None:
    world = Scenario.model_validate(yaml.safe_load(WORLD))
    planner = Planner(world, Faults(()))
    planner.cluster.populate()

    with planner.engine.session() as session:
        table = VictimTable(session)
        (claim,) = claims(session)
        own = [*table.units, EvictionUnit(claim.job, claim.tasks, is_core=True)]
        given = {
            rule.name: {r.reason.value for u in own for r in rule.against_unit(session, claim, u)}
            for rule in RULES
        }

    assert given == EVERY_REASON
