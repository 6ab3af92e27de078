"""The container manager: all resource managers of a node, made and started in order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bindery.nodecore.admission.result import Admission
from bindery.nodecore.cgroups import allocatable, names, values
from bindery.nodecore.cgroups.names import CgroupName
from bindery.nodecore.cgroups.values import CgroupValues, MemoryReservation
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.cpu import manager as cpu_manager
from bindery.nodecore.cpu.manager import CpuManager
from bindery.nodecore.cpu.restore import ContainerIds
from bindery.nodecore.cpu.topology import discover
from bindery.nodecore.cpusets import EMPTY, CpuSet
from bindery.nodecore.devices.manager import DeviceManager
from bindery.nodecore.errors import CheckpointError, ConfigurationError
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.lifecycle import InternalContainerLifecycle
from bindery.nodecore.machine import Machine
from bindery.nodecore.memory import manager as memory_manager
from bindery.nodecore.memory.manager import MemoryManager, Reservations
from bindery.nodecore.node import Node
from bindery.nodecore.pods import CPU, Pod, QosClass, Resources
from bindery.nodecore.topology import options as topology_options
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.manager import CONTAINER_SCOPE, TopologyManager


@dataclass(frozen=True)
class NodeConfig:
    """The settings of a node, as the kubelet's configuration has them.

    Attributes:
        machine: the hardware.
        capacity: what the machine has.
        system_reserved: what is kept for the system.
        kube_reserved: what is kept for the node agent and the runtime.
        hard_eviction: signal -> threshold.
        cpu_policy: "none" or "static".
        cpu_options: the CPU policy's options.
        reserved_cpus: the reserved CPUs, if they are named.
        memory_policy: "None" or "Static".
        reserved_memory: how reserved memory is spread over the NUMA nodes.
        topology_policy: the topology manager's policy.
        topology_scope: "container" or "pod".
        topology_options: the topology manager's options.
        cgroup_driver: "cgroupfs" or "systemd".
        cgroup_root: the cgroup below which kubepods is.
        has_swap: whether the machine has swap on.
        fail_swap_on: whether the node refuses to start then.
        memory_reservation: how MemoryQoS protects requested memory.
        features: the feature gates.
    """

    machine: Machine
    capacity: Resources
    system_reserved: Resources = field(default_factory=dict)
    kube_reserved: Resources = field(default_factory=dict)
    hard_eviction: Mapping[str, str] = field(default_factory=dict)
    cpu_policy: str = cpu_manager.NONE
    cpu_options: Mapping[str, str] = field(default_factory=dict)
    reserved_cpus: CpuSet = EMPTY
    memory_policy: str = memory_manager.NONE
    reserved_memory: Reservations = ()
    topology_policy: str = policies.NONE
    topology_scope: str = CONTAINER_SCOPE
    topology_options: Mapping[str, str] = field(default_factory=dict)
    cgroup_driver: str = names.CGROUPFS
    cgroup_root: str = "/"
    has_swap: bool = False
    fail_swap_on: bool = True
    memory_reservation: MemoryReservation = MemoryReservation.NONE
    features: Features = DEFAULT


class ContainerManager:
    """The resource managers of a node.

    They are made in the kubelet's order: topology, devices, CPU, memory; the last three are asked
    for hints and allocate in this order.

    Args:
        config: the settings.
        node: the pods of the node.
        checkpoints: where the CPU manager and the memory manager write.
        device_checkpoints: where the device manager writes.
        clock: returns seconds.

    Raises:
        ConfigurationError: the settings contradict themselves or the machine.
    """

    def __init__(
        self,
        config: NodeConfig,
        node: Node,
        checkpoints: CheckpointManager,
        device_checkpoints: CheckpointManager,
        clock: Callable[[], float],
    ) -> None:
        if config.has_swap and config.fail_swap_on:
            raise ConfigurationError(
                "running with swap on is not supported, please disable swap or set "
                "--fail-swap-on flag to false"
            )
        self.config = config
        features = config.features
        self.topology = TopologyManager(
            config.machine.nodes,
            config.topology_policy,
            config.topology_scope,
            topology_options.parse(config.topology_options),
            features,
        )
        numa_ids = config.machine.numa_ids
        self.devices = DeviceManager(numa_ids, node, self.topology, device_checkpoints, clock)
        reserved = self.node_allocatable_reservation()
        cpu_policy = cpu_manager.configure(
            config.cpu_policy,
            config.cpu_options,
            discover(config.machine),
            reserved.get(CPU, 0),
            config.reserved_cpus,
            config.topology_policy,
            features,
        )
        self.cpu = CpuManager(cpu_policy, node, self.topology, checkpoints, features)
        memory_policy = memory_manager.configure(
            config.memory_policy, config.machine, reserved, config.reserved_memory, features
        )
        self.memory = MemoryManager(memory_policy, node, self.topology, checkpoints, features)
        for provider in (self.devices, self.cpu, self.memory):
            self.topology.add_provider(provider)
        self.lifecycle = InternalContainerLifecycle(self.cpu, self.memory, self.topology)
        self._node = node

    def start(self, containers: ContainerIds | None = None) -> CheckpointError | None:
        """Restore the managers' states; return the error if the devices' state is lost.

        Args:
            containers: the containers that run already.

        Raises:
            RestoreError: a checkpoint cannot be used.
            StateError: a checkpoint contradicts the machine.
            ConfigurationError: more is reserved than there is.
        """
        running = containers or {}
        self.cpu.start(running)
        self.memory.start(running)
        self.node_allocatable()
        return self.devices.start(running.values())

    def admit(self, pod: Pod) -> Admission:
        """Allocate the pod's resources; return whether it may run."""
        return self.topology.admit(pod)

    def node_allocatable_reservation(self) -> dict[str, int]:
        """Return what is not for pods."""
        config = self.config
        eviction = allocatable.eviction_reservation(config.hard_eviction, config.capacity)
        return allocatable.reservation(
            config.capacity, config.system_reserved, config.kube_reserved, eviction
        )

    def node_allocatable(self) -> dict[str, int]:
        """Return what the node reports as allocatable.

        Raises:
            ConfigurationError: more is reserved than there is.
        """
        return allocatable.allocatable(self.config.capacity, self.node_allocatable_reservation())

    def pod_cgroup_root(self) -> str:
        """Return the path of the cgroup that all pods are in."""
        return names.node_allocatable_root(self.config.cgroup_root, self.config.cgroup_driver)

    def qos_containers_info(self) -> dict[QosClass, CgroupName]:
        """Return the cgroup of each QoS class."""
        return {qos: names.of_qos(self._kubepods(), qos) for qos in QosClass}

    def qos_cgroups(self) -> dict[QosClass, CgroupValues]:
        """Return the values of the cgroups of the QoS classes for the pods that run now."""
        pages = {
            pages.size_kib * 1024 for node in self.config.machine.nodes for pages in node.huge_pages
        }
        return values.of_qos_classes(
            self._node.active_pods(),
            page_sizes=sorted(pages),
            allocatable_memory=self.node_allocatable().get("memory", 0),
            memory_reservation=self.config.memory_reservation,
            features=self.config.features,
        )

    def root_cgroup(self) -> CgroupValues:
        """Return the values of the cgroup that all pods are in."""
        config = self.config
        limits = allocatable.enforced(config.capacity, config.system_reserved, config.kube_reserved)
        everything = discover(config.machine).cpus
        # Without exclusive CPUs, kubepods must not stay on the CPUs of an earlier policy.
        return values.of_resources(
            limits, cpus=EMPTY if self.cpu.allocatable_cpus() else everything
        )

    def pod_cgroup(self, pod: Pod) -> tuple[CgroupName, CgroupValues]:
        """Return the cgroup of a pod; one with CPUs for itself has no quota."""
        has_own = any(self.cpu.exclusive_cpus(pod.uid, one.name) for one in pod.all_containers)
        content = values.of_pod(
            pod,
            enforce_cpu_limits=not has_own,
            memory_reservation=self.config.memory_reservation,
            features=self.config.features,
        )
        return names.of_pod(self._kubepods(), pod), content

    def _kubepods(self) -> CgroupName:
        return names.child(names.from_cgroupfs(self.config.cgroup_root), names.KUBEPODS)
