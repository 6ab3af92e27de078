"""What the CPU manager records: the shared pool and the CPUs of containers and pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bindery.nodecore.cpusets import EMPTY, CpuSet


@dataclass(frozen=True)
class CpuState:
    """All that the CPU manager records.

    Attributes:
        default: the shared pool; empty before the policy has started.
        containers: pod UID -> container name -> its CPUs.
        pods: pod UID -> its CPUs, for pods whose CPUs are managed as a whole.
    """

    default: CpuSet = EMPTY
    containers: Mapping[str, Mapping[str, CpuSet]] = field(default_factory=dict)
    pods: Mapping[str, CpuSet] = field(default_factory=dict)

    def cpus(self, pod_uid: str, container: str) -> CpuSet | None:
        """Return the CPUs of a container, None when it has none of its own."""
        return self.containers.get(pod_uid, {}).get(container)

    def cpus_or_default(self, pod_uid: str, container: str) -> CpuSet:
        """Return the CPUs that a container runs on: its own, else the shared pool."""
        own = self.cpus(pod_uid, container)
        return self.default if own is None else own

    def with_default(self, cpus: CpuSet) -> "CpuState":
        """Return the state with another shared pool."""
        return replace(self, default=cpus)

    def with_container(self, pod_uid: str, container: str, cpus: CpuSet) -> "CpuState":
        """Return the state in which the container has `cpus`."""
        inner = {**self.containers.get(pod_uid, {}), container: cpus}
        return replace(self, containers={**self.containers, pod_uid: inner})

    def without(self, pod_uid: str, container: str) -> "CpuState":
        """Return the state without the container; a pod without containers goes too."""
        inner = {
            name: cpus
            for name, cpus in self.containers.get(pod_uid, {}).items()
            if name != container
        }
        others = {uid: found for uid, found in self.containers.items() if uid != pod_uid}
        return replace(self, containers={**others, pod_uid: inner} if inner else others)
