"""Queries change nothing: in every scenario a cycle after them equals an undisturbed one."""

import pytest

from bindery.scenario.format import Scenario
from bindery.scheduler.insight.waiting import Explanation, explain_all
from bindery.scheduler.world import World
from tests.inlinescenarios import source_of
from tests.ownscenarios import FOLDER, scenarios_of
from tests.sizes import sample

SCENARIOS = scenarios_of(*FOLDER.rglob("*.yaml"))


def reported(world: World) -> tuple[object, ...]:
    """Return what the last cycle has found out and what is held after it, comparable."""
    report, state = world.engine.report, world.engine.cluster.state
    evictions = [(e.task.uid, e.preemptor, e.moves_to, e.action) for e in report.evictions]
    held = (state.nodes.idle, state.nodes.releasing, state.nodes.pipelined, state.queues.allocated)
    statuses = {uid: (task.status, task.row) for uid, task in state.tasks.items()}
    return evictions, report.jobs, statuses, [columns.tolist() for columns in held]


@pytest.mark.parametrize("scenario", sample(160, SCENARIOS), ids=lambda scenario: scenario.name)
def test_a_cycle_after_queries_equals_an_undisturbed_cycle(scenario: Scenario) -> None:
    source = source_of(scenario)
    asked, undisturbed = source.world(), source.world()

    explanations = explain_all(asked.engine, list(asked.engine.cluster.state.jobs))
    list(asked.engine.cycle())
    list(undisturbed.engine.cycle())

    assert reported(asked) == reported(undisturbed)
    for explanation in explanations.values():
        assert_is_complete(explanation)


def assert_is_complete(said: Explanation) -> None:
    """Check that every rule that forbids something is named, and no victim is its own."""
    for victim in said.victims.victims if said.victims is not None else ():
        assert victim.job != said.job
        assert victim.pods
        assert all(objection.reason != "NotAllowed" for objection in victim.objections)
