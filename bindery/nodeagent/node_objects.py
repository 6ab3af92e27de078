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
from bindery.kube.objects.watched import Node, NodeSpec, NodeStatus
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodeagent.volumes.nodestatus import AttachedEntry
from bindery.nodecore.addresses import HOSTNAME, INTERNAL_IP, Address

Body = Mapping[str, Any]

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_DURATION_S: Final = 40
"""The kubelet's default (`nodeLeaseDurationSeconds`)."""


class AgentNodeStatus(NodeStatus, frozen=True, rename="camel", kw_only=True, gc=False):
    """`NodeStatus`, as far as an agent reads it."""

    volumes_attached: list[AttachedEntry] | None = None


class AgentNodeSpec(NodeSpec, frozen=True, rename="camel", kw_only=True, gc=False):
    """`NodeSpec`, as far as an agent reads it."""

    provider_id: str = msgspec.field(default="", name="providerID")


class AgentNode(Node, frozen=True, rename="camel", kw_only=True, gc=False):
    """A node that an agent keeps."""

    spec: AgentNodeSpec = msgspec.field(default_factory=AgentNodeSpec)
    status: AgentNodeStatus = msgspec.field(default_factory=AgentNodeStatus)


AGENT_NODES: Final = NODES.decoded_as(AgentNode)

_NO_PRESSURE: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def node_body(node: ManagedNode, now_s: float) -> Body:
    """Return the whole Node object for its creation."""
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": node.labels},
        "status": _status(node, None, now_s),
    }
    return {**body, "spec": {"providerID": node.provider_id}} if node.provider_id else body


def status_patch(
    node: ManagedNode,
    existing: Node | None,
    now_s: float,
    problem: str = "",
    in_use: Sequence[str] | None = None,
) -> Body:
    """Return the strategic merge patch that refreshes the node's status.

    A condition with the same status in `existing` keeps its transition time. `problem`: why the
    node cannot run pods, empty if it can. `in_use`: its attachable volumes, None: not known.
    """
    status = _status_patch(node, existing, now_s, problem)
    return {"status": status if in_use is None else {**status, "volumesInUse": in_use}}


def adoption_patch(node: ManagedNode, existing: Node, now_s: float) -> Body:
    """Return the status patch of a start: like `status_patch`, but it also removes resources that
    the node no longer has.
    """
    status = _status_patch(node, existing, now_s)
    lost = dict.fromkeys(set(existing.status.allocatable or ()) - set(node.resources))
    status["capacity"] = {**node.resources, **lost}
    status["allocatable"] = {**node.allocatable, **lost}
    return {"status": status}


def own_patch(node: ManagedNode, existing: AgentNode) -> Body | None:
    """Return the merge patch of what the agent sets beside the status, None for no change.

    Other labels are kept, and so is the provider's id that a Node has: it cannot be changed.
    """
    differing = {
        key: value
        for key, value in node.labels.items()
        if existing.metadata.labels.get(key) != value
    }
    patch: dict[str, Any] = {"metadata": {"labels": differing}} if differing else {}
    if node.provider_id and not existing.spec.provider_id:
        patch["spec"] = {"providerID": node.provider_id}
    return patch or None


def addresses(node: ManagedNode) -> tuple[Address, ...]:
    """Return the addresses of a node's status."""
    own = (Address(INTERNAL_IP, node.address), Address(HOSTNAME, node.name))
    return node.addresses or own


def is_marked(node: Node, mark: str) -> bool:
    """Return whether an agent of the kind that has `mark` made `node`."""
    return node.metadata.labels.get(mark) == "true"


def is_ready(node: Node) -> bool:
    """Return whether `node` has the condition Ready."""
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in node.status.conditions or ()
    )


def lease_body(node: ManagedNode, node_uid: str, now_s: float) -> Body:
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


def lease_patch(node: ManagedNode, now_s: float) -> Body:
    """Return the merge patch that renews the Lease at `now_s` (seconds since the epoch)."""
    return {
        "spec": {
            "holderIdentity": node.name,
            "leaseDurationSeconds": LEASE_DURATION_S,
            "renewTime": timestamp_micro(now_s),
        }
    }


def _status_patch(
    node: ManagedNode, existing: Node | None, now_s: float, problem: str = ""
) -> dict[str, Any]:
    status = _status(node, existing, now_s, problem)
    if node.addresses:
        # They are merged by type, of which there may be several addresses.
        status["addresses"] = [{"$patch": "replace"}, *status["addresses"]]
    return status


def _status(
    node: ManagedNode, existing: Node | None, now_s: float, problem: str = ""
) -> dict[str, Any]:
    about = node.description
    return {
        "capacity": node.resources,
        "allocatable": node.allocatable,
        "declaredFeatures": node.machine.declared_features,
        "conditions": _conditions(existing, about.note, problem, now_s),
        # A second import under the same tag leaves an image with `names: null`.
        "images": [{"sizeBytes": size} for size in about.image_bytes],
        "addresses": [{"type": one.kind, "address": one.address} for one in addresses(node)],
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


def _endpoints(node: ManagedNode) -> dict[str, Any]:
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
