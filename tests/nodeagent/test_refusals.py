"""Hollow nodes with NUMA zones on a real API server: refusals, reports, restarts."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bindery.api import names, numadetail, podfingerprint
from devcluster.plane import ControlPlane
from tests.definitions import install_node_topologies
from tests.nodeagent.hollowagents import Agents, Cluster

pytestmark = pytest.mark.e2e

ZONES = (
    "--cpu=16",
    "--memory=32Gi",
    "--gpus=2",
    "--set=numa.sockets=2",
    "--set=numa.threadsPerCore=2",
    "--set=kubelet.cpuManagerPolicy=static",
    "--set=kubelet.topologyManagerPolicy=single-numa-node",
    "--set=kubelet.reservedSystemCPUs='0,8'",
)
"""Two zones: CPUs 0-3,8-11 (of which 0 and 8 are reserved) and 4-7,12-15; a GPU each."""


@pytest.fixture(scope="module", autouse=True)
def definition(control_plane: ControlPlane) -> None:
    install_node_topologies(control_plane)


def create(cluster: Cluster, name: str, node: str, **limits: str) -> str:
    amounts = {key.replace("gpu", "nvidia.com/gpu"): text for key, text in limits.items()}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "resources": {"limits": amounts}}],
        },
    }
    created = cluster.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(body))
    uid: str = json.loads(created)["metadata"]["uid"]
    return uid


def held(cluster: Cluster, name: str) -> dict[str, Any]:
    annotations = cluster.get("pod", name)["metadata"]["annotations"]
    found: dict[str, Any] = json.loads(annotations["hollow.bindery.dev/held"])
    return found


class Report:
    """A NodeResourceTopology."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.body = cluster.get("noderesourcetopology", node)
        annotations = self.body["metadata"]["annotations"]
        self.detail = numadetail.decode(annotations[names.NUMA_DETAIL_ANNOTATION])
        self.fingerprint = annotations[podfingerprint.ANNOTATION]
        self.attributes = {one["name"]: one["value"] for one in self.body["attributes"]}

    def amounts(self, resource: str, kind: str = "available") -> list[str]:
        return [
            one[kind]
            for zone in self.body["zones"]
            for one in zone["resources"]
            if one["name"] == resource
        ]


def reported(cluster: Cluster, node: str, pods: Sequence[str]) -> Report:
    """Wait until the report of `node` includes exactly the pods with these UIDs."""
    cluster.wait(f"noderesourcetopology/{node}", "create")
    cluster.eventually(lambda: Report(cluster, node).detail.pods == sorted(pods))
    return Report(cluster, node)


def test_a_node_refuses_pods_that_fit_no_zone_and_reports_free_resources(
    agents: Agents, cluster: Cluster
) -> None:
    agents.start(1, *ZONES)
    node = agents.node()
    empty = reported(cluster, node, [])
    assert empty.attributes["topologyManagerPolicy"] == "single-numa-node"
    assert empty.attributes["topologyManagerScope"] == "container"
    assert empty.body["topologyPolicies"] == ["SingleNUMANodeContainerLevel"]
    assert empty.amounts("cpu", "capacity") == ["8", "8"]
    assert empty.amounts("cpu", "allocatable") == empty.amounts("cpu") == ["6", "8"]
    assert empty.amounts("nvidia.com/gpu") == ["1", "1"]
    assert [zone["costs"][1]["value"] for zone in empty.body["zones"]] == [32, 10]

    first = create(cluster, "first", node, cpu="8", memory="1Gi", gpu="1")
    cluster.phase("first", "Running")
    create(cluster, "second", node, cpu="7", memory="1Gi")
    cluster.phase("second", "Failed")

    status = cluster.get("pod", "second")["status"]
    assert status["reason"] == "TopologyAffinityError"
    assert status["message"] == (
        "Pod was rejected: Resources cannot be allocated with Topology locality"
    )
    cluster.eventually(
        lambda: (
            "TopologyAffinityError"
            in cluster.kubectl("get", "events", "--field-selector=involvedObject.name=second")
        )
    )
    assert held(cluster, "first") == {
        "main": {"cpus": "4-7,12-15", "devices": {"nvidia.com/gpu": {"1": ["gpu-1"]}}}
    }
    full = reported(cluster, node, [first])
    assert full.amounts("cpu") == ["6", "0"]
    assert full.amounts("nvidia.com/gpu") == ["1", "0"]
    assert full.detail.free == "1-3,9-11"
    assert full.detail.devices == {"nvidia.com/gpu": {"node-0": ["gpu-0"], "node-1": []}}
    assert full.fingerprint == podfingerprint.sign([(cluster.namespace, "first")])
    assert full.attributes[podfingerprint.ATTRIBUTE] == full.fingerprint

    cluster.kubectl("delete", "pod", "first")
    assert reported(cluster, node, []).amounts("cpu") == ["6", "8"]


def test_pods_hold_the_same_resources_after_a_kill_without_files(
    agents: Agents, cluster: Cluster
) -> None:
    first = agents.start(1, *ZONES)
    node = agents.node()
    uids = {}
    for name in ("a", "b", "c"):
        uids[name] = create(cluster, name, node, cpu="2", memory="1Gi")
        cluster.phase(name, "Running")
    cluster.kubectl("delete", "pod", "a")
    before = reported(cluster, node, [uids["b"], uids["c"]])

    first.kill()
    cluster.kubectl("delete", "noderesourcetopology", node)
    agents.start(1, *ZONES)

    after = reported(cluster, node, [uids["b"], uids["c"]])
    assert after.detail == before.detail
    assert after.body["zones"] == before.body["zones"]
    # The node goes on from there.
    d = create(cluster, "d", node, cpu="8", memory="1Gi")
    cluster.phase("d", "Running")
    reported(cluster, node, [uids["b"], uids["c"], d])
    assert cluster.get("pod", "b")["status"]["phase"] == "Running"


def test_a_checkpoint_with_a_wrong_checksum_stops_only_its_node(
    agents: Agents, cluster: Cluster, tmp_path: Path
) -> None:
    options = (*ZONES, f"--checkpoints={tmp_path}")
    first = agents.start(2, *options)
    for index in range(2):
        cluster.wait(f"node/{agents.node(index)}", "condition=Ready")
    first.stop()
    state = tmp_path / agents.node(0) / "cpu_manager_state"
    state.write_bytes(state.read_bytes().replace(b'"checksum":', b'"checksum":1'))

    agents.start(2, *options)

    create(cluster, "runs", agents.node(1), cpu="1", memory="1Gi")
    cluster.phase("runs", "Running")
    in_default = cluster.kubectl  # events of nodes are in the namespace default

    def events() -> str:
        chosen = f"--field-selector=involvedObject.name={agents.node(0)}"
        return in_default("get", "events", "-A", chosen)

    cluster.eventually(lambda: "checkpoint is corrupted, please drain this node" in events())
    assert "KubeletSetupFailed" in events()
    create(cluster, "waits", agents.node(0), cpu="1", memory="1Gi")
    assert cluster.get("pod", "waits")["status"]["phase"] == "Pending"


def test_reports_have_the_configured_delay(agents: Agents, cluster: Cluster) -> None:
    agents.start(1, *ZONES, "--topology-delay=4")
    node = agents.node()
    reported(cluster, node, [])
    created_s = time.monotonic()

    uid = create(cluster, "first", node, cpu="2", memory="1Gi")
    reported(cluster, node, [uid])

    assert time.monotonic() - created_s >= 4
