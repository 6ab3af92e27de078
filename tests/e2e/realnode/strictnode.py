"""A third real node whose kubelet has static managers and wants all of a pod in one zone."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.e2e.realnode import realdevices
from tests.e2e.realnode.realpods import DEVICE

NAME: Final = "node-3"
TOLERATED: Final = [{"key": "bindery.dev/strict", "operator": "Exists"}]
"""Tolerations of pods that may be scheduled there."""
KUBELET: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "memoryManagerPolicy": "Static",
    "systemReserved": {"memory": "500Mi"},
    "evictionHard": {
        "memory.available": "100Mi",
        "nodefs.available": "1%",
        "imagefs.available": "1%",
    },
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "600Mi"}}],
    "topologyManagerPolicy": "single-numa-node",
    "registerWithTaints": [{"key": "bindery.dev/strict", "effect": "NoSchedule"}],
}

SERVICES: Final = {
    "devices": "exec sample-device-plugin",
    realdevices.SERVICE: realdevices.service(),
}
"""Kubernetes' sample device plugin and ours."""


@contextmanager
def added(cluster: RealCluster, services: Mapping[str, str] = SERVICES) -> Iterator[RealNode]:
    """Start the node, and remove it afterwards. `services`: beside its kubelet."""
    node = cluster.add_node(cluster.plan(3, services=services, kubelet=KUBELET))
    offered = "jsonpath={.status.allocatable." + DEVICE.replace(".", r"\.") + "}=2"
    cluster.control_plane.kubectl("wait", f"node/{NAME}", f"--for={offered}", "--timeout=60s")
    yield node
    cluster.nodes.pop(NAME).crash()
    cluster.control_plane.kubectl("delete", "node", NAME)
