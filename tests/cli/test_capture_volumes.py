"""`bindery snapshot` of a cluster whose pods use persistent volumes."""

from pathlib import Path

import pytest
from test_capture import FOLDER, read_back

from bindery.cli.scenariosource import look_at
from bindery.scenario.files import read_scenarios
from bindery.scenario.format import Scenario
from bindery.scenario.runner import run

USING = [
    item
    for path in sorted((FOLDER / "volumes").glob("*.yaml"))
    for item in read_scenarios(path)
    if isinstance(item, Scenario) and not item.events
]


@pytest.mark.parametrize("scenario", USING, ids=lambda scenario: scenario.name)
def test_a_snapshot_gives_volumes_as_its_cluster_does(scenario: Scenario, tmp_path: Path) -> None:
    captured = read_back(look_at(scenario), scenario, tmp_path)
    as_before = {"expect": scenario.expect, "rounds": scenario.rounds, "events": scenario.events}

    assert len(captured.volumes) == len(scenario.volumes)
    assert run(captured.model_copy(update=as_before)).failures == ()
