from typing import Any

from bindery.kube.objects.watched import Condition, Meta, Node, NodeStatus
from bindery.nodeagent import node_objects, pod_status
from bindery.nodeagent.node_objects import AgentNode
from bindery.nodeagent.pod_objects import AgentPod, AgentPodSpec, AgentPodStatus, NodeContainer
from bindery.nodeagent.shapes import NodeShape, expand

NOW_S = 1_800_000_000.0
NOW = "2027-01-15T08:00:00Z"
BEFORE = "2026-01-01T00:00:00Z"
(NODE,) = expand((NodeShape(count=1),))


def conditions(patch: Any) -> dict[str, Any]:
    return {condition["type"]: condition for condition in patch["status"]["conditions"]}


def test_a_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    existing = Node(
        status=NodeStatus(
            conditions=[
                Condition(type="Ready", status="Unknown", last_transition_time=BEFORE),
                Condition(type="DiskPressure", status="False", last_transition_time=BEFORE),
            ]
        )
    )

    found = conditions(node_objects.status_patch(NODE, existing, NOW_S))

    assert found["Ready"]["lastTransitionTime"] == NOW
    assert found["DiskPressure"]["lastTransitionTime"] == BEFORE
    assert found["DiskPressure"]["lastHeartbeatTime"] == NOW


def test_an_adopted_node_loses_resources_that_its_shape_does_not_have() -> None:
    existing = Node(status=NodeStatus(allocatable={"cpu": "1", "rdma/hca": "8"}))

    status = node_objects.adoption_patch(NODE, existing, NOW_S)["status"]

    assert status["allocatable"]["rdma/hca"] is None
    assert status["allocatable"]["cpu"] == "64"


def test_only_labels_that_differ_are_written() -> None:
    labels = {**NODE.labels, "kubernetes.io/arch": "arm64", "theirs": "kept"}

    patch = node_objects.own_patch(NODE, AgentNode(metadata=Meta(labels=labels)))

    assert patch == {"metadata": {"labels": {"kubernetes.io/arch": "amd64"}}}
    assert node_objects.own_patch(NODE, AgentNode(metadata=Meta(labels=NODE.labels))) is None


def test_a_patch_leaves_the_fields_of_others_in_the_nodes_spec() -> None:
    assert "spec" not in node_objects.node_body(NODE, NOW_S)
    assert node_objects.adoption_patch(NODE, Node(), NOW_S).keys() == {"status"}


POD = AgentPod(
    metadata=Meta(name="a", uid="u"),
    spec=AgentPodSpec(
        containers=[NodeContainer(name="main", image="train:1")],
        init_containers=[
            NodeContainer(name="fetch", image="fetch:1"),
            NodeContainer(name="proxy", image="proxy:1", restart_policy="Always"),
        ],
    ),
    status=AgentPodStatus(
        phase="Pending",
        conditions=[Condition(type="PodScheduled", status="True", last_transition_time=BEFORE)],
    ),
)


def test_a_running_pod_has_running_sidecars_and_finished_init_containers() -> None:
    patch: Any = pod_status.running(POD, "198.18.0.1", "100.64.0.1", NOW_S)

    status = patch["status"]
    assert patch["metadata"] == {"uid": "u"}
    assert (status["phase"], status["startTime"]) == ("Running", NOW)
    assert (status["podIP"], status["hostIP"]) == ("100.64.0.1", "198.18.0.1")
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": NOW}}
    fetch, proxy = status["initContainerStatuses"]
    assert (fetch["state"]["terminated"]["exitCode"], fetch["ready"]) == (0, True)
    assert (proxy["state"], proxy["ready"]) == ({"running": {"startedAt": NOW}}, True)
    assert conditions(patch)["Ready"]["status"] == "True"
    assert "PodScheduled" not in conditions(patch), "it is the scheduler's, and true already"


def test_conditions_of_others_come_first_and_the_kubelets_in_its_order() -> None:
    others = [Condition(type="PodScheduled", status="True"), Condition(type="DisruptionTarget")]
    pod = AgentPod(metadata=POD.metadata, spec=POD.spec, status=AgentPodStatus(conditions=others))

    patch: Any = pod_status.running(pod, "198.18.0.1", "100.64.0.1", NOW_S)

    assert [each["type"] for each in patch["status"]["$setElementOrder/conditions"]] == [
        "DisruptionTarget",
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]


def test_an_existing_start_time_is_kept() -> None:
    started = AgentPod(
        metadata=POD.metadata, spec=POD.spec, status=AgentPodStatus(start_time=BEFORE)
    )

    patch: Any = pod_status.running(started, "198.18.0.1", "100.64.0.1", NOW_S)

    assert patch["status"]["startTime"] == BEFORE


def test_a_terminated_pod_shows_the_exit_codes_of_its_containers() -> None:
    succeeded: Any = pod_status.ended(POD, 0, NOW_S)
    failed: Any = pod_status.ended(POD, 137, NOW_S)

    assert succeeded["status"]["phase"] == "Succeeded"
    assert conditions(succeeded)["Ready"]["reason"] == "PodCompleted"
    assert failed["status"]["phase"] == "Failed"
    (main,) = failed["status"]["containerStatuses"]
    assert main["state"]["terminated"] == {
        "exitCode": 137,
        "reason": "Error",
        "startedAt": NOW,
        "finishedAt": NOW,
    }
    assert main["ready"] is False
