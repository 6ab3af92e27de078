"""The GPUs of a node, and the interface of what reads them.

`filesource` and `nvml` are the sources; `dcgm` has their use alone. The models are also the format
of the file, in which the source NVML answers too. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from pydantic import Field

from bindery.api.base import ApiModel, NonNegative

NO_NUMA_NODE: Final = -1


class DevicesUnreadableError(Exception):
    """A source could not read the devices; the text has the reason."""


class Distance(StrEnum):
    """The closest common ancestor of two GPUs in the machine, as NVML names the levels."""

    INTERNAL = "internal"
    """On one board."""
    SINGLE = "single"
    """Below one PCIe switch."""
    MULTIPLE = "multiple"
    """Several PCIe switches, without a host bridge."""
    HOST_BRIDGE = "hostBridge"
    NODE = "node"
    """One NUMA node."""
    SYSTEM = "system"
    """Different NUMA nodes."""


class GpuLink(ApiModel):
    """The way from one GPU to another."""

    uuid: str
    """The other GPU."""
    distance: Distance = Distance.SYSTEM
    nvlinks: NonNegative = 0
    """Active NVLinks between both, also through switches."""


class MigRange(ApiModel):
    """The slices that a MIG instance takes."""

    start: NonNegative
    size: int = Field(ge=1)


class MigKind(ApiModel):
    """A profile of MIG instances that a GPU offers, with the possible places."""

    name: str
    memory_mib: NonNegative
    slices: NonNegative = 0
    placements: tuple[MigRange, ...] = ()


class MigSlice(ApiModel):
    """A MIG instance that exists."""

    uuid: str
    profile: str
    memory_mib: NonNegative
    placement: MigRange


class NodeGpu(ApiModel):
    """One GPU."""

    uuid: str = Field(min_length=1, pattern=r"^[^:;,\s]+$")
    """It is written between the marks `:;,` of HAMi's annotations."""
    index: NonNegative = 0
    model: str = ""
    memory_mib: NonNegative = 0
    numa_node: int = Field(default=NO_NUMA_NODE, ge=NO_NUMA_NODE)
    pci_address: str = ""
    """Such as 0000:07:00.0."""
    problem: str = ""
    """Why the GPU is unhealthy; "" if it is healthy."""
    links: tuple[GpuLink, ...] = ()
    is_mig: bool = False
    """Whether the GPU is divided into MIG instances."""
    mig_kinds: tuple[MigKind, ...] = ()
    mig_slices: tuple[MigSlice, ...] = ()
    utilization_percent: int | None = Field(default=None, ge=0, le=100)
    """Only in files; `DeviceSource.use` has it."""

    @property
    def is_healthy(self) -> bool:
        """Whether new containers may get the GPU."""
        return not self.problem


class NodeGpus(ApiModel):
    """All GPUs of a node: the content of a file."""

    gpus: tuple[NodeGpu, ...] = ()


Use = Mapping[str, int | None]
"""UUID -> percent of the time in which the GPU works; None if it is unknown."""
PodKey = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class UseReading:
    """One reading of the use.

    Attributes:
        percents: of GPUs, and of MIG instances where the source knows them.
        holders: the devices of pods, keys of `percents`, where the source knows them.
    """

    percents: Use
    holders: Mapping[PodKey, frozenset[str]] = field(default_factory=dict)


class UseSource(Protocol):
    """Reads how much the GPUs of this node are used."""

    async def use(self) -> UseReading:
        """Return how much each GPU is used now.

        Raises:
            DevicesUnreadableError: it cannot be read now.
        """
        ...


class DeviceSource(UseSource, Protocol):
    """Reads the GPUs of this node."""

    async def read(self) -> tuple[NodeGpu, ...]:
        """Return the GPUs, by their index, without their use.

        Raises:
            DevicesUnreadableError: they cannot be read now.
        """
        ...


MISSING: Final = "it is no longer reported"


def with_missing(known: Sequence[NodeGpu], found: Sequence[NodeGpu]) -> tuple[NodeGpu, ...]:
    """Return `found`, and as unhealthy the GPUs of `known` that are not among them.

    A GPU that has fallen off the bus is not reported at all, while pods still hold it.
    """
    present = {gpu.uuid for gpu in found}
    lost = (gpu.model_copy(update={"problem": MISSING}) for gpu in known if gpu.uuid not in present)
    return tuple(sorted((*found, *lost), key=lambda gpu: (gpu.index, gpu.uuid)))
