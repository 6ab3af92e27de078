"""The machine of a hollow node and the settings of its kubelet, as fields of a shape.

Read by `shapes`. The settings are named as in the kubelet's configuration file. Settings that
contradict each other are rejected with the kubelet's message. All nodes of a shape have equal
machines.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Final, Self, TypeVar

from pydantic import AfterValidator, Field, field_validator, model_validator

from bindery.api import quantity
from bindery.api.base import ApiModel, NonNegative
from bindery.nodecore import pods
from bindery.nodecore.checkpoints.devices import NO_NUMA_NODE
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.container_manager import ContainerManager, NodeConfig
from bindery.nodecore.cpu import options as cpu_options
from bindery.nodecore.cpusets import EMPTY, CpuSetError, parse_cpus
from bindery.nodecore.devices.state import Device
from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.features import DECLARABLE, Features, declared_features
from bindery.nodecore.machine import HugePages, Machine, uniform
from bindery.nodecore.memory import tables
from bindery.nodecore.pods import Pod
from bindery.nodecore.topology import options as topology_options
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.manager import CONTAINER_SCOPE, POD_SCOPE

T = TypeVar("T")

_MILLI: Final = 1000
_KIB: Final = 1024
_NOTHING: Final[Mapping[str, tuple[Device, ...]]] = MappingProxyType({})


def amount(text: str | int) -> str:
    """Return a quantity as text; raises ValueError if `text` is not a quantity, or negative."""
    if quantity.parse(text, "memory") < 0:
        raise ValueError(f"{text!r} is negative")
    return str(text)


Amount = Annotated[str | int, AfterValidator(amount)]
Positive = Annotated[int, Field(ge=1)]
ByZone = dict[NonNegative, NonNegative]
"""NUMA zone -> a count."""
DevicesByZone = dict[Annotated[int, Field(ge=NO_NUMA_NODE)], NonNegative]
"""NUMA zone, or -1 for none -> a count."""


class NumaHardware(ApiModel):
    """Sockets, NUMA zones, cores, caches and devices of a machine whose zones have equal cores."""

    sockets: Positive = 1
    zones_per_socket: Positive = 1
    threads_per_core: Positive = 1
    cores_per_cache: Positive | None = None
    """Cores that share an uncore cache; default: all cores of a zone."""
    distances: tuple[tuple[Positive, ...], ...] | None = None
    """One row a zone. Default: 10 within a zone, 12 within a socket, 32 between sockets."""
    memory: dict[NonNegative, Amount] | None = None
    """NUMA zone -> memory. Default: equal parts of the node's memory."""
    devices: dict[str, DevicesByZone] = Field(default_factory=dict)
    """Resource -> zone -> count. Zone -1 holds devices without a zone, as a plugin reports them
    that knows no zones. GPUs that are not listed are spread over the zones in blocks."""
    huge_pages: dict[str, ByZone] = Field(default_factory=dict)
    """Size, such as 2Mi -> zone -> count."""

    @property
    def zones(self) -> int:
        """The number of NUMA zones."""
        return self.sockets * self.zones_per_socket

    @field_validator("huge_pages")
    @classmethod
    def _sizes_are_whole_kib(cls, huge_pages: dict[str, ByZone]) -> dict[str, ByZone]:
        for size in huge_pages:
            if quantity.parse(size, "memory") < _KIB or quantity.parse(size, "memory") % _KIB:
                raise ValueError(f"{size!r} is not a size of huge pages")
        return huge_pages

    @model_validator(mode="after")
    def _zones_exist(self) -> Self:
        listed = [("devices", *item) for item in self.devices.items()]
        listed += [("hugePages", *item) for item in self.huge_pages.items()]
        for key, name, counts in listed:
            for zone in counts:
                if zone >= self.zones:
                    raise ValueError(
                        f"{key}: {name}: NUMA node {zone} does not exist on this machine, "
                        f"which has {self.zones}"
                    )
        if self.memory is not None and sorted(self.memory) != list(range(self.zones)):
            raise ValueError(f"memory: one amount for each of the {self.zones} zones is needed")
        rows = self.distances
        if rows is not None and [len(row) for row in rows] != [self.zones] * self.zones:
            raise ValueError(f"distances: {self.zones} rows of {self.zones} numbers are needed")
        return self


class ReservedMemory(ApiModel):
    """Memory of a NUMA zone that is kept for the system."""

    numa_node: NonNegative
    limits: dict[str, Amount]


class KubeletSettings(ApiModel):
    """Fields of `KubeletConfiguration` (v1beta1) that affect admission and resources."""

    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: dict[str, str] = Field(default_factory=dict)
    reserved_system_cpus: str = Field(default="", alias="reservedSystemCPUs")
    """IDs of reserved CPUs, such as 0-3; they replace the CPU amounts of the two reservations."""
    memory_manager_policy: str = "None"
    reserved_memory: tuple[ReservedMemory, ...] = ()
    topology_manager_policy: str = policies.NONE
    topology_manager_scope: str = CONTAINER_SCOPE
    topology_manager_policy_options: dict[str, str] = Field(default_factory=dict)
    system_reserved: dict[str, Amount] = Field(default_factory=dict)
    kube_reserved: dict[str, Amount] = Field(default_factory=dict)
    eviction_hard: dict[str, str] = Field(default_factory=dict)
    """Signal -> amount or percentage."""
    feature_gates: dict[str, bool] = Field(default_factory=dict)
    """Feature gates of the CPU manager's options and of the features that nodes declare."""

    @field_validator("cpu_manager_policy")
    @classmethod
    def _cpu_policy_exists(cls, policy: str) -> str:
        return _one_of(policy, "none", "static")

    @field_validator("memory_manager_policy")
    @classmethod
    def _memory_policy_exists(cls, policy: str) -> str:
        if policy == "BestEffort":
            raise ValueError(f'policy "{policy}" is not available for platform "linux"')
        return _one_of(policy, "None", "Static")

    @field_validator("topology_manager_policy")
    @classmethod
    def _topology_policy_exists(cls, policy: str) -> str:
        known = (policies.BEST_EFFORT, policies.RESTRICTED, policies.SINGLE_NUMA_NODE)
        return _one_of(policy, policies.NONE, *known)

    @field_validator("topology_manager_scope")
    @classmethod
    def _scope_exists(cls, scope: str) -> str:
        if scope not in (CONTAINER_SCOPE, POD_SCOPE):
            raise ValueError(f'unknown scope: "{scope}"')
        return scope

    @field_validator("topology_manager_policy_options")
    @classmethod
    def _topology_options_exist(cls, options: dict[str, str]) -> dict[str, str]:
        _as_value_error(lambda: topology_options.parse(options))
        return options

    @field_validator("cpu_manager_policy_options")
    @classmethod
    def _cpu_options_exist(cls, options: dict[str, str]) -> dict[str, str]:
        every = Features(cpu_policy_alpha_options=True)
        _as_value_error(lambda: cpu_options.parse(options, every))
        return options

    @field_validator("reserved_system_cpus")
    @classmethod
    def _is_list_of_cpus(cls, text: str) -> str:
        try:
            parse_cpus(text)
        except CpuSetError as error:
            raise ValueError(str(error)) from error
        return text

    @field_validator("eviction_hard")
    @classmethod
    def _are_thresholds(cls, thresholds: dict[str, str]) -> dict[str, str]:
        return {signal: _threshold(text) for signal, text in thresholds.items()}

    @field_validator("feature_gates")
    @classmethod
    def _gates_exist(cls, gates: dict[str, bool]) -> dict[str, bool]:
        for gate in gates:
            if gate not in GATES:
                raise ValueError(f"unrecognized feature gate: {gate}")
        return gates


GATES: Final = {
    "CPUManagerPolicyAlphaOptions": "cpu_policy_alpha_options",
    "CPUManagerPolicyBetaOptions": "cpu_policy_beta_options",
    "NodeDeclaredFeatures": "node_declared_features",
    **DECLARABLE,
}


@dataclass(frozen=True)
class MachineSettings:
    """The machine of a node as its kubelet sees it.

    Attributes:
        devices: resource -> its devices.
        allocatable: resource -> the amounts available to pods, in the units of
            `nodecore.pods.Resources`.
        is_reported: whether the node has a NodeResourceTopology.
    """

    config: NodeConfig
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=lambda: _NOTHING)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    is_reported: bool = False

    @property
    def declared_features(self) -> tuple[str, ...] | None:
        """`status.declaredFeatures`; None if the kubelet declares no features and does not check
        them.
        """
        # Hollow nodes run no containers, so no feature is missing in a runtime.
        return declared_features(
            self.config.features, runtime_has_user_namespaces_on_host_network=True
        )


def machine_of(
    resources: Mapping[str, str],
    gpu_resource: str,
    numa: NumaHardware | None,
    kubelet: KubeletSettings | None,
) -> MachineSettings:
    """Return the machine of a node.

    `resources`: the node's capacity. `numa`: None for one zone. `kubelet`: None for its defaults,
    with nothing reserved.

    Raises:
        ValueError: the numbers contradict each other, or the kubelet would not start with them.
    """
    is_reported = numa is not None or kubelet is not None
    hardware, settings = numa or NumaHardware(), kubelet or KubeletSettings()
    capacity = pods.resources(resources)
    machine = _machine(capacity, hardware, is_exact=numa is not None)
    devices = _devices(capacity, gpu_resource, hardware)
    found = with_machine(machine, capacity, settings, devices)
    return replace(found, is_reported=is_reported)


def with_machine(
    machine: Machine,
    capacity: Mapping[str, int],
    settings: KubeletSettings,
    devices: Mapping[str, tuple[Device, ...]] = _NOTHING,
) -> MachineSettings:
    """Return `machine` as a kubelet with `settings` sees it.

    `capacity`: the node's, without huge pages.

    Raises:
        ValueError: the kubelet would not start with them.
    """
    config = _config(capacity, machine, settings)
    allocatable = _as_value_error(lambda: _checked(config, devices))
    return MachineSettings(config, devices, allocatable, is_reported=True)


class NoPods:
    """Stands for the pods of a node that starts for the first time: there are none."""

    def active_pods(self) -> tuple[Pod, ...]:
        """Return no pods."""
        return ()

    def sources_ready(self) -> bool:
        """Return True: no pods remain to be restored."""
        return True


def _checked(config: NodeConfig, devices: Mapping[str, tuple[Device, ...]]) -> dict[str, int]:
    """Start a kubelet once and return the allocatable amounts that it reports."""
    store = CheckpointManager(MemoryStore())
    manager = ContainerManager(config, NoPods(), store, store, lambda: 0.0)
    manager.start()
    allocatable = manager.node_allocatable()
    # The kubelet deducts huge pages from the memory that it reports.
    pages = sum(size for name, size in allocatable.items() if name.startswith("hugepages-"))
    allocatable[pods.MEMORY] = max(0, allocatable[pods.MEMORY] - pages)
    return allocatable | {name: len(listed) for name, listed in devices.items()}


def _machine(capacity: Mapping[str, int], hardware: NumaHardware, *, is_exact: bool) -> Machine:
    cpus, odd = divmod(capacity[pods.CPU], _MILLI)
    per_zone = hardware.zones * hardware.threads_per_core
    if is_exact and (odd or cpus == 0 or cpus % per_zone):
        raise ValueError(
            f"cpu: {hardware.zones} NUMA zones with {hardware.threads_per_core} threads a core "
            f"need a multiple of {per_zone} CPUs"
        )
    memory = capacity[pods.MEMORY]
    machine = uniform(
        sockets=hardware.sockets,
        numa_per_socket=hardware.zones_per_socket,
        cores_per_numa=max(1, cpus // per_zone),
        threads_per_core=hardware.threads_per_core,
        cores_per_cache=hardware.cores_per_cache,
        memory_bytes_per_numa=memory // hardware.zones,
    )
    rows = hardware.distances
    return Machine(
        tuple(
            replace(
                node,
                memory_bytes=(
                    node.memory_bytes + (memory % hardware.zones if not node.id else 0)
                    if hardware.memory is None
                    else quantity.parse(hardware.memory[node.id], "memory")
                ),
                huge_pages=tuple(
                    HugePages(quantity.parse(size, "memory") // _KIB, counts.get(node.id, 0))
                    for size, counts in hardware.huge_pages.items()
                ),
                distances=node.distances if rows is None else rows[node.id],
            )
            for node in machine.nodes
        )
    )


def _config(capacity: Mapping[str, int], machine: Machine, settings: KubeletSettings) -> NodeConfig:
    features = {GATES[gate]: value for gate, value in settings.feature_gates.items()}
    reserved_cpus = parse_cpus(settings.reserved_system_cpus)
    system, kube = pods.resources(settings.system_reserved), pods.resources(settings.kube_reserved)
    if reserved_cpus:
        system[pods.CPU] = len(reserved_cpus) * _MILLI
        kube.pop(pods.CPU, None)
    pages: dict[str, int] = {}
    for node in machine.nodes:
        for one in node.huge_pages:
            name = tables.huge_pages_resource(one.size_kib)
            pages[name] = pages.get(name, 0) + one.size_kib * _KIB * one.count
    return NodeConfig(
        machine=machine,
        capacity={**capacity, **pages},
        system_reserved=system,
        kube_reserved=kube,
        hard_eviction=settings.eviction_hard,
        cpu_policy=settings.cpu_manager_policy,
        cpu_options=settings.cpu_manager_policy_options,
        reserved_cpus=reserved_cpus or EMPTY,
        memory_policy=settings.memory_manager_policy,
        reserved_memory=tuple(
            (one.numa_node, pods.resources(one.limits)) for one in settings.reserved_memory
        ),
        topology_policy=settings.topology_manager_policy,
        topology_scope=settings.topology_manager_scope,
        topology_options=settings.topology_manager_policy_options,
        features=Features(**features),
    )


def _devices(
    capacity: Mapping[str, int], gpu_resource: str, hardware: NumaHardware
) -> dict[str, tuple[Device, ...]]:
    counts = dict(hardware.devices)
    gpus = capacity.get(gpu_resource, 0)
    if gpu_resource in counts and sum(counts[gpu_resource].values()) != gpus:
        found = sum(counts[gpu_resource].values())
        raise ValueError(f"numa.devices: {found} GPUs in NUMA zones, but gpus is {gpus}")
    if gpus and gpu_resource not in counts:
        counts[gpu_resource] = {}
        for gpu in range(gpus):
            zone = gpu * hardware.zones // gpus
            counts[gpu_resource][zone] = counts[gpu_resource].get(zone, 0) + 1
    devices = {}
    for resource, by_zone in counts.items():
        known = capacity.get(resource)
        zones = [zone for zone in sorted(by_zone) for _ in range(by_zone[zone])]
        if known is not None and known != len(zones):
            raise ValueError(
                f"numa.devices: {len(zones)} of {resource} in NUMA zones, but the node has {known}"
            )
        prefix = resource.rpartition("/")[2]
        devices[resource] = tuple(
            Device(f"{prefix}-{number}", None if zone == NO_NUMA_NODE else (zone,))
            for number, zone in enumerate(zones)
        )
    return devices


def _one_of(policy: str, *known: str) -> str:
    if policy not in known:
        raise ValueError(f'unknown policy: "{policy}"')
    return policy


def _threshold(text: str) -> str:
    """Return an eviction threshold as `nodecore` reads it: bytes, or a percentage."""
    if text.endswith("%"):
        share = float(text[:-1])
        if not 0 <= share <= 100:
            raise ValueError(f"{text!r} is no percentage")
        return text
    return str(quantity.parse(amount(text), "memory"))


def _as_value_error(action: Callable[[], T]) -> T:
    """Return the result of `action`; an error of `nodecore` is a mistake in the file."""
    try:
        return action()
    except NodeCoreError as error:
        raise ValueError(str(error)) from error
