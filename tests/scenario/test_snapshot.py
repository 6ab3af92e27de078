"""A snapshot of a cluster is planned exactly as a scheduler that starts now plans the cluster."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from tests.ownscenarios import FOLDER, scenarios_of
from tests.scenario.snapshots import NOW, both_plans, objects_in, played, promised
from tests.scheduler import contestedworlds
from tests.scheduler.plannedworlds import World, worlds
from tests.sizes import IS_LONG, examples, sample

FILES = sorted(FOLDER.rglob("*.yaml"))


def sampled(scenarios: list[Scenario]) -> list[Scenario]:
    """Return all scenarios of a file; in a short run, every fourth."""
    return scenarios if IS_LONG else scenarios[::4]


@pytest.mark.parametrize("file", sample(60, FILES), ids=lambda file: str(file.relative_to(FOLDER)))
def test_a_snapshot_of_any_scenario_is_planned_as_its_cluster(file: Path) -> None:
    for scenario in sampled(list(scenarios_of(file))):
        for cycles in (0, 2):
            planner = played(scenario, cycles)
            configuration = scenario.config.to_configuration()

            direct, read = both_plans(objects_in(planner), configuration, planner.cluster.clock.now)

            assert read == direct, (scenario.name, cycles)


@given(contestedworlds.scenarios(), st.integers(0, 6))
@settings(max_examples=examples(8), deadline=None)
def test_a_snapshot_of_a_contested_cluster_is_planned_as_the_cluster(
    scenario: Scenario, cycles: int
) -> None:
    planner = Planner(scenario, Faults(()))
    for number in contestedworlds.play(planner, cycles + 1):
        if number == cycles:
            break
    configuration = scenario.config.to_configuration()

    direct, read = both_plans(objects_in(planner), configuration, planner.cluster.clock.now)

    assert read == direct


@given(worlds(), st.data())
@settings(max_examples=examples(8), deadline=None)
def test_a_snapshot_of_any_world_is_planned_as_the_world(world: World, data: st.DataObject) -> None:
    nodes = ["", "", *(node.metadata.name for node in world.nodes)]
    pods = [promised(pod, data.draw(st.sampled_from(nodes))) for pod in world.pods]
    scenario = Scenario()
    items = [*world.queues, *world.nodes, *world.groups, *pods]

    direct, read = both_plans(items, scenario.config.to_configuration(), NOW)

    assert read == direct
