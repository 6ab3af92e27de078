"""Hollow nodes on a real API server, run as users run them."""

import json

import pytest

from bindery.api import names
from bindery.api.times import seconds
from bindery.nodeagent.lifecycle import STOP_SECONDS_ANNOTATION
from bindery.nodeagent.shapes import HOLLOW_LABEL
from devcluster.plane import ControlPlane
from tests.nodeagent.hollowagents import Agents, Cluster

pytestmark = pytest.mark.e2e

RUN = names.HOLLOW_RUN_SECONDS_ANNOTATION


def test_nodes_become_ready_with_the_resources_of_their_shape(
    agents: Agents, cluster: Cluster
) -> None:
    agents.start(3, "--gpus=4", "--cpu=32", "--memory=256Gi", "--racks=3", "--zones=1")

    for index in range(3):
        cluster.wait(f"node/{agents.node(index)}", "condition=Ready")
    node = cluster.get("node", agents.node(2))
    assert node["status"]["allocatable"] == node["status"]["capacity"]
    assert node["status"]["allocatable"] == {
        "cpu": "32",
        "memory": "256Gi",
        "ephemeral-storage": "1Ti",
        "pods": "110",
        names.GPU_RESOURCE: "4",
    }
    labels = node["metadata"]["labels"]
    assert labels[names.RACK_LABEL] == "zone-0-rack-2"
    assert labels[names.HOSTNAME_LABEL] == agents.node(2)


def test_the_node_controller_removes_the_startup_taints(agents: Agents, cluster: Cluster) -> None:
    agents.start(1)

    cluster.wait(f"node/{agents.node()}", "condition=Ready")
    # Admission taints every new node; the controller takes the taint away when it is Ready.
    cluster.eventually(lambda: "taints" not in cluster.get("node", agents.node())["spec"])


def epoch_s(text: str) -> float:
    at_s = seconds(text)
    assert at_s is not None
    return at_s


def test_a_bound_pod_runs_and_succeeds_after_its_seconds(agents: Agents, cluster: Cluster) -> None:
    agents.start(1)
    cluster.create_pod("short", agents.node(), {RUN: "2"})
    cluster.create_pod("long", agents.node())

    cluster.wait("pod/long", "condition=Ready")
    cluster.phase("short", "Succeeded")
    short, long = cluster.get("pod", "short")["status"], cluster.get("pod", "long")["status"]
    (state,) = (container["state"]["terminated"] for container in short["containerStatuses"])
    # The times are whole seconds, and a busy machine may be late.
    assert 1 <= epoch_s(state["finishedAt"]) - epoch_s(short["startTime"]) < 15
    assert state["exitCode"] == 0
    assert long["phase"] == "Running"
    assert long["podIP"] != short["podIP"]
    assert long["hostIP"] == cluster.get("node", agents.node())["status"]["addresses"][0]["address"]
    assert {condition["type"]: condition["status"] for condition in long["conditions"]} == {
        "PodScheduled": "True",
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }


def test_a_malformed_annotation_is_an_event_and_the_pod_keeps_running(
    agents: Agents, cluster: Cluster
) -> None:
    agents.start(1)
    cluster.create_pod("wrong", agents.node(), {RUN: "soon"})
    cluster.create_pod("right", agents.node(), {RUN: "0"})

    cluster.phase("right", "Succeeded")
    cluster.phase("wrong", "Running")
    cluster.eventually(
        lambda: (
            "'soon' is not a number of seconds"
            in cluster.kubectl("get", "events", "--field-selector=involvedObject.name=wrong")
        )
    )


def test_a_deleted_pod_stops_after_its_annotated_seconds_within_its_grace_period(
    agents: Agents, cluster: Cluster
) -> None:
    agents.start(1)
    cluster.create_pod("slow", agents.node(), {STOP_SECONDS_ANNOTATION: "3"})
    cluster.phase("slow", "Running")

    cluster.kubectl("delete", "pod", "slow", "--grace-period=60", "--wait=false")
    slow = cluster.get("pod", "slow")
    assert slow["status"]["phase"] == "Running"
    assert slow["metadata"]["deletionGracePeriodSeconds"] == 60

    cluster.wait("pod/slow", "delete", timeout_s=20)


def test_a_deleted_pod_is_killed_when_its_grace_ends(agents: Agents, cluster: Cluster) -> None:
    agents.start(1)
    cluster.create_pod("stubborn", agents.node(), {STOP_SECONDS_ANNOTATION: "3600"})
    cluster.phase("stubborn", "Running")

    cluster.kubectl("delete", "pod", "stubborn", "--grace-period=2", "--timeout=20s")

    assert cluster.names("pods") == []


def test_a_deleted_pod_with_a_finalizer_has_its_final_status(
    agents: Agents, cluster: Cluster
) -> None:
    agents.start(1)
    cluster.create_pod("kept", agents.node(), finalizers=["test.bindery.dev/keep"])
    cluster.phase("kept", "Running")

    cluster.kubectl("delete", "pod", "kept", "--wait=false")
    cluster.phase("kept", "Failed")
    kept = cluster.get("pod", "kept")
    assert kept["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143

    cluster.kubectl("patch", "pod", "kept", "--type=merge", '-p={"metadata":{"finalizers":null}}')
    cluster.wait("pod/kept", "delete", timeout_s=20)


def test_the_next_agent_continues_after_a_kill(agents: Agents, cluster: Cluster) -> None:
    first = agents.start(2)
    cluster.create_pod("running", agents.node(), {RUN: "8"})
    cluster.create_pod("deleted", agents.node())
    cluster.started("running")
    cluster.phase("deleted", "Running")
    before = cluster.get("pod", "running")["status"]
    node = cluster.get("node", agents.node(1))

    first.kill()
    cluster.kubectl("cordon", agents.node(1))
    cluster.kubectl("taint", "node", agents.node(1), "team=a:NoSchedule")
    cluster.kubectl("delete", "pod", "deleted", "--wait=false")
    cluster.create_pod("waiting", agents.node(1))
    agents.start(2, "--gpus=2")

    cluster.wait("pod/deleted", "delete")
    cluster.phase("waiting", "Running")
    cluster.phase("running", "Succeeded")
    after = cluster.get("pod", "running")["status"]
    (state,) = (container["state"]["terminated"] for container in after["containerStatuses"])
    assert after["startTime"] == before["startTime"]
    assert epoch_s(state["finishedAt"]) - epoch_s(after["startTime"]) >= 8
    assert cluster.get("pod", "waiting")["status"]["podIP"] != before["podIP"]
    adopted = cluster.get("node", agents.node(1))
    assert adopted["metadata"]["uid"] == node["metadata"]["uid"]
    assert adopted["status"]["allocatable"][names.GPU_RESOURCE] == "2"
    assert adopted["spec"]["unschedulable"] is True
    assert "team" in [taint["key"] for taint in adopted["spec"]["taints"]]


def test_leases_are_renewed_and_a_deleted_node_returns_only_with_a_new_agent(
    agents: Agents, cluster: Cluster, control_plane: ControlPlane
) -> None:
    first = agents.start(2)
    in_leases = Cluster(control_plane, "kube-node-lease")
    for index in range(2):
        name = agents.node(index)
        in_leases.wait(f"lease/{name}", "jsonpath={.spec.holderIdentity}=" + name)
    lease, node = in_leases.get("lease", agents.node(1)), cluster.get("node", agents.node(1))
    assert lease["spec"]["leaseDurationSeconds"] == 40
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]

    cluster.kubectl("delete", "node", agents.node(0))
    in_leases.wait(f"lease/{agents.node(0)}", "delete")
    since_s = epoch_s(in_leases.get("lease", agents.node(1))["spec"]["renewTime"])

    def renewed_after_s() -> float:
        renewed = in_leases.get("lease", agents.node(1))["spec"]["renewTime"]
        return epoch_s(renewed) - since_s

    # The renewal shows too that the agent had its chance to bring the deleted node back.
    in_leases.eventually(lambda: renewed_after_s() > 0)
    assert 8 <= renewed_after_s() < lease["spec"]["leaseDurationSeconds"]
    assert agents.node(0) not in cluster.names("nodes")
    assert agents.node(0) not in in_leases.names("leases")

    first.stop()
    agents.start(2)
    cluster.wait(f"node/{agents.node(0)}", "condition=Ready")


def test_a_node_that_is_not_hollow_is_untouched_and_the_others_continue(
    agents: Agents, cluster: Cluster
) -> None:
    real = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": agents.node(0)}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(real))
    try:
        agents.start(2)
        cluster.wait(f"node/{agents.node(1)}", "condition=Ready")

        untouched = cluster.get("node", agents.node(0))
        assert HOLLOW_LABEL not in untouched["metadata"].get("labels", {})
        assert "allocatable" not in untouched["status"]
    finally:
        cluster.kubectl("delete", "node", agents.node(0))


def test_nodes_are_removed_at_a_clean_stop_only_with_the_option(
    agents: Agents, cluster: Cluster
) -> None:
    staying = agents.start(1)
    cluster.wait(f"node/{agents.node()}", "condition=Ready")
    staying.stop()
    assert staying.process.exit_code == 0
    assert agents.node() in cluster.names("nodes")

    leaving = agents.start(1, "--remove-on-exit", "--pods=7")
    cluster.wait(f"node/{agents.node()}", "jsonpath={.status.allocatable.pods}=7")
    leaving.stop()
    assert leaving.process.exit_code == 0
    assert agents.node() not in cluster.names("nodes")


def test_the_agent_continues_after_an_outage_of_the_api_server(
    agents: Agents, cluster: Cluster, control_plane: ControlPlane
) -> None:
    agents.start(2)
    cluster.create_pod("before", agents.node(), {RUN: "8"})
    cluster.started("before")

    control_plane.restart_api_server()

    cluster.phase("before", "Succeeded")
    cluster.create_pod("after", agents.node(1), {RUN: "0"})
    cluster.phase("after", "Succeeded")


def test_readiness_and_metrics_show_the_registered_nodes(agents: Agents, cluster: Cluster) -> None:
    agent = agents.start(2).wait_ready()

    assert cluster.get("node", agents.node(1))["metadata"]["labels"][HOLLOW_LABEL] == "true"
    cluster.eventually(
        lambda: 'bindery_nodeagent_nodes{stage="registered"} 2.0' in agent.metrics().splitlines()
    )


def test_a_recreated_pod_is_not_mistaken_for_the_deleted_one(
    agents: Agents, cluster: Cluster
) -> None:
    agent = agents.start(1)
    cluster.create_pod("same", agents.node(), {STOP_SECONDS_ANNOTATION: "2"})
    cluster.phase("same", "Running")
    cluster.kubectl("delete", "pod", "same", "--wait=false")

    agent.process.pause()
    try:
        cluster.kubectl("delete", "pod", "same", "--force", "--grace-period=0")
        second = cluster.create_pod("same", agents.node())
    finally:
        agent.process.resume()
    cluster.phase("same", "Running")
    # Another pod that has come and gone shows that the agent is past its plans for the first.
    cluster.create_pod("other", agents.node(), {RUN: "3"})
    cluster.phase("other", "Succeeded")

    assert cluster.get("pod", "same")["metadata"]["uid"] == second
