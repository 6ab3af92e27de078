"""The properties of one vendor's devices: the columns of the table in `vendortable`.

Read by the request reader, by the scheduler's fit and by the binder. No code is specific to a
single vendor: each difference is a column. Invariant: a row covers HAMi's package for the vendor;
`docs/hami.md` lists the omissions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType

from bindery.api.hami.names import CAMBRICON_LOCK, NODE_LOCK


class Register(Enum):
    """The source of a node's devices."""

    DEVICES = "devices"
    """HAMi's register, as JSON or in fields."""
    METAX = "metax"
    DRS = "drs"
    CAPACITY = "capacity"
    """No register: the devices follow from the node's capacity."""


class Lock(StrEnum):
    """The annotation that locks a node for one pod until its devices are allocated."""

    NODE = NODE_LOCK
    CAMBRICON = CAMBRICON_LOCK
    NONE = ""


class Extra(Enum):
    """Further annotations that a vendor's device plugin reads, written by `extras`."""

    INDEXES = "indexes of the devices: 0,1"
    NODE = "name of the node"
    TIME_S = "seconds since the epoch"
    TIME_NS = "nanoseconds since the epoch"
    FALSE = "false"
    MLU_PROFILE = "index_cores_memory of the first device"
    NPU_LIST = "JSON list of UUID, template, memory and cores"
    SGPU_SLOTS = "JSON list of lists of uuid, compute and vRam"
    SHARES = "how many shares of its device the pod takes"
    MIG_INSTANCES = "the MIG instances, if there are some"


class Alignment(Enum):
    """Constraints on the indexes of cards that are given together."""

    ANY = "any"
    RUNS = "runs"
    """Neighbours; on nodes of a torus type, runs that begin at a multiple of their length."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How devices follow from a node's capacity."""

    resource: str
    per_device: int = 1
    """The amount of `resource` for one device."""
    id_part: str = ""
    """The device's id is NODE-PART-INDEX."""
    shares: int = 100
    memory_mib: int = 0
    memory_resource: str = ""
    """In place of `memory_mib`: a resource divided among the devices, in the vendor's units."""
    cores: int = 100
    cores_mask_resource: str = ""
    """A resource with a number of cores, divided among the devices and counted as bits."""
    has_two_halves: bool = False
    """Whether the first half of the devices is at NUMA node 0 and the second half at 1."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A size of slices of a device."""

    name: str
    memory_mib: int
    cores: int


@dataclass(frozen=True, slots=True)
class Vendor:
    """One row of the table."""

    word: str
    """HAMi's common word: the TYPE of the vendor's devices in pods."""
    count_resource: str
    allocated_key: str
    to_allocate_key: str = ""
    lock: Lock = Lock.NODE

    # ---- what a node has ----
    register: Register = Register.DEVICES
    register_key: str = ""
    capacity: Capacity | None = None

    # ---- what a container asks for ----
    memory_resource: str = ""
    memory_unit_mib: int = 1
    percentage_resource: str = ""
    cores_resource: str = ""
    other_resources: tuple[str, ...] = ()
    """Further managed resources, which the scheduler ignores."""
    default_cores: int = 0
    """Cores of a container that requests only memory."""
    is_whole: bool = False
    """Whether devices are never shared."""
    amounts_are_totals: bool = False
    """Whether memory and cores are totals over all devices of the container."""
    many_are_whole: bool = False
    """Whether two or more devices are always whole."""
    slices: tuple[Slice, ...] = ()
    """The sizes to which memory is rounded up, with their cores; above: a whole device."""
    legal_units: tuple[int, ...] = ()
    """The only valid amounts of memory for one device, in its units."""
    legal_counts: tuple[int, ...] = ()
    module: int = 1
    """A single device is rounded up to this number, one module."""
    cores_are_percent: bool = False
    """Whether cores are requested in per cent and counted in the device's own units."""
    cores_are_bits: bool = False
    """Whether cores are counted as a bit mask."""
    count_is_shares: bool = False
    """Whether the count is the number of shares of one single device."""

    # ---- which devices ----
    use_types: str = ""
    avoid_types: str = ""
    use_ids: tuple[str, ...] = ()
    avoid_ids: tuple[str, ...] = ()
    groups: Mapping[int, tuple[tuple[int, ...], ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Count -> the sets of indexes that are linked, best first."""
    alignment: Alignment = Alignment.ANY
    has_one_size: bool = False
    """Whether all slices of one device must have the same size."""
    has_one_device_a_pod: bool = False
    """Whether all containers of a pod must be on the same device."""

    # ---- what is written ----
    type_is_model: bool = False
    """Whether TYPE in pods is the registered model."""
    extras: tuple[tuple[str, Extra], ...] = ()

    @property
    def managed_resources(self) -> tuple[str, ...]:
        """Resources that only devices provide: the scheduler ignores the amounts of nodes."""
        named = (self.memory_resource, self.percentage_resource, self.cores_resource)
        return (*(name for name in named if name), *self.other_resources)
