"""The GPUs of a node that are offered as shares, and the MIG instances that are offered whole.

`offered` makes them from what `devices.reporter` has read. `WatchedGpus` looks when that changes.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from bindery.nodeagent.devices.inventory import NO_NUMA_NODE, NodeGpu

MIB: Final = 2**20
MOST_GPUS: Final = 64
"""Kubernetes accepts no more devices with taints in one ResourceSlice."""
PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
_ADDRESS: Final = re.compile("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]")
_ROOT: Final = re.compile("pci[0-9a-f]{4}:[0-9a-f]{2}")
_MOST_OF_NAME = 63

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class OfferedGpu:
    """A GPU, or a MIG instance of one.

    Attributes:
        index: its place in the order of the driver's tools, by PCI address.
        memory_mib: MiB.
        numa_node: None if it belongs to none.
        pci_address: such as 0000:3b:00.0; "" if unknown.
        pcie_root: such as pci0000:3a; "" if unknown.
        problem: why nothing new may use it; "" while it is healthy.
        profile: of a MIG instance, such as 1g.5gb; "" for a GPU.
        parent_uuid: the GPU of a MIG instance, which also has its index and PCI address.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    numa_node: int | None = None
    pci_address: str = ""
    pcie_root: str = ""
    problem: str = ""
    profile: str = ""
    parent_uuid: str = ""

    @property
    def is_instance(self) -> bool:
        """Whether it is a MIG instance: the hardware limits it, and one claim gets all of it."""
        return bool(self.profile)

    @property
    def name(self) -> str:
        """The name of the device in ResourceSlices: it stays when other GPUs come or go."""
        return device_name(self.uuid)


def device_name(uuid: str) -> str:
    """Return the name of the device of a GPU."""
    return re.sub("[^a-z0-9]+", "-", uuid.lower()).strip("-")


Gpus = tuple[OfferedGpu, ...]


class OfferError(Exception):
    """The GPUs of the node cannot be offered."""


class WatchedGpus:
    """The GPUs as of the last look, `now`, and who is called when they change.

    `read` returns the GPUs, or raises OfferError; then those of the last look stay. `wait` returns
    when `read` may have others.
    """

    def __init__(
        self, now: Gpus, read: Callable[[], Gpus], wait: Callable[[], Awaitable[None]]
    ) -> None:
        self.now = now
        self._read, self._wait = read, wait
        self._listeners: list[Callable[[], None]] = []
        self._changed = asyncio.Event()
        self._problem = ""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    async def change(self, within_s: float) -> None:
        """Wait for a change, or until `within_s` are over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._changed.wait()

    async def run(self) -> None:
        """Look at each change; does not return."""
        while True:
            await self._wait()
            self.look()

    def look(self) -> None:
        """Look now."""
        try:
            found = self._read()
        except OfferError as error:
            if str(error) != self._problem:
                log.warning("the GPUs cannot be read; those of before stay", error=str(error))
            self._problem = str(error)
            return
        self._problem = ""
        if found == self.now:
            return
        self.now = found
        log.info("the GPUs have changed", gpus=len(found))
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in self._listeners:
            listener()


def checked(gpus: Iterable[OfferedGpu]) -> Gpus:
    """Return the GPUs by index.

    Raises:
        OfferError: they cannot be devices of one ResourceSlice.
    """
    found = tuple(sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid)))
    if len(found) > MOST_GPUS:
        raise OfferError(f"{len(found)} GPUs: at most {MOST_GPUS} can be offered")
    names: set[str] = set()
    for gpu in found:
        if not 0 < len(gpu.name) <= _MOST_OF_NAME:
            raise OfferError(f"{gpu.uuid!r} makes no name for a device")
        if gpu.name in names:
            raise OfferError(f"two GPUs have the name {gpu.name}")
        if gpu.memory_mib < 2:
            raise OfferError(f"{gpu.uuid} has less memory than 2 MiB")
        names.add(gpu.name)
    return found


def offered(gpus: Iterable[NodeGpu], pci_devices: Path = PCI_DEVICES) -> Gpus:
    """Return the GPUs that claims can share, and for each one in MIG mode its instances.

    Args:
        gpus: the GPUs of the node.
        pci_devices: where the kernel lists the machine's devices.

    Raises:
        OfferError: they cannot be devices of one ResourceSlice.
    """
    return checked(each for gpu in gpus for each in _parts(gpu, pci_devices))


def _parts(gpu: NodeGpu, pci_devices: Path) -> Iterator[OfferedGpu]:
    whole = OfferedGpu(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        numa_node=None if gpu.numa_node == NO_NUMA_NODE else gpu.numa_node,
        pci_address=gpu.pci_address,
        pcie_root=pcie_root(gpu.pci_address, pci_devices),
        problem=gpu.problem,
    )
    if not gpu.is_mig:
        yield whole
        return
    for each in gpu.mig_slices:
        yield replace(
            whole,
            uuid=each.uuid,
            memory_mib=each.memory_mib,
            profile=each.profile,
            parent_uuid=gpu.uuid,
        )


def pcie_root(address: str, pci_devices: Path = PCI_DEVICES) -> str:
    """Return the PCIe root complex of a device, such as pci0000:3a; "" if it is unknown."""
    if not _ADDRESS.fullmatch(address):
        return ""
    for part in (pci_devices / address).resolve().parts:
        if _ROOT.fullmatch(part):
            return part
    return ""
