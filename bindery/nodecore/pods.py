"""What nodecore reads of a pod: its containers, what they ask for, and its QoS class."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from bindery.api import quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
HUGE_PAGES_PREFIX: Final = "hugepages-"

Resources = Mapping[str, int]
"""Amounts: CPU in millicores; memory, storage and huge pages in bytes; others are counts."""

_MILLI: Final = 1000


class QosClass(StrEnum):
    """How well a pod's resources are guaranteed."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True)
class Container:
    """A container.

    Attributes:
        is_sidecar: an init container with `restartPolicy: Always`.
        claimed: extended resources that a resource claim of the pod serves, not a device plugin.
    """

    name: str
    requests: Resources = field(default_factory=dict)
    limits: Resources = field(default_factory=dict)
    is_sidecar: bool = False
    claimed: frozenset[str] = frozenset()

    @property
    def is_guaranteed(self) -> bool:
        """Whether requests equal limits for both CPU and memory, and are not zero."""
        return all(
            self.requests.get(name, 0) != 0 and self.requests[name] == self.limits.get(name, 0)
            for name in (CPU, MEMORY)
        )


@dataclass(frozen=True)
class Pod:
    """A pod.

    Attributes:
        init_containers: its init containers with the sidecars, in order.
        requests: the requests of the pod as a whole (pod-level resources), None without them.
        qos_class: the class in the pod's status; computed when it is None.
        overhead: what running the pod takes beyond its containers.
    """

    uid: str
    containers: Sequence[Container]
    init_containers: Sequence[Container] = ()
    name: str = ""
    namespace: str = "default"
    requests: Resources | None = None
    limits: Resources | None = None
    qos_class: QosClass | None = None
    overhead: Resources = field(default_factory=dict)
    priority: int | None = None

    @property
    def all_containers(self) -> Iterator[Container]:
        """Yield the init containers and then the app containers: the order of allocation."""
        yield from self.init_containers
        yield from self.containers

    def is_regular_init(self, container: Container) -> bool:
        """Return whether the container is an init container that ends before the app starts."""
        return any(
            one.name == container.name and not one.is_sidecar for one in self.init_containers
        )

    @cached_property
    def has_pod_level_resources(self) -> bool:
        """Whether requests or limits of the pod as a whole are set."""
        names = {*(self.requests or {}), *(self.limits or {})}
        return any(_is_pod_level(name) for name in names)

    @cached_property
    def qos(self) -> QosClass:
        """The QoS class."""
        return self.qos_class or qos_class(self)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "Pod":
        """Return what nodecore reads of a pod's JSON; raises QuantityError for a wrong amount."""
        metadata, spec = manifest.get("metadata", {}), manifest.get("spec", {})
        whole = spec.get("resources")
        status = manifest.get("status", {})
        found = status.get("qosClass")
        claimed = _claimed(status.get("extendedResourceClaimStatus") or {})
        return cls(
            uid=metadata.get("uid", ""),
            containers=[_container(one, claimed) for one in spec.get("containers", ())],
            init_containers=[
                _container(one, claimed) for one in spec.get("initContainers", ()) or ()
            ],
            name=metadata.get("name", ""),
            namespace=metadata.get("namespace", "default"),
            requests=None if whole is None else resources(whole.get("requests")),
            limits=None if whole is None else resources(whole.get("limits")),
            qos_class=QosClass(found) if found else None,
            overhead=resources(spec.get("overhead")),
            priority=spec.get("priority"),
        )


def resources(amounts: Mapping[str, str | int] | None) -> dict[str, int]:
    """Return quantities as integers in the units of `Resources`, rounded up."""
    return {name: _amount(name, text) for name, text in (amounts or {}).items()}


def qos_class(pod: Pod) -> QosClass:
    """Return the QoS class that follows from the pod's requests and limits."""
    if pod.requests is not None or pod.limits is not None:
        requests, limits = _positive([pod.requests or {}]), _positive([pod.limits or {}])
        all_limited = not pod.limits or {CPU, MEMORY} <= limits.keys()
    else:
        containers = list(pod.all_containers)
        requests = _positive(one.requests for one in containers)
        limits = _positive(one.limits for one in containers)
        all_limited = all(
            one.limits.get(name, 0) > 0 for one in containers for name in (CPU, MEMORY)
        )
    if not requests and not limits:
        return QosClass.BEST_EFFORT
    return QosClass.GUARANTEED if all_limited and requests == limits else QosClass.BURSTABLE


def long_running_total(
    pod: Pod, wanted: Callable[[Container], Mapping[str, int]], resource: str
) -> int:
    """Return the most that the pod's containers hold of `resource` at one time.

    It is the larger of what the app containers and sidecars hold together, and of what any init
    container holds with the sidecars before it.
    """
    largest_init = sidecars = 0
    for container in pod.init_containers:
        amount = wanted(container).get(resource, 0)
        if container.is_sidecar:
            sidecars += amount
        else:
            largest_init = max(largest_init, sidecars + amount)
    apps = sum(wanted(one).get(resource, 0) for one in pod.containers)
    return max(largest_init, apps + sidecars)


def total(pod: Pod, kind: str = "requests") -> dict[str, int]:
    """Return the pod's "requests" or "limits" as a whole, as scheduler and kubelet count them."""

    def wanted(container: Container) -> Resources:
        found: Resources = getattr(container, kind)
        return found

    names = {name for container in pod.all_containers for name in wanted(container)}
    whole: Resources = getattr(pod, kind) or {}
    return {
        **{name: long_running_total(pod, wanted, name) for name in names},
        **{name: amount for name, amount in whole.items() if _is_pod_level(name)},
    }


def requests_with_overhead(pod: Pod) -> dict[str, int]:
    """Return what the pod takes of the node: its requests and its overhead."""
    wanted = total(pod)
    for name, amount in pod.overhead.items():
        wanted[name] = wanted.get(name, 0) + amount
    return wanted


def limits_with_overhead(pod: Pod) -> dict[str, int]:
    """Return the pod's limits; overhead is added where there is one."""
    return {
        name: amount + pod.overhead.get(name, 0) if amount else amount
        for name, amount in total(pod, "limits").items()
    }


def _is_pod_level(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith(HUGE_PAGES_PREFIX)


def _positive(lists: Iterable[Resources]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for amounts in lists:
        for name in (CPU, MEMORY):
            if amounts.get(name, 0) > 0:
                sums[name] = sums.get(name, 0) + amounts[name]
    return sums


def _amount(name: str, text: str | int) -> int:
    amount = quantity.parse(text, name)
    if name == CPU or quantity.scale(name) == 1:
        return amount
    return -(-amount // _MILLI)


def _claimed(status: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return container name -> extended resources that a claim serves."""
    found: dict[str, set[str]] = {}
    for one in status.get("requestMappings") or ():
        found.setdefault(one.get("containerName", ""), set()).add(one.get("resourceName", ""))
    return found


def _container(manifest: Mapping[str, Any], claimed: Mapping[str, Iterable[str]]) -> Container:
    asked = manifest.get("resources") or {}
    return Container(
        name=manifest.get("name", ""),
        requests=resources(asked.get("requests")),
        limits=resources(asked.get("limits")),
        is_sidecar=manifest.get("restartPolicy") == "Always",
        claimed=frozenset(claimed.get(manifest.get("name", ""), ())),
    )
