"""A snapshot of a cluster with HAMi's devices is planned as the cluster is."""

from pathlib import Path

import pytest
import yaml

from bindery.api.yamlfile import FileError
from bindery.scenario.beginning import snapshot_of
from bindery.scenario.capture import capture
from bindery.scenario.files import read_scenarios
from bindery.scenario.format import Scenario
from bindery.scenario.runner import run
from tests.ownscenarios import FOLDER, scenarios_of

SEEN_AT_ONCE = [
    item
    for item in scenarios_of(*(FOLDER / "hami").glob("*.yaml"))
    if not item.events and not item.faults
]


@pytest.mark.parametrize("scenario", SEEN_AT_ONCE, ids=lambda scenario: scenario.name)
def test_a_snapshot_is_planned_as_its_cluster_is(scenario: Scenario, tmp_path: Path) -> None:
    file = tmp_path / "snapshot.yaml"
    seen = capture(snapshot_of(scenario), scenario.now, scenario.config.node_pool)
    file.write_text(yaml.safe_dump(seen, sort_keys=False))
    (captured,) = read_scenarios(file)
    assert not isinstance(captured, FileError), captured
    once = {"rounds": 1, "settle": 0, "expect": type(scenario.expect)()}

    original = run(scenario.model_copy(update=once)).seen
    replayed = run(captured.model_copy(update={**once, "config": scenario.config})).seen

    assert {n: (p.state, p.node) for n, p in original.pods.items()} == {
        n: (p.state, p.node) for n, p in replayed.pods.items()
    }
    assert original.allocated == replayed.allocated
