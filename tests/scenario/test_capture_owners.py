"""`bindery snapshot` keeps names of workloads; `bindery explain --file` finds gangs by them."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bindery.answers.errors import NoAnswerError
from bindery.answers.subjects import subject
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import OwnerReference, Pod
from bindery.scenario.format import Scenario
from tests.inlinescenarios import scenario_of, snapshot_of
from tests.scenario.snapshots import read_back

SCENARIO = scenario_of(
    """
    nodes: [{name: n0, gpus: 4}]
    jobs:
    - {name: job-train-2bedc9af, namespace: lab, pods: [{count: 2, gpus: 8}]}
    - {name: web-1f-x, namespace: lab, pods: [{gpus: 8}]}
    - {name: topo-gang, namespace: lab, minMember: 2}
    """
)


@pytest.mark.parametrize(
    ("name", "gang"),
    [
        ("train", "job-train-2bedc9af"),
        ("job/train", "job-train-2bedc9af"),
        ("deploy/web", "web-1f-x"),
        ("replicaset/web-1f", "web-1f-x"),
        ("jobset/topo", "topo-gang"),
        ("pg/job-train-2bedc9af", "job-train-2bedc9af"),
    ],
)
def test_a_gang_is_found_in_a_snapshot_by_the_name_of_its_workload(
    name: str, gang: str, tmp_path: Path
) -> None:
    captured = read_back(_owned(SCENARIO), SCENARIO, tmp_path)

    assert subject(snapshot_of(captured), name, "lab").key.name == gang


def test_a_workload_of_another_namespace_is_not_found_in_a_snapshot(tmp_path: Path) -> None:
    captured = read_back(_owned(SCENARIO), SCENARIO, tmp_path)

    with pytest.raises(NoAnswerError, match="namespace default"):
        subject(snapshot_of(captured), "job/train", "default")


def _owned(scenario: Scenario) -> ClusterSnapshot:
    """Return the cluster of `scenario`: a Job, a pod of a Deployment, and a gang without pods."""
    seen = snapshot_of(scenario)
    groups = []
    for group in seen.groups:
        if group.metadata.name == "web-1f-x":
            continue
        kind, name = ("Job", "train") if "train" in group.metadata.name else ("JobSet", "topo")
        owner = OwnerReference(kind=kind, name=name, uid=name)
        meta = msgspec.structs.replace(group.metadata, owner_references=[owner])
        groups.append(msgspec.structs.replace(group, metadata=meta))
    return replace(seen, groups=tuple(groups), pods=tuple(map(_controlled, seen.pods)))


def _controlled(pod: Pod) -> Pod:
    is_web = pod.metadata.name.startswith("web")
    kind, name = ("ReplicaSet", "web-1f") if is_web else ("Job", "train")
    owner = OwnerReference(kind=kind, name=name, uid=name, controller=True)
    meta = msgspec.structs.replace(pod.metadata, owner_references=[owner])
    if is_web:  # a single pod
        labels = {"pod-template-hash": "1f"}
        meta = msgspec.structs.replace(meta, name="web-1f-x", labels=labels, annotations={})
    return msgspec.structs.replace(pod, metadata=meta)
