"""The project's own scenario files: each is one behaviour, run by the scheduler's engine."""

from functools import cache

import pytest

from bindery.scenario.format import Scenario
from bindery.scenario.runner import Result, run
from tests.ownscenarios import FOLDER, scenarios_of
from tests.sizes import sample

SCENARIOS = scenarios_of(*FOLDER.rglob("*.yaml"))
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@cache
def first_run(name: str) -> Result:
    return run(BY_NAME[name])


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_expectation_holds(scenario: Scenario) -> None:
    assert first_run(scenario.name).failures == ()


@pytest.mark.parametrize("scenario", sample(240, SCENARIOS), ids=lambda scenario: scenario.name)
def test_the_result_is_the_same_in_every_run_and_for_every_order_of_the_nodes(
    scenario: Scenario,
) -> None:
    turned = scenario.model_copy(
        update={
            "nodes": scenario.nodes[::-1],
            "bind_requests": scenario.bind_requests[::-1],
            "priority_classes": dict(reversed(scenario.priority_classes.items())),
        }
    )

    first, again, other_order = first_run(scenario.name), run(scenario), run(turned)

    assert first == again
    assert first.cycles == other_order.cycles
    assert {n: (p.state, p.node) for n, p in first.seen.pods.items()} == {
        n: (p.state, p.node) for n, p in other_order.seen.pods.items()
    }


def test_every_scenario_has_a_unique_name_and_an_expectation() -> None:
    names = [scenario.name for scenario in SCENARIOS]

    assert len(set(names)) == len(names)
    assert all(scenario.expect.model_fields_set for scenario in SCENARIOS)
