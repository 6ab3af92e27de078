"""The nodes, gangs and pods that are measured with, as the API server takes them.

`cluster` creates them on a control plane; `planning` decodes them for the engine in memory. The one
invariant: both measure with the same objects.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bindery.api.names import API_VERSION, POD_GROUP_ANNOTATION, SCHEDULER_NAME

Wire = dict[str, Any]
"""An object as JSON."""

_NODE_CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "110"}
_POD_REQUESTS = {"cpu": "1", "memory": "1Gi"}


@dataclass(frozen=True)
class Workload:
    """So many equal pods, in gangs or each for itself."""

    pods: int
    gang_size: int
    """0: single-pod jobs, without PodGroups."""
    scheduler_name: str = SCHEDULER_NAME

    def pod_groups(self) -> Iterator[Wire]:
        """Yield the PodGroups; there are none for kube-scheduler, which has no gangs here."""
        if not self._has_groups:
            return
        for number in range(self.pods // self.gang_size):
            yield {
                "apiVersion": API_VERSION,
                "kind": "PodGroup",
                "metadata": {"name": f"gang-{number:05}"},
                "spec": {"minMember": self.gang_size},
            }

    def pod_objects(self) -> Iterator[Wire]:
        """Yield the pods, gang by gang."""
        for number in range(self.pods):
            metadata: Wire = {"name": f"pod-{number:05}"}
            if self._has_groups:
                gang = f"gang-{number // self.gang_size:05}"
                metadata["annotations"] = {POD_GROUP_ANNOTATION: gang}
            yield {
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
                            "resources": {"requests": _POD_REQUESTS},
                        }
                    ],
                },
            }

    @property
    def _has_groups(self) -> bool:
        return self.gang_size > 0 and self.scheduler_name == SCHEDULER_NAME


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
