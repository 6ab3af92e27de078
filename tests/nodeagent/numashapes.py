"""Shapes of machines with NUMA zones, and pods for them."""

from typing import Any

import msgspec

from bindery.kube.objects.watched import Meta, Node, NodeSpec, NodeStatus, Taint
from bindery.nodeagent.pod_objects import AgentPod
from bindery.nodeagent.shapes import ManagedNode, NodeShape, expand

SETTINGS: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
    "systemReserved": {"cpu": 2, "memory": "2Gi"},
    "reservedSystemCPUs": "0,16",
    "reservedMemory": [
        {"numaNode": 0, "limits": {"memory": "1Gi"}},
        {"numaNode": 1, "limits": {"memory": "1Gi"}},
    ],
}
KEYS: dict[str, Any] = {
    "count": 1,
    "cpu": 32,
    "memory": "64Gi",
    "gpus": 4,
    "numa": {"sockets": 2, "threadsPerCore": 2},
    "kubelet": SETTINGS,
}
"""Two sockets of one zone each: CPUs 0-7,16-23 with 32Gi and two GPUs, and 8-15,24-31 likewise."""


def one_node(**keys: object) -> ManagedNode:
    (node,) = expand((NodeShape.model_validate({**KEYS, **keys}),))
    return node


def seen(node: ManagedNode, *taints: Taint) -> Node:
    return Node(
        metadata=Meta(name=node.name, labels=node.labels),
        spec=NodeSpec(taints=list(taints)),
        status=NodeStatus(allocatable=dict(node.allocatable)),
    )


def pod(
    name: str,
    limits: dict[str, str] | None = None,
    *,
    node: str = "hollow-0",
    phase: str = "Pending",
    annotations: dict[str, str] | None = None,
    **spec: object,
) -> AgentPod:
    """Return a pod whose only container requests what it is limited to."""
    resources = {"requests": limits or {}, "limits": limits or {}}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "annotations": annotations or {},
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "resources": resources}],
                **spec,
            },
            "status": {"phase": phase},
        },
        AgentPod,
    )
