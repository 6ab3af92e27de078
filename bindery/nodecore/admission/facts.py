"""What the admission checks know of the pod and of the node."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from bindery.nodecore.pods import Pod, Resources

SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000

PODS: Final = "pods"
"""The resource that counts pods."""

HostPort = tuple[str, str, int]
"""IP address (0.0.0.0 for all), protocol, port."""


class NodeCondition(StrEnum):
    """The conditions of a node that keep pods out."""

    MEMORY_PRESSURE = "MemoryPressure"
    DISK_PRESSURE = "DiskPressure"
    PID_PRESSURE = "PIDPressure"


@dataclass(frozen=True)
class Candidate:
    """A pod that asks to run on the node.

    Attributes:
        is_static: whether it is a static pod or its mirror; these have no owner in the API.
        tolerates_memory_pressure: whether it tolerates the taint of this condition.
        tolerates_no_execute: whether it tolerates all NoExecute taints of the node.
        matches_node_affinity: whether the node matches its node selector and required affinity.
        os: `spec.os.name`, None without it.
        host_ipc: whether it is in the node's IPC namespace.
        strict_supplemental_groups: whether `supplementalGroupsPolicy` is Strict.
        required_features: the features that its node must declare, sorted.
        is_pending: whether it has not started yet.
    """

    pod: Pod
    labels: Mapping[str, str] = field(default_factory=dict)
    is_static: bool = False
    tolerates_memory_pressure: bool = False
    tolerates_no_execute: bool = True
    matches_node_affinity: bool = True
    node_name: str = ""
    os: str | None = None
    sysctls: Sequence[str] = ()
    host_network: bool = False
    host_ipc: bool = False
    host_ports: Sequence[HostPort] = ()
    strict_supplemental_groups: bool = False
    required_features: Sequence[str] = ()
    is_pending: bool = True

    @property
    def is_critical(self) -> bool:
        """Whether the pod may push others out of the node."""
        priority = self.pod.priority
        return self.is_static or (priority is not None and priority >= SYSTEM_CRITICAL_PRIORITY)


@dataclass(frozen=True)
class NodeFacts:
    """The node.

    Attributes:
        allocatable: resource -> the amount for pods; "pods" is their largest number.
        pods: the pods that run, without the candidate.
        conditions: the conditions of the node that report pressure.
        allowed_sysctls: the unsafe sysctls that are allowed, and the safe ones; patterns end in *.
        has_supplemental_groups: whether the runtime supports supplementalGroupsPolicy.
        app_armor_error: why AppArmor profiles cannot be enforced for this pod, None if they can.
        declared_features: the features that the node declares; None if the kubelet compares none.
        is_shutting_down: whether the machine is about to go down.
    """

    name: str
    allocatable: Resources
    pods: Sequence[Candidate] = ()
    conditions: Sequence[NodeCondition] = ()
    allowed_sysctls: Sequence[str] = ()
    has_supplemental_groups: bool = True
    app_armor_error: str | None = None
    declared_features: Collection[str] | None = None
    is_shutting_down: bool = False
