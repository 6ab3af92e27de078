"""`bindery snapshot` of a cluster whose pods claim devices."""

from pathlib import Path

import pytest

from bindery.scenario.beginning import snapshot_of
from bindery.scenario.format import Scenario
from tests.ownscenarios import FOLDER, scenarios_of
from tests.scenario.snapshots import both_plans, places, read_back

CLAIMING = [
    item
    for item in scenarios_of(*(FOLDER / "dra").glob("*.yaml"))
    if not item.events and not item.faults
]


@pytest.mark.parametrize("scenario", CLAIMING, ids=lambda scenario: scenario.name)
def test_a_snapshot_gives_devices_as_its_cluster_does(scenario: Scenario, tmp_path: Path) -> None:
    original, replayed = both_plans(scenario, tmp_path)

    assert places(original) == places(replayed)


def test_a_snapshot_holds_everything_that_claims_depend_on(tmp_path: Path) -> None:
    scenario = CLAIMING[0]

    captured = read_back(snapshot_of(scenario), scenario, tmp_path)

    assert captured.resource_slices
    assert captured.device_classes
    assert captured.resource_claims
