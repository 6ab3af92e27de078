"""What the node agent does about a container before it is created, before it starts, after it."""

from dataclasses import dataclass

from bindery.nodecore.cpu.manager import CpuManager
from bindery.nodecore.cpusets import format_cpus
from bindery.nodecore.memory.manager import MemoryManager
from bindery.nodecore.pods import Container, Pod
from bindery.nodecore.topology.manager import TopologyManager


@dataclass(frozen=True)
class CpusetConfig:
    """The settings for the runtime.

    Attributes:
        cpus: the CPUs that the container runs on, empty to leave them.
        mems: the NUMA nodes of its memory, empty to leave them.
    """

    cpus: str
    mems: str


@dataclass(frozen=True)
class InternalContainerLifecycle:
    """The hooks of the resource managers."""

    cpu: CpuManager
    memory: MemoryManager
    topology: TopologyManager

    def pre_create(self, pod: Pod, container: Container) -> CpusetConfig:
        """Return the CPUs and NUMA nodes to create the container with."""
        return CpusetConfig(
            format_cpus(self.cpu.cpu_affinity(pod.uid, container.name)),
            ",".join(map(str, sorted(self.memory.memory_numa_nodes(pod, container)))),
        )

    def pre_start(self, pod: Pod, container: Container, container_id: str) -> None:
        """Record that the container has been created."""
        self.cpu.add_container(pod, container, container_id)
        self.memory.add_container(pod, container, container_id)
        self.topology.add_container(pod, container, container_id)

    def post_stop(self, container_id: str) -> None:
        """Record that the container has stopped; its CPUs and memory stay until its pod is gone."""
        self.topology.remove_container(container_id)
