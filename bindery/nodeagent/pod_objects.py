"""The fields of a pod that the node agent reads.

A separate struct beside `bindery.kube.objects.watched.Pod`, because the scheduler needs other
fields, and each declared field costs time at every event.
"""

from typing import Final

import msgspec

from bindery.kube.objects.podspec import Affinity, Container, ResourceRequirements, Toleration
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Condition, ExtendedClaimStatus, KubeObject

__all__ = ["HOLLOW_PODS", "AgentPod", "AgentPodSpec", "AgentPodStatus", "NodeContainer"]


class Sysctl(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A kernel parameter."""

    name: str = ""


class PodSecurityContext(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PodSecurityContext`, as far as an agent reads it."""

    sysctls: list[Sysctl] | None = None


class PodOs(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PodOS`."""

    name: str = ""


class ReadinessGate(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PodReadinessGate`."""

    condition_type: str = ""


class Variable(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`EnvVar`, without its sources."""

    name: str = ""
    value: str = ""


class NodeContainer(Container, frozen=True, rename="camel", kw_only=True, gc=False):
    """`Container`, as far as the node agent reads it."""

    env: list[Variable] | None = None


class AgentPodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PodSpec`, as far as an agent reads it."""

    node_name: str = ""
    host_network: bool = False
    host_users: bool | None = None
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    containers: list[NodeContainer] = msgspec.field(default_factory=list)
    init_containers: list[NodeContainer] | None = None
    resources: ResourceRequirements | None = None
    overhead: dict[str, str] | None = None
    priority: int | None = None
    active_deadline_seconds: int | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    os: PodOs | None = None
    security_context: PodSecurityContext | None = None
    readiness_gates: list[ReadinessGate] | None = None


class AgentPodStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PodStatus`, as far as an agent reads it."""

    phase: str = ""
    qos_class: str = ""
    start_time: str | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[Condition] | None = None
    extended_resource_claim_status: ExtendedClaimStatus | None = None


class AgentPod(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A bound pod."""

    spec: AgentPodSpec = msgspec.field(default_factory=AgentPodSpec)
    status: AgentPodStatus = msgspec.field(default_factory=AgentPodStatus)

    @property
    def is_ready(self) -> bool:
        """Whether the condition Ready is true."""
        return any(
            one.type == "Ready" and one.status == "True" for one in self.status.conditions or ()
        )

    @property
    def passes_gates(self) -> bool:
        """Whether the conditions of all its readiness gates are true."""
        true = {one.type for one in self.status.conditions or () if one.status == "True"}
        return all(gate.condition_type in true for gate in self.spec.readiness_gates or ())


# A node does not forget an unreadable pod.
HOLLOW_PODS: Final = PODS.decoded_as(AgentPod, held=lambda pod, _: pod)
