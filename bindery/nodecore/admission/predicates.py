"""The kubelet's checks of the scheduler's decision: room, node name, ports, taints."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from bindery.nodecore.admission.facts import PODS, Candidate, HostPort, NodeFacts
from bindery.nodecore.pods import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    Container,
    Pod,
    requests_with_overhead,
)

OUT_OF: Final = "OutOf"
_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  compared with, not bound to
_DEVICE_CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
_QUOTA_PREFIX: Final = "requests."
_LONGEST_DOMAIN: Final = 253
_LONGEST_NAME: Final = 63
_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NATIVE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


@dataclass(frozen=True)
class Insufficient:
    """The node has too little of a resource.

    Attributes:
        requested: the amount that the pod requests.
        used: the amount of the other pods.
        capacity: the allocatable amount of the node.
    """

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def reason(self) -> str:
        """The word in the pod's status."""
        return f"{OUT_OF}{self.resource}"

    @property
    def message(self) -> str:
        """The sentence in the pod's status."""
        return (
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}"
        )

    @property
    def missing(self) -> int:
        """How much more the node would need."""
        return self.requested - (self.capacity - self.used)


@dataclass(frozen=True)
class Failed:
    """A predicate that the pod fails.

    Attributes:
        reason: the predicate's name, which is the word in the pod's status.
        description: what does not fit.
    """

    reason: str
    description: str

    @property
    def message(self) -> str:
        """The sentence in the pod's status."""
        return f"Predicate {self.reason} failed: {self.description}"


Failure = Insufficient | Failed

NODE_AFFINITY: Final = Failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
NODE_NAME: Final = Failed("NodeName", "node(s) didn't match the requested node name")
NODE_PORTS: Final = Failed(
    "NodePorts", "node(s) didn't have free ports for the requested pod ports"
)
TAINTS: Final = Failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")


def failures(
    candidate: Candidate, node: NodeFacts, allocatable: Mapping[str, int]
) -> list[Failure]:
    """Return all reasons why the pod does not fit, in the kubelet's order.

    `allocatable`: the node's resources after device plugins have been looked at.
    """
    found: list[Failure] = [*insufficient(candidate, node, allocatable)]
    if not candidate.matches_node_affinity:
        found.append(NODE_AFFINITY)
    if candidate.node_name not in ("", node.name):
        found.append(NODE_NAME)
    taken = [port for other in node.pods for port in other.host_ports]
    if any(_conflict(port, other) for port in candidate.host_ports for other in taken):
        found.append(NODE_PORTS)
    if not candidate.is_static and not candidate.tolerates_no_execute:
        found.append(TAINTS)
    return found


def insufficient(
    candidate: Candidate, node: NodeFacts, allocatable: Mapping[str, int]
) -> list[Insufficient]:
    """Return the resources of which the node has too little.

    Two sorts of extended resources are not compared: resources that the node does not list, because
    a cluster-level plugin may serve them, and resources that a resource claim serves.
    """
    found = []
    count, most = len(node.pods), allocatable.get(PODS, 0)
    if count + 1 > most:
        found.append(Insufficient(PODS, 1, count, most))
    wanted = {
        name: amount
        for name, amount in requests_with_overhead(_without_claimed(candidate.pod)).items()
        if amount > 0 and not (is_extended(name) and name not in allocatable)
    }
    used = [requests_with_overhead(other.pod) for other in node.pods] if wanted else []
    others = sorted(name for name in wanted if name not in _NATIVE)
    for name in (*_NATIVE, *others):
        requested = wanted.get(name, 0)
        taken = sum(one.get(name, 0) for one in used)
        if requested > 0 and requested > allocatable.get(name, 0) - taken:
            found.append(Insufficient(name, requested, taken, allocatable.get(name, 0)))
    return found


def _without_claimed(pod: Pod) -> Pod:
    if not any(container.claimed for container in pod.all_containers):
        return pod

    def left(containers: Sequence[Container]) -> list[Container]:
        return [
            replace(
                one,
                requests={
                    name: amount
                    for name, amount in one.requests.items()
                    if not (name in one.claimed and _may_be_claimed(name))
                },
            )
            for one in containers
        ]

    return replace(pod, containers=left(pod.containers), init_containers=left(pod.init_containers))


def _may_be_claimed(resource: str) -> bool:
    return is_extended(resource) or resource.startswith(_DEVICE_CLASS_PREFIX)


@lru_cache(maxsize=1024)
def is_extended(resource: str) -> bool:
    """Return whether the resource is an extended one, which plugins serve."""
    domain, slash, name = resource.partition("/")
    if not slash or resource.startswith(_QUOTA_PREFIX) or "kubernetes.io/" in resource:
        return False
    domain = f"{_QUOTA_PREFIX}{domain}"  # quotas name it so, and the whole must be a valid name
    return (
        len(domain) <= _LONGEST_DOMAIN
        and len(name) <= _LONGEST_NAME
        and _DOMAIN.fullmatch(domain) is not None
        and _NAME.fullmatch(name) is not None
    )


def _conflict(one: HostPort, other: HostPort) -> bool:
    if one[1:] != other[1:] or one[2] <= 0:
        return False
    first, second = one[0] or _EVERY_ADDRESS, other[0] or _EVERY_ADDRESS
    return first == second or _EVERY_ADDRESS in (first, second)
