"""The container manager: all resource managers of a node, made and started in order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from bindery.nodecore.admission.result import Admission
from bindery.nodecore.cgroups import allocatable, conversions, names, system, values
from bindery.nodecore.cgroups.manager import CgroupManager
from bindery.nodecore.cgroups.names import CgroupName
from bindery.nodecore.cgroups.pods import NoPodCgroups, PodCgroups, PodContainerManager
from bindery.nodecore.cgroups.system import Status, Subsystems
from bindery.nodecore.cgroups.values import CgroupValues, MemoryReservation
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.claims.facts import ClaimingPod
from bindery.nodecore.claims.manager import ClaimManager
from bindery.nodecore.containers import ContainerIds
from bindery.nodecore.cpu import manager as cpu_manager
from bindery.nodecore.cpu.manager import CpuManager, Isolation
from bindery.nodecore.cpu.topology import CpuTopology, discover
from bindery.nodecore.cpusets import EMPTY, CpuSet
from bindery.nodecore.devices.manager import DeviceManager
from bindery.nodecore.devices.options import RunOptions, merged
from bindery.nodecore.errors import CheckpointError, ConfigurationError
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.lifecycle import InternalContainerLifecycle
from bindery.nodecore.machine import Machine
from bindery.nodecore.memory import manager as memory_manager
from bindery.nodecore.memory.manager import MemoryManager, Reservations
from bindery.nodecore.node import Node
from bindery.nodecore.pods import CPU, MEMORY, Container, Pod, QosClass, Resources
from bindery.nodecore.topology import options as topology_options
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.manager import CONTAINER_SCOPE, TopologyManager


@dataclass(frozen=True)
class NodeConfig:
    """The settings of a node, as in the kubelet's configuration.

    Attributes:
        capacity: resource -> the amount in the machine.
        system_reserved: resource -> the amount for the system.
        kube_reserved: resource -> the amount for the node agent and the runtime.
        hard_eviction: signal -> threshold.
        cpu_policy: "none" or "static".
        reserved_cpus: the reserved CPUs, if they are named.
        memory_policy: "None" or "Static".
        reserved_memory: how reserved memory is spread over the NUMA nodes.
        topology_scope: "container" or "pod".
        cgroup_driver: "cgroupfs" or "systemd".
        cgroup_root: the cgroup below which kubepods is.
        cgroups_per_qos: whether pods and QoS classes have cgroups of their own.
        qos_reserved: resource -> how much of requests the lower classes cannot use, such as "50%".
        pod_pids_limit: how many processes a pod can have, 0 for any number.
        enforce_cpu_limits: whether CPU limits become quotas.
        has_swap: whether the machine has swap on.
        fail_swap_on: whether the node refuses to start then.
        memory_reservation: how MemoryQoS protects requested memory.
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
    cgroups_per_qos: bool = True
    qos_reserved: Mapping[str, str] = field(default_factory=dict)
    pod_pids_limit: int = 0
    enforce_cpu_limits: bool = True
    cpu_period_us: int = conversions.QUOTA_PERIOD_US
    subsystems: Subsystems = field(default_factory=lambda: Subsystems(is_unified=True))
    has_swap: bool = False
    fail_swap_on: bool = True
    memory_reservation: MemoryReservation = MemoryReservation.NONE
    features: Features = DEFAULT

    @cached_property
    def cpus(self) -> CpuTopology:
        """The CPUs of the machine; nodes with the same settings share them.

        Raises:
            ConfigurationError: the machine has no CPUs, or a core has a CPU twice or none.
        """
        return discover(self.machine)


class ContainerManager:
    """The resource managers of a node.

    They are made in the kubelet's order: topology, devices, CPU, memory; the last three are asked
    for hints and allocate in this order. Claims are restored first at the start. `claims` is None
    if no pod on the node has resource claims.

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
        claims: ClaimManager | None = None,
    ) -> None:
        if config.has_swap and config.fail_swap_on:
            raise ConfigurationError(
                "running with swap on is not supported, please disable swap or set "
                "--fail-swap-on flag to false"
            )
        self.config = config
        self.claims = claims
        self._status = Status()
        self._reserved_percent = allocatable.parse_qos_reserved(config.qos_reserved).get(MEMORY)
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
            config.cpus,
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

    def start(
        self,
        containers: ContainerIds | None = None,
        has_file: Callable[[str], bool] = lambda _path: True,
    ) -> CheckpointError | None:
        """Restore the managers' states; return the error if the devices' state is lost.

        `containers`: the containers that run already.

        Raises:
            RestoreError: a checkpoint cannot be used.
            StateError: a checkpoint contradicts the machine.
            ConfigurationError: more is reserved than there is, or a controller is not mounted.
        """
        running = containers or {}
        if self.claims is not None:
            self.claims.start()
        self.cpu.start(running)
        self.memory.start(running)
        self.node_allocatable()
        self._status = system.check_requirements(self.config.subsystems, has_file)
        return self.devices.start(running.values())

    def admit(self, pod: Pod) -> Admission:
        """Allocate the pod's CPUs and memory and reserve its devices; return whether it may run.

        It runs once the plugins have answered `devices.calls`.
        """
        return self.topology.admit(pod)

    def admit_again(self, pod: Pod) -> Admission:
        """Plan the admission of a pod again, with the answer to `devices.question`.

        The pod keeps its place: no other pod gets what it holds.
        """
        self.devices.give_back(pod.uid)
        self.cpu.release(pod)
        self.memory.release(pod)
        return self.topology.admit(pod)

    def node_allocatable_reservation(self) -> dict[str, int]:
        """Return what is not for pods."""
        config = self.config
        eviction = allocatable.eviction_reservation(config.hard_eviction, config.capacity)
        return allocatable.reservation(
            config.capacity, config.system_reserved, config.kube_reserved, eviction
        )

    def node_allocatable(self) -> dict[str, int]:
        """Return the allocatable of the node; raises ConfigurationError if it is negative."""
        return allocatable.allocatable(self.config.capacity, self.node_allocatable_reservation())

    def pod_cgroup_root(self) -> str:
        """Return the path of the cgroup that all pods are in."""
        config = self.config
        return names.node_allocatable_root(
            config.cgroup_root, config.cgroup_driver, per_qos=config.cgroups_per_qos
        )

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
            allocatable_memory=self.node_allocatable().get(MEMORY, 0),
            reserved_memory_percent=self._reserved_percent,
            memory_reservation=self.config.memory_reservation,
            features=self.config.features,
        )

    def update_qos_cgroups(self, cgroups: CgroupManager) -> None:
        """Write the cgroups of the QoS classes, also missing ones; raises CgroupError."""
        if not self.config.cgroups_per_qos:
            return
        classes = self.qos_containers_info()
        for qos, content in self.qos_cgroups().items():
            write = cgroups.update if cgroups.exists(classes[qos]) else cgroups.create
            write(classes[qos], content)

    def root_cgroup(self) -> CgroupValues:
        """Return the values of the cgroup that all pods are in."""
        config = self.config
        limits = allocatable.enforced(config.capacity, config.system_reserved, config.kube_reserved)
        everything = config.cpus.cpus
        # Without exclusive CPUs, kubepods must not stay on the CPUs of an earlier policy.
        return values.of_resources(
            limits, cpus=EMPTY if self.cpu.allocatable_cpus() else everything
        )

    def pod_cgroup(self, pod: Pod) -> tuple[CgroupName, CgroupValues]:
        """Return the cgroup of a pod; one with CPUs for itself has no quota."""
        config = self.config
        content = values.of_pod(
            pod,
            enforce_cpu_limits=config.enforce_cpu_limits and not self.has_exclusive_cpus(pod),
            period_us=config.cpu_period_us,
            memory_reservation=config.memory_reservation,
            features=config.features,
        )
        if config.pod_pids_limit > 0:
            content = replace(content, pids_limit=config.pod_pids_limit)
        return names.of_pod(self._kubepods(), pod), content

    def has_exclusive_cpus(self, pod: Pod) -> bool:
        """Return whether the pod has CPUs for itself.

        One container is enough; of a pod with pod-level resources, all must have their own.
        """
        own = [self.container_has_exclusive_cpus(pod, one) for one in pod.all_containers]
        is_whole = self.config.features.pod_level_resource_managers and pod.has_pod_level_resources
        return all(own) if is_whole else any(own)

    def container_has_exclusive_cpus(self, pod: Pod, container: Container) -> bool:
        """Return whether the container has CPUs for itself."""
        return self.cpu.isolation(pod, container) == Isolation.CONTAINER

    def new_pod_container_manager(self, cgroups: CgroupManager) -> PodContainerManager:
        """Return what makes and removes the cgroups of pods."""
        if not self.config.cgroups_per_qos:
            return NoPodCgroups(names.from_cgroupfs(self.config.cgroup_root))
        return PodCgroups(cgroups, self.qos_containers_info(), self.pod_cgroup)

    def mounted_subsystems(self) -> Subsystems:
        """Return the mounted controllers."""
        return self.config.subsystems

    def status(self) -> Status:
        """Return what the node lacks without being unable to run pods."""
        return self._status

    def capacity(self) -> dict[str, int]:
        """Return resource -> the amount in the machine, without devices."""
        return dict(self.config.capacity)

    def system_cgroups_limit(self) -> dict[str, int]:
        """Return the limits of the cgroups of system services: no CPU of their own."""
        return {CPU: 0}

    def resources(
        self,
        pod: Pod,
        container: Container,
        parse: Callable[[bytes], RunOptions],
        claiming: ClaimingPod | None = None,
    ) -> RunOptions:
        """Return what devices and claims add to a container; `parse` reads a plugin's answer.

        Raises:
            ClaimError: a claim is not prepared.
        """
        found = []
        if self.claims is not None and claiming is not None:
            cdi = self.claims.cdi_devices(claiming, container.name)
            found.append(RunOptions(cdi_devices=tuple(cdi)))
        return merged([*found, self.devices.run_options(pod, container, parse)])

    def _kubepods(self) -> CgroupName:
        if not self.config.cgroups_per_qos:
            return names.from_cgroupfs(self.config.cgroup_root)
        return names.child(names.from_cgroupfs(self.config.cgroup_root), names.KUBEPODS)
