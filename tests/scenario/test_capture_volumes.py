"""`bindery snapshot` of a cluster whose pods use persistent volumes."""

from pathlib import Path

import pytest

from bindery.scenario.beginning import snapshot_of
from bindery.scenario.format import Scenario
from bindery.scenario.runner import run
from tests.ownscenarios import FOLDER, scenarios_of
from tests.scenario.snapshots import read_back

USING = [item for item in scenarios_of(*(FOLDER / "volumes").glob("*.yaml")) if not item.events]


@pytest.mark.parametrize("scenario", USING, ids=lambda scenario: scenario.name)
def test_a_snapshot_gives_volumes_as_its_cluster_does(scenario: Scenario, tmp_path: Path) -> None:
    captured = read_back(snapshot_of(scenario), scenario, tmp_path)
    as_before = {"expect": scenario.expect, "rounds": scenario.rounds, "events": scenario.events}

    assert len(captured.volumes) == len(scenario.volumes)
    assert run(captured.model_copy(update=as_before)).failures == ()
