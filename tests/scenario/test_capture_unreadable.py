"""`bindery snapshot` of a cluster with objects that no scenario can express."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from bindery.kube.objects.podspec import Container, ResourceRequirements
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import (
    PodTemplate,
    Queue,
    QueueResource,
    QueueSpec,
    SubGroup,
)
from bindery.scenario.capture import capture
from bindery.scenario.format import Scenario
from tests.inlinescenarios import scenario_of, snapshot_of
from tests.scenario.snapshots import read_back

Struct = TypeVar("Struct", bound=msgspec.Struct)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
AMOUNTS = [
    {"cpu": "9E"},
    {"memory": "9999999999999999999999"},
    {"memory": "9E"},
    {"nvidia.com/gpu": "99999999999999"},
    {"cpu": "many"},
]
CLUSTER = """
    nodes: [{name: n0, gpus: 4}, {name: n1, gpus: 4}]
    queues: [{name: q, gpu: {limit: 8}}]
    jobs:
    - {name: a, queue: q, pods: [{count: 3, gpus: 1}]}
    - {name: b, queue: q, pods: [{gpus: 2}]}
    bindRequests: [{pods: [b-0], node: n1}]
"""


@pytest.mark.parametrize("amounts", AMOUNTS, ids=str)
@pytest.mark.parametrize("place", ["containers", "init_containers", "overhead"])
def test_a_pod_whose_request_is_unreadable_is_left_out_alone(
    place: str, amounts: dict[str, str], tmp_path: Path
) -> None:
    scenario = scenario_of(CLUSTER)
    faulty = _pod(scenario, "a-1", place, amounts)

    captured = read_back(faulty, scenario, tmp_path)

    assert [(job.name, job.pod_count) for job in captured.jobs] == [("a", 2), ("b", 1)]
    assert [request.pods for request in captured.bind_requests] == [("b-0",)]
    (needed,) = captured.needs
    assert needed.startswith("pod default/a-1 is left out: ")


@pytest.mark.parametrize("amounts", AMOUNTS, ids=str)
def test_an_unreadable_pod_of_another_scheduler_takes_no_room(amounts: dict[str, str]) -> None:
    text = "{name: x, pods: [{schedulerName: other, node: n0, state: Running, labels: {a: b}}]}"
    scenario = scenario_of(f"nodes: [{{name: n0, gpus: 4}}]\njobs: [{text}]")

    data = capture(_pod(scenario, "x-0", "containers", amounts), NOW)

    assert data["nodes"][0]["gpus"] == 4
    assert [line.split(":")[0] for line in data["needs"]] == ["pod default/x-0 is left out"]


@pytest.mark.parametrize("amounts", AMOUNTS, ids=str)
def test_a_node_whose_amounts_are_unreadable_is_left_out_alone(
    amounts: dict[str, str], tmp_path: Path
) -> None:
    scenario = scenario_of(CLUSTER)
    seen = snapshot_of(scenario)
    nodes = [
        _with(node, status=_with(node.status, allocatable=amounts))
        if node.metadata.name == "n0"
        else node
        for node in seen.nodes
    ]

    captured = read_back(replace(seen, nodes=tuple(nodes)), scenario, tmp_path)

    assert [node.name for node in captured.nodes] == ["n1"]
    (needed,) = captured.needs
    assert needed.startswith("node n0 is left out: ")


@pytest.mark.parametrize("amount", ["many", "9E", "-5"])
def test_a_queue_with_an_unreadable_amount_is_left_out_alone(amount: str, tmp_path: Path) -> None:
    scenario = scenario_of(CLUSTER)
    seen = snapshot_of(scenario)
    resources = {"cpu": QueueResource(quota=amount)}
    faulty = Queue(metadata=_with(seen.queues[0].metadata, name="z"))
    faulty = _with(faulty, spec=QueueSpec(resources=resources))

    captured = read_back(replace(seen, queues=(*seen.queues, faulty)), scenario, tmp_path)

    assert [queue.name for queue in captured.queues] == [
        queue.metadata.name for queue in seen.queues
    ]
    (needed,) = captured.needs
    assert needed.startswith("queue z is left out: ")


@pytest.mark.parametrize("amounts", AMOUNTS, ids=str)
def test_an_unreadable_template_of_a_sub_group_stops_nothing(
    amounts: dict[str, str], tmp_path: Path
) -> None:
    scenario = scenario_of(CLUSTER)
    seen = snapshot_of(scenario)
    spec = {"containers": [{"name": "c", "resources": {"requests": amounts}}]}
    parts = [SubGroup(name="s", min_member=1, template=PodTemplate(spec=spec))]
    groups = [
        _with(group, spec=_with(group.spec, sub_groups=parts))
        if group.metadata.name == "a"
        else group
        for group in seen.groups
    ]

    captured = read_back(replace(seen, groups=tuple(groups)), scenario, tmp_path)

    assert "b" in [job.name for job in captured.jobs]
    (needed,) = captured.needs
    assert needed.startswith("the template of sub-group s of PodGroup default/a is left out: ")


def test_an_object_that_no_scenario_takes_is_left_out_alone(tmp_path: Path) -> None:
    scenario = scenario_of(CLUSTER)
    seen = snapshot_of(scenario)
    minimum = -7
    groups = [
        _with(group, spec=_with(group.spec, roles={"w": minimum}))
        if group.metadata.name == "a"
        else group
        for group in seen.groups
    ]

    captured = read_back(replace(seen, groups=tuple(groups)), scenario, tmp_path)

    assert [job.name for job in captured.jobs] == ["b"]
    (needed,) = captured.needs
    assert needed.startswith("job a is left out: roles.w: ")


def _pod(scenario: Scenario, name: str, place: str, amounts: dict[str, str]) -> ClusterSnapshot:
    """Return the cluster of `scenario`, in which the pod `name` requests `amounts`."""
    seen = snapshot_of(scenario)
    resources = ResourceRequirements(requests=amounts)
    value = amounts if place == "overhead" else [Container(name="x", resources=resources)]
    pods = [
        _with(pod, spec=_with(pod.spec, **{place: value})) if pod.metadata.name == name else pod
        for pod in seen.pods
    ]
    return replace(seen, pods=tuple(pods))


def _with(item: Struct, **values: object) -> Struct:
    return msgspec.structs.replace(item, **values)
