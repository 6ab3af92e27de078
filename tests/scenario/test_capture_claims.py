"""`bindery snapshot` of a cluster whose pods claim devices."""

from pathlib import Path

import pytest
from ownscenarios import FOLDER, scenarios_of
from test_capture import read_back

from bindery.scenario.beginning import snapshot_of
from bindery.scenario.format import Scenario
from bindery.scenario.runner import run

CLAIMING = [
    item
    for item in scenarios_of(*(FOLDER / "dra").glob("*.yaml"))
    if not item.events and not item.faults
]


@pytest.mark.parametrize("scenario", CLAIMING, ids=lambda scenario: scenario.name)
def test_a_snapshot_gives_devices_as_its_cluster_does(scenario: Scenario, tmp_path: Path) -> None:
    captured = read_back(snapshot_of(scenario), scenario, tmp_path)
    same_rules = captured.model_copy(update={"config": scenario.config})
    once = {"rounds": 1, "settle": 0, "expect": type(scenario.expect)()}

    original = run(scenario.model_copy(update=once)).seen
    replayed = run(same_rules.model_copy(update=once)).seen

    assert {n: (p.state, p.node) for n, p in original.pods.items()} == {
        n: (p.state, p.node) for n, p in replayed.pods.items()
    }


def test_a_snapshot_holds_everything_that_claims_depend_on(tmp_path: Path) -> None:
    scenario = CLAIMING[0]

    captured = read_back(snapshot_of(scenario), scenario, tmp_path)

    assert captured.resource_slices
    assert captured.device_classes
    assert captured.resource_claims
