"""The examples are manifests that become the gangs of their comments."""

from pathlib import Path
from typing import Any

import pytest

from bindery.api import yamlfile
from bindery.grouper.controllers.trial import try_out
from bindery.grouper.table import Group, load

FOLDER = Path(__file__).parents[2] / "examples" / "workloads"
TABLE = load()
OWN = FOLDER / "own-kind"

GANGS = {
    "appwrapper": [(2, ["worker 2"], 2)],
    "cronjob": [(2, [], 2)],
    "cronworkflow": [(0, [], 1)],
    "deployment": [(0, [], 3)],
    "deployment-gang": [(4, [], 4)],
    "hyperpodpytorchjob": [(4, [], 4)],
    "inferenceservice": [(0, [], 1)],
    "jaxjob": [(4, ["worker 4"], 4)],
    "job": [(4, [], 4)],
    "job-sweep": [(1, [], 20)],
    "jobset": [(1, ["driver.0 1", "workers.0 4", "workers.1 4"], 9)],
    "knative-service": [(2, [], 2)],
    "leaderworkerset": [(1, ["leader 1", "workers 3"], 4)] * 2,
    "mpijob": [(4, ["worker 4", "launcher 1"], 5)],
    "notebook": [(1, [], 1)],
    "paddlejob": [(2, ["worker 2"], 4)],
    "pipelinerun": [(1, [], 1)],
    "podcliqueset": [(2, ["llm-0-prefill 2"], 2)],
    "pytorchjob": [(9, ["master 1", "worker 8"], 9)],
    "raycluster": [(3, ["headgroup 1", "gpu 2"], 3)],
    "rayjob": [(3, ["headgroup 1", "gpu 2", "submitter 1"], 4)],
    "rayservice": [(1, ["headgroup 1"], 1)],
    "scheduledsparkapplication": [(1, ["driver 1", "executor 1"], 5)],
    "sparkapplication": [(1, ["driver 1", "executor 2"], 5)],
    "statefulset": [(3, [], 3)],
    "statefulset-in-order": [(1, ["pod-0 1", "pod-1 1", "pod-2 1", "others 0"], 3)],
    "taskrun": [(1, [], 1)],
    "tfjob": [(7, ["chief 1", "ps 2", "worker 4"], 7)],
    "trainjob": [(1, ["dataset-initializer.0 1", "node.0 2"], 3)],
    "virtualmachine": [(1, [], 1)],
    "volcano-job": [(3, ["ps 1", "worker 2"], 5)],
    "workflow": [(0, [], 1)],
    "xgboostjob": [(3, ["master 1", "worker 2"], 3)],
}
"""For each gang the minimum, that of each leaf, and the number of pods."""


def items(path: Path) -> list[Any]:
    return [document.data for document in yamlfile.read(path)]


def test_every_example_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == GANGS.keys()


@pytest.mark.parametrize("name", sorted(GANGS))
def test_an_example_becomes_its_gangs(name: str) -> None:
    found = try_out(items(FOLDER / f"{name}.yaml"), TABLE)

    assert found.plan.problems == ()
    assert found.unknown == ()
    assert [described(group) for group in found.plan.groups] == GANGS[name]
    assert all("queue" in group.sources for group in found.plan.groups)


def described(group: Group) -> tuple[int, list[str], int]:
    parts = [part for part in group.spec.sub_groups if part.min_member is not None]
    leaves = [f"{part.name} {part.min_member}" for part in parts]
    return group.spec.min_member, leaves, len(group.pods)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.yaml")), ids=lambda path: path.stem)
def test_the_pods_of_an_example_are_assigned_to_bindery(path: Path) -> None:
    if path.name != "rows.yaml":
        assert "schedulerName: bindery" in path.read_text()


def test_the_example_row_of_a_user_is_used() -> None:
    found = try_out(items(OWN / "training.yaml"), load([OWN / "rows.yaml"])).plan

    (group,) = found.groups
    assert found.problems == ()
    assert [(p.name, p.min_member, len(p.after)) for p in group.spec.sub_groups] == [
        ("leader", 1, 0),
        ("gpu", 8, 1),
        ("loader", 2, 1),
    ]


def test_existing_children_of_a_wrapper_are_not_planned_twice() -> None:
    """The input is a PodCliqueSet and its children, as kubectl prints them."""
    (clique_set,) = items(FOLDER / "podcliqueset.yaml")
    clique = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "metadata": {"name": "llm-0-prefill", "ownerReferences": [owner(clique_set)]},
    }
    gang = {
        "apiVersion": "scheduler.grove.io/v1alpha1",
        "kind": "PodGang",
        "metadata": {"name": "llm-0", "ownerReferences": [owner(clique_set)]},
        "spec": {"podgroups": [{"name": "llm-0-prefill", "minReplicas": 2}]},
    }
    labels = {"grove.io/podgang": "llm-0", "grove.io/podclique": "llm-0-prefill"}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner(clique)]},
        }
        for name in ("a", "b")
    ]

    found = try_out([clique_set, clique, gang, *pods], TABLE)

    assert [described(group) for group in found.plan.groups] == GANGS["podcliqueset"]
    assert (found.unknown, found.plan.problems) == ((), ())


def owner(item: dict[str, Any]) -> dict[str, Any]:
    kind, name = item["kind"], item["metadata"]["name"]
    return {"apiVersion": item["apiVersion"], "kind": kind, "name": name, "controller": True}
