"""What a pod asks of NUMA zones."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bindery.nodecore.cpu import requests as cpu_requests
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.memory import requests as memory_requests
from bindery.nodecore.pods import (
    CPU,
    EPHEMERAL_STORAGE,
    Container,
    Pod,
    QosClass,
    total,
)
from bindery.nodecore.prediction.zones import is_memory


@dataclass(frozen=True)
class Wanted:
    """The request of a container, or of a pod as a whole, for resources of NUMA zones.

    Attributes:
        cpus: CPUs for itself under the static CPU policy; 0 runs on the shared pool. Only
            Guaranteed pods with whole CPUs have some.
        memory: memory and huge pages under the static memory policy -> bytes; empty for pods that
            are not Guaranteed.
        devices: extended resource -> count. Resources that a node's zones do not list are ignored.
        is_init: an init container that ends before the app starts; later containers reuse its
            resources.
    """

    cpus: int = 0
    memory: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    is_init: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked of zones."""
        return not (self.cpus or self.memory or self.devices)


@dataclass(frozen=True)
class PodRequest:
    """What a pod asks of NUMA zones.

    Attributes:
        containers: its containers in the order of allocation: init containers and sidecars, apps.
        whole: what it needs at one time; decides with the topology manager's scope "pod".
    """

    containers: tuple[Wanted, ...]
    whole: Wanted

    @property
    def is_empty(self) -> bool:
        """Whether no container asks anything of zones: every node admits such a pod."""
        return all(one.is_empty for one in self.containers)

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of all resources that a container asks for, sorted."""
        names = {name for one in self.containers for name in (*one.memory, *one.devices)}
        if any(one.cpus for one in self.containers):
            names.add(CPU)
        return tuple(sorted(names))


def request_of(pod: Pod, features: Features = DEFAULT) -> PodRequest:
    """Return what a pod asks of the zones of its node."""
    has_memory = pod.qos == QosClass.GUARANTEED and not _is_unmanaged(pod, features)
    has_cpus = not _is_unmanaged(pod, features)

    def wanted(container: Container) -> Wanted:
        return Wanted(
            cpu_requests.exclusive_cpus(pod, container, features) if has_cpus else 0,
            memory_requests.of_container(pod, container, features) if has_memory else {},
            _devices(container.limits),
            pod.is_regular_init(container),
        )

    return PodRequest(
        tuple(wanted(container) for container in pod.all_containers),
        Wanted(
            cpu_requests.exclusive_cpus_of_pod(pod, features) if has_cpus else 0,
            memory_requests.of_pod(pod, features) if has_memory else {},
            _devices(total(pod, "limits")),
        ),
    )


def _is_unmanaged(pod: Pod, features: Features) -> bool:
    """Return whether the pod has pod-level resources that CPU and memory manager do not serve."""
    return pod.has_pod_level_resources and not features.pod_level_resource_managers


def _devices(limits: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in sorted(limits.items()) if not _is_native(name)}


def _is_native(name: str) -> bool:
    return name in (CPU, EPHEMERAL_STORAGE) or is_memory(name)
