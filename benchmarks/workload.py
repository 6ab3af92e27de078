"""The nodes, gangs and pods that are measured with, as the API server takes them.

`cluster` creates them on a control plane; `planning` decodes them for the engine in memory. The one
invariant: both measure with the same objects.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bindery.api.names import API_VERSION, POD_GROUP_ANNOTATION, SCHEDULER_NAME

Wire = dict[str, Any]
"""An object as JSON."""

NAMESPACE: Final = "bench"

_NODE_CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "110"}
_POD_REQUESTS = {"cpu": "1", "memory": "1Gi"}


class _Gang(NamedTuple):
    name: str
    namespace: str
    size: int


@dataclass(frozen=True)
class Workload:
    """A number of equal pods, in gangs or each for itself."""

    pods: int
    gang_sizes: tuple[int, ...]
    """Gangs of these sizes beside each other, with as many pods of each; none: single-pod jobs."""
    scheduler_name: str = SCHEDULER_NAME
    namespace_count: int = 1
    """How many namespaces the gangs, or the single pods, are spread over."""
    is_guaranteed: bool = False
    """Whether limits equal requests, so that nodes with NUMA zones align the pods."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that it uses."""
        return namespaces(self.namespace_count)

    def pod_groups(self) -> Iterator[Wire]:
        """Yield the PodGroups; there are none for kube-scheduler, which has no gangs here."""
        if not self._has_groups:
            return
        for gang in self._gangs():
            yield {
                "apiVersion": API_VERSION,
                "kind": "PodGroup",
                "metadata": {"name": gang.name, "namespace": gang.namespace},
                "spec": {"minMember": gang.size},
            }

    def pod_objects(self) -> Iterator[Wire]:
        """Yield the pods, gang by gang."""
        number = 0
        for gang in self._gangs():
            for _ in range(gang.size):
                yield self._pod(number, gang)
                number += 1

    @property
    def _has_groups(self) -> bool:
        return bool(self.gang_sizes) and self.scheduler_name == SCHEDULER_NAME

    def _gangs(self) -> Iterator[_Gang]:
        """Yield gangs until they have all pods, the next of the size with the fewest pods."""
        left, number = self.pods, 0
        given = dict.fromkeys(self.gang_sizes or (1,), 0)
        while left:
            size = min(
                (size for size in given if size <= left), key=given.__getitem__, default=left
            )
            namespace = self.namespaces[number % self.namespace_count]
            yield _Gang(f"gang-{number:05}", namespace, size)
            given[size] = given.get(size, 0) + size
            left, number = left - size, number + 1

    def _pod(self, number: int, gang: _Gang) -> Wire:
        metadata: Wire = {"name": f"pod-{number:05}", "namespace": gang.namespace}
        if self._has_groups:
            metadata["annotations"] = {POD_GROUP_ANNOTATION: gang.name}
        resources = {"requests": _POD_REQUESTS}
        if self.is_guaranteed:
            resources["limits"] = _POD_REQUESTS
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "schedulerName": self.scheduler_name,
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "worker",
                        "image": "registry.k8s.io/pause:3.10",
                        "resources": resources,
                    }
                ],
            },
        }


def namespaces(count: int) -> tuple[str, ...]:
    """Return the names of the first `count` namespaces."""
    return tuple(f"{NAMESPACE}-{number}" if number else NAMESPACE for number in range(count))


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:05}"


def nodes(count: int) -> Iterator[Wire]:
    """Yield `count` equal nodes that say they are ready."""
    for number in range(count):
        name = node_name(number)
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "capacity": _NODE_CAPACITY,
                "allocatable": _NODE_CAPACITY,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Benchmark"}],
            },
        }
