"""The API objects of a node: Node, its status and label patches, its Lease.

Used by `nodes`. Pure. The fields are those of a kubelet, but texts for people mark a hollow node as
one without a machine. `spec` is written only at creation, because cordons and taints belong to
other writers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from bindery.api.times import timestamp, timestamp_micro
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.watched import Node, NodeStatus
from bindery.nodeagent.shapes import HollowNode
from bindery.nodeagent.volumes.nodestatus import AttachedEntry

Body = Mapping[str, Any]

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_DURATION_S: Final = 40
"""The kubelet's default (`nodeLeaseDurationSeconds`)."""


class AgentNodeStatus(NodeStatus, frozen=True, rename="camel", kw_only=True, gc=False):
    """`NodeStatus`, as far as an agent reads it."""

    volumes_attached: list[AttachedEntry] | None = None


class AgentNode(Node, frozen=True, rename="camel", kw_only=True, gc=False):
    """A node that an agent keeps."""

    status: AgentNodeStatus = msgspec.field(default_factory=AgentNodeStatus)


AGENT_NODES: Final = NODES.decoded_as(AgentNode)

_NO_PRESSURE: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def node_body(node: HollowNode, now_s: float) -> Body:
    """Return the whole Node object for its creation."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": node.labels},
        "status": _status(node, None, now_s),
    }


def status_patch(
    node: HollowNode,
    existing: Node | None,
    now_s: float,
    problem: str = "",
    in_use: Sequence[str] | None = None,
) -> Body:
    """Return the strategic merge patch that refreshes the node's status.

    A condition with the same status in `existing` keeps its transition time. `problem`: why the
    node cannot run pods, empty if it can. `in_use`: its attachable volumes, None: not known.
    """
    status = _status(node, existing, now_s, problem)
    return {"status": status if in_use is None else {**status, "volumesInUse": in_use}}


def adoption_patch(node: HollowNode, existing: Node, now_s: float) -> Body:
    """Return the status patch of a start: like `status_patch`, but it also removes resources that
    the node no longer has.
    """
    status = _status(node, existing, now_s)
    lost = dict.fromkeys(set(existing.status.allocatable or ()) - set(node.resources))
    status["capacity"] = {**node.resources, **lost}
    status["allocatable"] = {**node.allocatable, **lost}
    return {"status": status}


def label_patch(node: HollowNode, existing: Node) -> Body | None:
    """Return the merge patch of the shape's labels, None for no change; others are kept."""
    differing = {
        key: value
        for key, value in node.labels.items()
        if existing.metadata.labels.get(key) != value
    }
    return {"metadata": {"labels": differing}} if differing else None


def is_marked(node: Node, mark: str) -> bool:
    """Return whether an agent of the kind that has `mark` made `node`."""
    return node.metadata.labels.get(mark) == "true"


def is_ready(node: Node) -> bool:
    """Return whether `node` has the condition Ready."""
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in node.status.conditions or ()
    )


def lease_body(node: HollowNode, node_uid: str, now_s: float) -> Body:
    """Return the whole Lease for its creation; it is deleted together with the Node."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node.name,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node_uid}
            ],
        },
        **lease_patch(node, now_s),
    }


def lease_patch(node: HollowNode, now_s: float) -> Body:
    """Return the merge patch that renews the Lease at `now_s` (seconds since the epoch)."""
    return {
        "spec": {
            "holderIdentity": node.name,
            "leaseDurationSeconds": LEASE_DURATION_S,
            "renewTime": timestamp_micro(now_s),
        }
    }


def _status(
    node: HollowNode, existing: Node | None, now_s: float, problem: str = ""
) -> dict[str, Any]:
    about = node.description
    return {
        "capacity": node.resources,
        "allocatable": node.allocatable,
        "declaredFeatures": node.machine.declared_features,
        "conditions": _conditions(existing, about.note, problem, now_s),
        # A second import under the same tag leaves an image with `names: null`.
        "images": [{"sizeBytes": size} for size in about.image_bytes],
        "addresses": [
            {"type": "InternalIP", "address": node.address},
            {"type": "Hostname", "address": node.name},
        ],
        "nodeInfo": {
            "architecture": about.architecture,
            "operatingSystem": "linux",
            "osImage": about.os_image,
            "kernelVersion": about.kernel_version,
            "containerRuntimeVersion": about.runtime,
            "kubeletVersion": about.agent,
            "kubeProxyVersion": "",
            "machineID": about.machine_id,
            "systemUUID": about.system_uuid,
            "bootID": about.boot_id,
        },
        **_endpoints(node),
    }


def _endpoints(node: HollowNode) -> dict[str, Any]:
    if node.port is None:
        return {}
    return {"daemonEndpoints": {"kubeletEndpoint": {"Port": node.port}}}


def _conditions(
    existing: Node | None, note: str, problem: str, now_s: float
) -> list[dict[str, str]]:
    present = {
        condition.type: condition
        for condition in (existing.status.conditions if existing else None) or ()
    }
    wanted = [(kind, "False", reason, message) for kind, reason, message in _NO_PRESSURE]
    if problem:
        wanted.append(("Ready", "False", "KubeletNotReady", problem))
    else:
        wanted.append(("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
    conditions = []
    for kind, status, reason, message in wanted:
        before = present.get(kind)
        unchanged = before is not None and before.status == status
        since = before.last_transition_time if before is not None and unchanged else None
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": note or message,
                "lastHeartbeatTime": timestamp(now_s),
                "lastTransitionTime": since or timestamp(now_s),
            }
        )
    return conditions
