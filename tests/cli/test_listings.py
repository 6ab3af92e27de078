"""The rows of `bindery get`, over clusters that scenarios describe."""

from dataclasses import replace

import msgspec
import pytest

from bindery.answers.listings import gang_rows, request_rows
from bindery.answers.queuerows import queue_rows
from bindery.answers.subjects import subject
from bindery.api.gpus import GpuResources
from bindery.api.states import GPUS_IDLE, SCHEDULED
from bindery.cli.text.state import state_lines
from bindery.kube.objects.bindrequests import CommittedStatement, PodBinding, StatementSpec
from bindery.kube.objects.claims import (
    DeviceClaim,
    DeviceRequest,
    ExactRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from bindery.kube.objects.podgroups import Dependency, PodGroup, PodGroupSpec, SubGroup
from bindery.kube.objects.podspec import PodResourceClaim
from bindery.kube.objects.queues import GangCounts, QueueSpec, QueueStatus
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import Condition, Meta, OwnerReference
from bindery.kube.objects.workloads import JobStatus, WorkloadJob
from bindery.scheduler.insight.shares import cluster_shares
from tests.inlinescenarios import scenario_of, snapshot_of, source_of

SCENARIO = scenario_of(
    """
    nodes: [{name: "node{i}", count: 5, gpus: 8}]
    queues:
    - {name: org, gpu: {limit: 10}}
    - {name: team, parent: org, priority: 200, cpu: {limit: "4"}, state: Closed}
    jobs:
    - name: part
      queue: team
      minMember: 2
      pods:
      - {gpus: 2, cpu: 1500m, memory: 1Gi, state: Running, node: node0}
      - {gpus: 2, state: Bound, node: node0}
      - {gpus: 2}
      - {gpus: 2, state: Succeeded}
    - {name: asked, queue: org, pods: [{count: 4, gpus: 1}]}
    bindRequests:
    - {pods: [asked-0, asked-1], node: node1, failedAttempts: 2, age: 5m}
    """
)


def with_condition(snapshot: ClusterSnapshot, group: str, status: str) -> ClusterSnapshot:
    said = Condition(type=SCHEDULED, status=status, reason="OverLimit", message="queue is full")
    groups = tuple(
        msgspec.structs.replace(g, status=msgspec.structs.replace(g.status, conditions=[said]))
        if g.metadata.name == group
        else g
        for g in snapshot.groups
    )
    return replace(snapshot, groups=groups)


def test_a_gang_with_idle_gpus_is_marked_and_has_the_reason() -> None:
    idle = Condition(type=GPUS_IDLE, status="True", reason=GPUS_IDLE, message="none is used")
    found = snapshot_of(SCENARIO)
    groups = tuple(
        msgspec.structs.replace(g, status=msgspec.structs.replace(g.status, conditions=[idle]))
        for g in found.groups
    )

    rows = gang_rows(replace(found, groups=groups), SCENARIO.now)

    assert {row["waits"] for row in rows} == {"GpusIdle: none is used"}
    assert all(row["idle"] for row in rows)


def test_a_gang_shows_its_pods_and_the_reason_why_it_waits() -> None:
    snapshot = with_condition(snapshot_of(SCENARIO), "part", "False")

    asked, part = gang_rows(snapshot, SCENARIO.now)

    assert part == {
        "namespace": "default",
        "name": "part",
        "queue": "team",
        "state": "Waiting",
        "running": 1,
        "bound": 2,
        "min": 2,
        "pods": 4,
        "turn": "",
        "age": "2s",
        "reason": "OverLimit",
        "message": "queue is full",
        "waits": "OverLimit: queue is full",
        "idle": False,
    }
    assert asked["waits"] == ""


def test_a_gang_shows_the_state_of_its_podgroup() -> None:
    snapshot = snapshot_of(SCENARIO)
    (group,) = [group for group in snapshot.groups if group.metadata.name == "part"]
    status = msgspec.structs.replace(group.status, state="Evicted")
    snapshot = replace(snapshot, groups=(msgspec.structs.replace(group, status=status),))

    states = {row["name"]: row["state"] for row in gang_rows(snapshot, SCENARIO.now)}
    assert states["part"] == "Evicted"


def test_a_missing_podgroup_is_listed_with_the_pods_that_name_it() -> None:
    snapshot = snapshot_of(SCENARIO)
    said = Condition(
        type="PodScheduled",
        status="False",
        reason="PodGroupDoesNotExist",
        message="PodGroup asked does not exist",
    )
    pods = tuple(
        msgspec.structs.replace(
            pod, status=msgspec.structs.replace(pod.status, conditions=[said], phase="Pending")
        )
        for pod in snapshot.pods
        if snapshot.claims.of(pod).group == "asked"
    )

    (row,) = gang_rows(ClusterSnapshot(pods=pods), SCENARIO.now)

    assert (row["name"], row["state"], row["pods"], row["min"]) == ("asked", "Waiting", 4, "")
    assert row["waits"] == "PodGroupDoesNotExist: PodGroup asked does not exist"


@pytest.mark.parametrize(
    ("uid", "condition", "shown"),
    [
        (
            "j",
            "Failed",
            "Job default/train has failed (BackoffLimitExceeded): ",
        ),
        ("j", "Complete", "OverLimit: queue is full"),
        ("another", "Failed", "OverLimit: queue is full"),
    ],
)
def test_a_gang_shows_that_its_job_has_failed(uid: str, condition: str, shown: str) -> None:
    snapshot = with_condition(snapshot_of(SCENARIO), "part", "False")
    said = Condition(type=condition, status="True", reason="BackoffLimitExceeded")
    meta = Meta(name="train", namespace="default", uid=uid)
    job = WorkloadJob(metadata=meta, status=JobStatus(failed=1, conditions=[said]))
    owner = OwnerReference(kind="Job", name="train", uid="j", controller=True)
    groups = tuple(
        msgspec.structs.replace(
            g, metadata=msgspec.structs.replace(g.metadata, owner_references=[owner])
        )
        for g in snapshot.groups
        if g.metadata.name == "part"
    )
    snapshot = replace(snapshot, groups=groups, workload_jobs=(job,))

    row = next(each for each in gang_rows(snapshot, SCENARIO.now) if each["name"] == "part")
    lines = state_lines(snapshot, subject(snapshot, "part", "default"), SCENARIO.now)

    assert str(row["waits"]).startswith(shown)
    assert any("has failed" in line for line in lines) == shown.startswith("Job")


@pytest.mark.parametrize(
    ("minimum", "some", "least"),
    [(1, None, 3), (5, None, 5), (1, 1, 1)],
)
def test_a_gang_with_stages_shows_the_number_of_pods_of_all_stages(
    minimum: int, some: int | None, least: int
) -> None:
    later = SubGroup(
        name="work", min_member=2, after=[Dependency(sub_group="head", condition="Ready")]
    )
    spec = PodGroupSpec(
        min_member=minimum,
        min_sub_group=some,
        sub_groups=[SubGroup(name="head", min_member=1), later],
    )
    group = PodGroup(metadata=Meta(name="staged", namespace="team"), spec=spec)

    (row,) = gang_rows(ClusterSnapshot(groups=(group,)), SCENARIO.now)

    assert row["min"] == least


def test_single_pods_are_listed_while_they_wait() -> None:
    snapshot = snapshot_of(SCENARIO)
    singles = []
    for number, pod in enumerate(snapshot.pods[:3]):
        metadata = msgspec.structs.replace(
            pod.metadata, name=f"single-{number}", uid=f"single-{number}", annotations={}
        )
        said = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="no")
        singles.append(
            msgspec.structs.replace(
                pod,
                metadata=metadata,
                spec=msgspec.structs.replace(pod.spec, node_name="node0" if number == 2 else ""),
                status=msgspec.structs.replace(pod.status, conditions=[said], phase="Pending"),
            )
        )
    binding = PodBinding(pod_name="single-1", pod_uid="single-1", selected_node="node0")
    spec = StatementSpec(pods=[binding], id="s")
    snapshot = ClusterSnapshot(pods=tuple(singles), statements=(CommittedStatement(spec=spec),))

    rows = gang_rows(snapshot, SCENARIO.now)

    assert [(row["name"], row["state"], row["waits"]) for row in rows] == [
        ("pod/single-0", "Waiting", "Unschedulable: no"),
        ("pod/single-1", "Binding", ""),
    ]


def test_a_gang_that_is_scheduled_waits_for_nothing() -> None:
    snapshot = with_condition(snapshot_of(SCENARIO), "part", "True")

    assert gang_rows(snapshot, SCENARIO.now)[1]["waits"] == ""


def test_a_scheduled_gang_shows_the_reason_why_its_other_pods_wait() -> None:
    snapshot = snapshot_of(SCENARIO)
    text = "2 more pods wait: 0/5 nodes are available"
    said = Condition(type=SCHEDULED, status="True", reason="Scheduled", message=text)
    groups = tuple(
        msgspec.structs.replace(g, status=msgspec.structs.replace(g.status, conditions=[said]))
        for g in snapshot.groups
    )

    _, part = gang_rows(replace(snapshot, groups=groups), SCENARIO.now)

    assert (part["reason"], part["waits"]) == ("", text)


def test_a_gang_shows_which_of_its_bound_pods_do_not_start() -> None:
    snapshot = snapshot_of(SCENARIO)
    late = Condition(type="PodsNotRunning", status="True", reason="NodeNotReady", message="node n")
    groups = tuple(
        msgspec.structs.replace(g, status=msgspec.structs.replace(g.status, conditions=[late]))
        for g in snapshot.groups
    )

    _, part = gang_rows(replace(snapshot, groups=groups), SCENARIO.now)

    assert part["waits"] == "NodeNotReady: node n"


def test_a_queue_shows_allocations_and_limits_with_its_descendants() -> None:
    snapshot = snapshot_of(SCENARIO)
    counted = {"org": GangCounts(running=4, pending=2), "team": GangCounts(running=2, pending=1)}
    queues = tuple(
        msgspec.structs.replace(each, status=QueueStatus(gangs=counted[each.metadata.name]))
        for each in snapshot.queues
    )

    org, team = queue_rows(replace(snapshot, queues=queues))

    assert org == {
        "name": "org",
        "parent": "",
        "priority": 100,
        "state": "Open",
        "gpu": "6/10",
        "cpu": "1.5/-",
        "memory": "1Gi/-",
        "kept": "",
        "running": 4,
        "waiting": 2,
        "problem": "",
    }
    assert team == {
        "name": "team",
        "parent": "org",
        "priority": 200,
        "state": "Closed",
        "gpu": "4/-",
        "cpu": "1.5/4",
        "memory": "1Gi/-",
        "kept": "",
        "running": 2,
        "waiting": 1,
        "problem": "QueueClosed: queue team is closed",
    }


def test_a_queue_that_gangs_name_and_that_does_not_exist_is_listed_as_missing() -> None:
    scenario = """
    nodes: [{name: n0}]
    queues: [{name: zebra}]
    jobs:
    - {name: a, queue: nowhere, pods: [{cpu: "1"}]}
    - {name: b, pods: [{cpu: "1"}]}
    """

    missing, zebra = queue_rows(snapshot_of(scenario_of(scenario)))

    assert (missing["name"], missing["state"]) == ("nowhere", "Missing")
    assert missing["problem"] == "QueueDoesNotExist: queue nowhere does not exist"
    assert (zebra["name"], zebra["problem"]) == ("zebra", "")


def test_amounts_of_cores_are_decimal_numbers_also_from_a_status() -> None:
    scenario = """
    nodes: [{name: n0}]
    queues: [{name: q, cpu: {limit: "160"}}]
    jobs: [{name: a, queue: q, pods: [{cpu: 82700m, state: Running, node: n0}]}]
    """
    snapshot = snapshot_of(scenario_of(scenario))
    kept = [
        msgspec.structs.replace(
            each, status=msgspec.structs.replace(each.status, kept={"cpu": "1500m"})
        )
        for each in snapshot.queues
    ]

    (row,) = queue_rows(replace(snapshot, queues=tuple(kept)))

    assert (row["cpu"], row["kept"]) == ("82.7/160", "1.5 cpu")


def test_a_queue_shows_the_gpus_of_resource_claims() -> None:
    snapshot = snapshot_of(SCENARIO)
    bound = next(pod for pod in snapshot.pods if pod.spec.node_name)
    use = PodResourceClaim(name="gpus", resource_claim_name="two")
    pods = tuple(
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resource_claims=[use]))
        if pod is bound
        else pod
        for pod in snapshot.pods
    )
    asked = ExactRequest(device_class_name="gpu.nvidia.com", count=2)
    claim = ResourceClaim(
        metadata=msgspec.structs.replace(bound.metadata, name="two", uid="uid-two"),
        spec=ResourceClaimSpec(
            devices=DeviceClaim(requests=[DeviceRequest(name="r", exactly=asked)])
        ),
    )

    before = {row["name"]: row["gpu"] for row in queue_rows(snapshot)}
    snapshot = replace(snapshot, pods=pods, further=(claim,))
    after = {row["name"]: row["gpu"] for row in queue_rows(snapshot)}

    assert (before["org"], after["org"]) == ("6/10", "8/10")


def test_a_queue_with_a_missing_parent_has_the_reason_of_its_condition() -> None:
    snapshot = snapshot_of(SCENARIO)
    spec = QueueSpec(parent="nowhere")
    odd = msgspec.structs.replace(snapshot.queues[0], spec=spec)

    row = next(row for row in queue_rows(replace(snapshot, queues=(odd,))) if row["parent"])

    assert str(row["problem"]).startswith("ParentDoesNotExist: spec.parent: queue nowhere")


def test_an_unreadable_object_is_shown_with_its_error_beside_the_others() -> None:
    snapshot = with_condition(snapshot_of(SCENARIO), "part", "True")
    (_, team), (part, *others) = snapshot.queues, snapshot.groups
    fault = "Expected `int`, got `str` - at `$.spec.priority`"
    odd = msgspec.structs.replace(team, spec=QueueSpec(), unreadable=fault)
    odd_part = msgspec.structs.replace(part, unreadable=fault)
    snapshot = replace(snapshot, queues=(snapshot.queues[0], odd), groups=(odd_part, *others))

    assert [row["problem"] for row in queue_rows(snapshot)] == [
        "",
        f"Invalid: {fault}",
    ]
    waits = {row["name"]: row["waits"] for row in gang_rows(snapshot, SCENARIO.now)}
    assert waits == {"part": f"Invalid: {fault}", "asked": ""}


def test_a_request_shows_its_progress_and_nodes() -> None:
    (row,) = request_rows(snapshot_of(SCENARIO), SCENARIO.now)

    assert row["phase"] == "Pending"
    assert row["gang"] == "pod/asked-0,pod/asked-1"
    assert row["bound"] == "0/2"
    assert row["nodes"] == "node1"
    assert row["attempts"] == 2
    assert row["age"] == "5m"


def test_a_pod_with_a_part_of_a_hami_card_counts_as_that_fraction() -> None:
    """As for the scheduler: 2500 of 10000 MiB are a quarter of the card."""
    scenario = scenario_of(
        """
        nodes: [{name: n0, gpuMemory: 10000, devices: [{shares: 10}, {shares: 10}]}]
        queues: [{name: q}]
        jobs:
        - {name: a, queue: q, pods: [{gpuMemory: 2500, state: Running, node: n0, gpu: ["0"]}]}
        - {name: b, queue: q, pods: [{gpuMemory: 5000, state: Running, node: n0, gpu: ["1"]}]}
        """
    )

    (row,) = queue_rows(snapshot_of(scenario))

    with source_of(scenario).world().engine.session() as session:
        (share,) = (each for each in cluster_shares(session).queues if each.name == "q")
    assert row["gpu"] == "0.75/-"
    assert share.resources["gpu"].allocated == 0.75


def test_a_queue_counts_the_same_gpus_as_the_scheduler() -> None:
    scenario = scenario_of(
        """
        nodes: [{name: n0, resources: {vendor.com/accelerator: 4}}]
        queues: [{name: q}]
        jobs:
        - name: a
          queue: q
          pods: [{resources: {vendor.com/accelerator: 3}, state: Running, node: n0}]
        """
    )

    (row,) = queue_rows(snapshot_of(scenario), GpuResources(("vendor.com/*",)))

    assert row["gpu"] == "3/-"
