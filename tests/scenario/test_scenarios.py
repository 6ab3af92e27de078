"""The project's own scenario files: each is one behaviour, played by the scheduler's engine."""

from pathlib import Path

import pytest

from bindery.api.yamlfile import FileError
from bindery.scenario.files import read_scenarios
from bindery.scenario.format import Scenario
from bindery.scenario.runner import run

FOLDER = Path(__file__).parents[1] / "scenarios"


def _scenarios() -> list[Scenario]:
    found = []
    for path in sorted(FOLDER.rglob("*.yaml")):
        for item in read_scenarios(path):
            if isinstance(item, FileError):
                raise item
            found.append(item)
    return found


SCENARIOS = _scenarios()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_expectation_holds(scenario: Scenario) -> None:
    assert run(scenario).failures == ()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
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

    first, again, other_order = run(scenario), run(scenario), run(turned)

    assert first == again
    assert first.cycles == other_order.cycles
    assert {n: (p.state, p.node) for n, p in first.seen.pods.items()} == {
        n: (p.state, p.node) for n, p in other_order.seen.pods.items()
    }


def test_every_scenario_has_a_name_of_its_own_and_expects_something() -> None:
    names = [scenario.name for scenario in SCENARIOS]

    assert len(set(names)) == len(names)
    assert all(scenario.expect.model_fields_set for scenario in SCENARIOS)
