"""Hollow nodes declare the features of their kubelet, and refuse pods that need others."""

import json
from typing import Any

import pytest

from tests.nodeagent.hollowagents import Agents, Cluster

pytestmark = pytest.mark.e2e

RESTARTS = {
    "restartPolicyRules": [
        {
            "action": "RestartAllContainers",
            "exitCodes": {"operator": "In", "values": [42]},
        }
    ]
}


def create(cluster: Cluster, name: str, node: str, **container: Any) -> None:
    main = {"name": "main", "image": "none.invalid/work", "restartPolicy": "Never", **container}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [main]},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))


def test_a_node_declares_features_of_its_gates_and_runs_pods_that_need_them(
    agents: Agents, cluster: Cluster
) -> None:
    agents.start(1)
    node = agents.node()
    cluster.wait(f"node/{node}", "condition=Ready")

    assert cluster.get("node", node)["status"]["declaredFeatures"] == [
        "ExtendWebSocketsToKubelet",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    ]
    create(cluster, "restarts", node, **RESTARTS)
    cluster.phase("restarts", "Running")


def test_a_node_without_the_feature_refuses_the_pod_with_the_kubelets_message(
    agents: Agents, cluster: Cluster
) -> None:
    agents.start(1, "--set=kubelet.featureGates.RestartAllContainersOnContainerExits=false")
    node = agents.node()
    cluster.wait(f"node/{node}", "condition=Ready")

    create(cluster, "restarts", node, **RESTARTS)
    cluster.phase("restarts", "Failed")

    status = cluster.get("pod", "restarts")["status"]
    assert status["reason"] == "PodFeatureUnsupported"
    assert status["message"] == (
        "Pod was rejected: Pod requires node features that are not available: "
        "RestartAllContainersOnContainerExits"
    )
    declared = cluster.get("node", node)["status"]["declaredFeatures"]
    assert "RestartAllContainersOnContainerExits" not in declared


def test_other_gates_of_the_agent_change_the_features_that_nodes_declare(
    agents: Agents, cluster: Cluster
) -> None:
    first = agents.start(1)
    node = agents.node()
    cluster.wait(f"node/{node}", "condition=Ready")
    first.stop()

    agents.start(1, "--set=kubelet.featureGates.NodeDeclaredFeatures=false")

    cluster.eventually(lambda: not cluster.get("node", node)["status"].get("declaredFeatures"))
    create(cluster, "restarts", node, **RESTARTS)
    cluster.phase("restarts", "Running")
