"""The examples are manifests that become gangs as their comments say."""

from pathlib import Path
from typing import Any

import pytest

from bindery.api import yamlfile
from bindery.grouper.table import GroupPlan, load
from bindery.grouper.table.trial import left_to_children, try_out

FOLDER = Path(__file__).parents[2] / "examples" / "workloads"
TABLE = load()
OWN = FOLDER / "own-kind"

GANGS = {
    "hyperpodpytorchjob": (4, []),
    "jaxjob": (4, ["worker 4"]),
    "job": (4, []),
    "job-sweep": (1, []),
    "jobset": (1, ["driver.0 1", "workers.0 4", "workers.1 4"]),
    "leaderworkerset": (1, ["leader 1", "workers 3"]),
    "mpijob": (4, ["worker 4", "launcher 1"]),
    "notebook": (1, []),
    "paddlejob": (2, ["worker 2"]),
    "pytorchjob": (9, ["master 1", "worker 8"]),
    "raycluster": (3, ["headgroup 1", "gpu 2"]),
    "rayjob": (3, ["headgroup 1", "gpu 2", "submitter 1"]),
    "sparkapplication": (1, ["driver 1", "executor 2"]),
    "statefulset": (3, []),
    "statefulset-in-order": (1, ["pod-0 1", "pod-1 1", "pod-2 1", "others 0"]),
    "taskrun": (1, []),
    "tfjob": (7, ["chief 1", "ps 2", "worker 4"]),
    "volcano-job": (3, ["ps 1", "worker 2"]),
    "xgboostjob": (3, ["master 1", "worker 2"]),
}
"""The minimum, and that of each leaf."""
MAKERS = {
    "appwrapper": "what it makes",
    "cronjob": "each Job of it",
    "cronworkflow": "each Workflow of it",
    "deployment": "each ReplicaSet of it",
    "deployment-gang": "each ReplicaSet of it",
    "inferenceservice": "what it makes",
    "knative-service": "each Revision of it",
    "pipelinerun": "what it makes",
    "podcliqueset": "what it makes",
    "rayservice": "each RayCluster of it",
    "scheduledsparkapplication": "each SparkApplication of it",
    "trainjob": "each JobSet of it",
    "virtualmachine": "each VirtualMachineInstance of it",
    "workflow": "what it makes",
}
"""What the owners make whose pods are grouped."""


def items(path: Path) -> list[Any]:
    return [document.data for document in yamlfile.read(path)]


def planned(name: str) -> GroupPlan:
    return try_out(items(FOLDER / f"{name}.yaml"), TABLE)


def test_every_example_is_looked_at() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {*GANGS, *MAKERS}


@pytest.mark.parametrize("name", sorted(GANGS))
def test_an_example_becomes_a_gang(name: str) -> None:
    found = planned(name)

    (group,) = found.groups
    parts = [p for p in group.spec.sub_groups if p.min_member is not None]
    assert found.problems == ()
    assert group.spec.min_member == GANGS[name][0]
    assert [f"{part.name} {part.min_member}" for part in parts] == GANGS[name][1]
    assert "queue" in group.sources


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_an_example_leaves_the_gang_to_what_it_makes(name: str) -> None:
    given = items(FOLDER / f"{name}.yaml")

    assert planned(name).groups == ()
    assert [kind for _, kind in left_to_children(given, TABLE)] == [MAKERS[name]]


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.yaml")), ids=lambda path: path.stem)
def test_the_pods_of_an_example_go_to_bindery(path: Path) -> None:
    if path.name != "rows.yaml":
        assert "schedulerName: bindery" in path.read_text()


def test_the_row_of_ones_own_is_used() -> None:
    found = try_out(items(OWN / "training.yaml"), load([OWN / "rows.yaml"]))

    (group,) = found.groups
    assert found.problems == ()
    assert [(p.name, p.min_member, len(p.after)) for p in group.spec.sub_groups] == [
        ("leader", 1, 0),
        ("gpu", 8, 1),
        ("loader", 2, 1),
    ]
