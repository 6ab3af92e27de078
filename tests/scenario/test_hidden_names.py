"""A snapshot without names is planned as its cluster, up to the names."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from tests.ownscenarios import FOLDER, scenarios_of
from tests.scenario.snapshots import NOW, objects_in, played, promised, shown_plans
from tests.scheduler import contestedworlds
from tests.scheduler.plannedworlds import World, worlds
from tests.sizes import IS_LONG, examples, sample

FILES = sorted(FOLDER.rglob("*.yaml"))


@pytest.mark.parametrize("file", sample(60, FILES), ids=lambda file: str(file.relative_to(FOLDER)))
def test_a_scenario_without_names_is_planned_as_with_them(file: Path) -> None:
    every = list(scenarios_of(file))
    for scenario in every if IS_LONG else every[1::8]:
        for cycles in (0, 2):
            planner = played(scenario, cycles)
            configuration = scenario.config.to_configuration()

            plans = shown_plans(objects_in(planner), configuration, planner.cluster.clock.now)

            assert plans.hidden == plans.direct, (scenario.name, cycles)


@given(contestedworlds.scenarios(), st.integers(0, 6))
@settings(max_examples=examples(8), deadline=None)
def test_a_contested_cluster_without_names_is_planned_as_with_them(
    scenario: Scenario, cycles: int
) -> None:
    planner = Planner(scenario, Faults(()))
    for number in contestedworlds.play(planner, cycles + 1):
        if number == cycles:
            break
    configuration = scenario.config.to_configuration()

    plans = shown_plans(objects_in(planner), configuration, planner.cluster.clock.now)

    assert plans.hidden == plans.direct


@given(worlds(), st.data())
@settings(max_examples=examples(8), deadline=None)
def test_any_world_without_names_is_planned_as_with_them(world: World, data: st.DataObject) -> None:
    nodes = ["", "", *(node.metadata.name for node in world.nodes)]
    pods = [promised(pod, data.draw(st.sampled_from(nodes))) for pod in world.pods]
    items = [*world.queues, *world.nodes, *world.groups, *pods]

    plans = shown_plans(items, Scenario().config.to_configuration(), NOW)

    assert plans.hidden == plans.direct
