"""The GPUs of a node that are offered as shares, and the file with them.

Whatever finds GPUs (a file here) is a function that returns them. `WatchedGpus` calls it each
second.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import structlog
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from bindery.api import quantity, yamlfile

MIB: Final = 2**20
MOST_GPUS: Final = 64
"""Kubernetes accepts no more devices with taints in one ResourceSlice."""
_MOST_OF_NAME = 63
_POLL_S: Final = 1.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class OfferedGpu:
    """A GPU.

    Attributes:
        index: its place in the order of the driver's tools, by PCI address.
        memory_mib: MiB.
        numa_node: None if it belongs to none.
        pci_address: such as 0000:3b:00.0; "" if unknown.
        pcie_root: such as pci0000:3a; "" if unknown.
        problem: why nothing new may use it; "" while it is healthy.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    numa_node: int | None = None
    pci_address: str = ""
    pcie_root: str = ""
    problem: str = ""

    @property
    def name(self) -> str:
        """The name of the device in ResourceSlices: it stays when other GPUs come or go."""
        return re.sub("[^a-z0-9]+", "-", self.uuid.lower()).strip("-")


Gpus = tuple[OfferedGpu, ...]


class OfferError(Exception):
    """The GPUs of the node cannot be offered."""


class WatchedGpus:
    """The GPUs as of the last look, and who is called when they change.

    `read` returns the GPUs, or raises OfferError; then those of the last look stay.
    """

    def __init__(self, read: Callable[[], Gpus]) -> None:
        self.now = read()
        self._read = read
        self._listeners: list[Callable[[], None]] = []
        self._changed = asyncio.Event()
        self._problem = ""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    async def change(self, within_s: float) -> None:
        """Wait for a change, or until `within_s` are over."""
        try:
            await asyncio.wait_for(self._changed.wait(), within_s)
        except TimeoutError:
            return

    async def run(self) -> None:
        """Look each second; does not return."""
        while True:
            await asyncio.sleep(_POLL_S)
            self._look()

    def _look(self) -> None:
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
    found = tuple(sorted(gpus, key=lambda gpu: gpu.index))
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


# ---- the file -----------------------------------------------------------------------------------


class ListedGpu(BaseModel):
    """A GPU in the file."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True)

    uuid: Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9/_.-]*$")]
    model: str
    memory: Annotated[str, BeforeValidator(str)]
    numa_node: Annotated[int | None, Field(ge=0)] = None
    pci_address: str = ""
    pcie_root: str = ""
    problem: str = ""

    @field_validator("memory")
    @classmethod
    def _is_quantity(cls, value: str) -> str:
        quantity.parse(value, "memory")
        return value


class GpusFile(BaseModel):
    """The file with the GPUs of a node, in the order of their index."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True)

    gpus: tuple[ListedGpu, ...]


def file_reader(path: Path) -> Callable[[], Gpus]:
    """Return the function that reads the GPUs from a file in YAML or JSON."""
    known: tuple[tuple[int, int], Gpus] | None = None

    def read() -> Gpus:
        nonlocal known
        try:
            stat = path.stat()
            mark = stat.st_ino, stat.st_mtime_ns
            if known is None or known[0] != mark:
                known = mark, _read(path)
        except (OSError, yamlfile.FileError) as error:
            raise OfferError(str(error)) from error
        return known[1]

    return read


def _read(path: Path) -> Gpus:
    listed = yamlfile.load(GpusFile, path).gpus
    return checked(
        OfferedGpu(
            index=index,
            uuid=one.uuid,
            model=one.model,
            memory_mib=quantity.parse(one.memory, "memory") // MIB,
            numa_node=one.numa_node,
            pci_address=one.pci_address,
            pcie_root=one.pcie_root,
            problem=one.problem,
        )
        for index, one in enumerate(listed)
    )
