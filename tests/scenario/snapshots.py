"""Snapshots of scenarios' clusters, and how these are planned."""

from pathlib import Path

import yaml

from bindery.api.yamlfile import FileError
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.scenario.beginning import snapshot_of
from bindery.scenario.capture import capture
from bindery.scenario.expect import Observation
from bindery.scenario.files import read_scenarios
from bindery.scenario.format import Scenario
from bindery.scenario.runner import run


def read_back(snapshot: ClusterSnapshot, scenario: Scenario, tmp_path: Path) -> Scenario:
    """Return the scenario of `snapshot`, written to a file and read from it."""
    path = tmp_path / "snapshot.yaml"
    data = capture(snapshot, scenario.now, scenario.config.node_pool)
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    (item,) = read_scenarios(path)
    assert not isinstance(item, FileError), item
    return item


def both_plans(scenario: Scenario, tmp_path: Path) -> tuple[Observation, Observation]:
    """Return one round of `scenario`, and one of the snapshot of its cluster."""
    captured = read_back(snapshot_of(scenario), scenario, tmp_path)
    same_rules = captured.model_copy(update={"config": scenario.config})
    once = {"rounds": 1, "settle": 0, "expect": type(scenario.expect)()}
    return (
        run(scenario.model_copy(update=once)).seen,
        run(same_rules.model_copy(update=once)).seen,
    )


def places(seen: Observation) -> dict[str, tuple[str, str]]:
    """Return the state and the node of each pod."""
    return {name: (pod.state, pod.node) for name, pod in seen.pods.items()}
