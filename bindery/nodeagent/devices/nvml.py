"""Reads GPUs through NVML; `python -m bindery.nodeagent.devices.nvml` prints them as a file's JSON.

A process of its own reads (`NvmlSource`): a driver that hangs or crashes does not take the agent
with it, and a driver that was replaced is loaded again. What NVML does not support on a GPU is left
out; only the UUID is needed.
"""

import asyncio
import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from bindery.nodeagent.devices import nvmluse
from bindery.nodeagent.devices.inventory import (
    NO_NUMA_NODE,
    DevicesUnreadableError,
    Distance,
    GpuLink,
    MigKind,
    MigRange,
    MigSlice,
    NodeGpu,
    NodeGpus,
    UseReading,
)

_MIB: Final = 2**20
_DOMAIN_DIGITS: Final = 4
_PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
_LEVELS: Final = {
    0: Distance.INTERNAL,
    10: Distance.SINGLE,
    20: Distance.MULTIPLE,
    30: Distance.HOST_BRIDGE,
    40: Distance.NODE,
    50: Distance.SYSTEM,
}
"""NVML_TOPOLOGY_… -> the distance."""
_SWITCH: Final = 2
"""NVML_NVLINK_DEVICE_TYPE_SWITCH."""
_UNCORRECTED, _VOLATILE = 1, 0
"""NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC."""
_READ_S: Final = 20.0
_USE: Final[TypeAdapter[dict[str, int | None]]] = TypeAdapter(dict[str, int | None])

T = TypeVar("T")


class NvmlSource:
    """Reads the GPUs in a child process. `command`, `use_command`: of the child, for tests."""

    def __init__(
        self,
        command: tuple[str, ...] = (sys.executable, "-m", __name__),
        use_command: tuple[str, ...] = (sys.executable, "-m", nvmluse.__name__),
    ) -> None:
        self._command, self._use_command = command, use_command

    async def read(self) -> tuple[NodeGpu, ...]:
        """Return the GPUs that the driver reports."""
        try:
            return NodeGpus.model_validate_json(await _output(self._command)).gpus
        except ValidationError as error:
            raise DevicesUnreadableError(f"NVML's reader: {error}") from error

    async def use(self) -> UseReading:
        """Return how much each GPU is used."""
        output = await _output(self._use_command)
        try:
            return UseReading(_USE.validate_json(output))
        except ValidationError as error:
            raise DevicesUnreadableError(f"NVML's reader: {error}") from error


async def _output(command: Sequence[str]) -> bytes:
    """Return what a child process prints; raises DevicesUnreadableError."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_READ_S):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise DevicesUnreadableError(f"NVML does not answer within {_READ_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        reason = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise DevicesUnreadableError(reason or f"NVML's reader ended with {process.returncode}")
    return output


def read(nvml: Any, pci_devices: Path = _PCI_DEVICES) -> NodeGpus:
    """Return the GPUs. `nvml`: the initialised module `pynvml`; `pci_devices`: sysfs's directory.

    A GPU without a UUID is lost; `inventory.with_missing` keeps what was known of it.
    """
    handles: dict[str, Any] = {}
    indexes: dict[str, int] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        with suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvmluse.text(nvml.nvmlDeviceGetUUID(handle))
            handles[uuid], indexes[uuid] = handle, index
    reader = _Reader(nvml, handles, pci_devices)
    return NodeGpus(gpus=tuple(reader.gpu(uuid, indexes[uuid]) for uuid in handles))


class _Reader:
    """Reads GPUs one by one; asks for what only some of them support."""

    def __init__(self, nvml: Any, handles: dict[str, Any], pci_devices: Path) -> None:
        self._nvml, self._handles, self._pci_devices = nvml, handles, pci_devices
        self._addresses = {uuid: self._pci_address(handle) for uuid, handle in handles.items()}
        self._remotes = {uuid: list(self._linked(handle)) for uuid, handle in handles.items()}

    def gpu(self, uuid: str, index: int) -> NodeGpu:
        nvml, handle = self._nvml, self._handles[uuid]
        memory = self._asked(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total), 0)
        is_mig = self._asked(lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]), False)
        address = self._addresses[uuid]
        return NodeGpu(
            uuid=uuid,
            index=index,
            model=self._asked(lambda: nvmluse.text(nvml.nvmlDeviceGetName(handle)), ""),
            memory_mib=memory // _MIB,
            numa_node=_numa_node(self._pci_devices / address),
            pci_address=address,
            problem=self._problem(handle),
            links=tuple(self._link(uuid, other) for other in self._handles if other != uuid),
            is_mig=is_mig,
            mig_kinds=tuple(self._kinds(handle)) if is_mig else (),
            mig_slices=tuple(self._slices(handle)) if is_mig else (),
        )

    def _asked(self, question: Callable[[], T], otherwise: T) -> T:
        try:
            return question()
        except self._nvml.NVMLError:
            return otherwise

    def _pci_address(self, handle: Any) -> str:
        text = self._asked(lambda: nvmluse.text(self._nvml.nvmlDeviceGetPciInfo(handle).busId), "")
        return _address(text)

    def _problem(self, handle: Any) -> str:
        nvml = self._nvml
        rows = self._asked(lambda: tuple(nvml.nvmlDeviceGetRemappedRows(handle)), (0, 0, 0, 0))
        if rows[3]:
            return "a row of its memory could not be remapped"
        count = self._asked(
            lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _VOLATILE)), 0
        )
        return f"{count} uncorrected errors of its memory since the last reset" if count else ""

    def _linked(self, handle: Any) -> Iterator[tuple[bool, str]]:
        """Yield for each active NVLink: whether it ends at a switch, and the address of its end."""
        nvml = self._nvml
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            with suppress(nvml.NVMLError):
                if nvml.nvmlDeviceGetNvLinkState(handle, link):
                    kind = self._asked(
                        lambda link=link: int(  # type: ignore[misc]  # bound now
                            nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
                        ),
                        0,
                    )
                    remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
                    yield kind == _SWITCH, _address(nvmluse.text(remote.busId))

    def _link(self, uuid: str, other: str) -> GpuLink:
        level = self._asked(
            lambda: int(
                self._nvml.nvmlDeviceGetTopologyCommonAncestor(
                    self._handles[uuid], self._handles[other]
                )
            ),
            50,
        )
        mine, theirs = self._remotes[uuid], self._remotes[other]
        direct = sum(not is_switch and end == self._addresses[other] for is_switch, end in mine)
        # Through switches each GPU reaches each other with all its links.
        switched = min(sum(switch for switch, _ in mine), sum(switch for switch, _ in theirs))
        return GpuLink(
            uuid=other, distance=_LEVELS.get(level, Distance.SYSTEM), nvlinks=direct + switched
        )

    def _kinds(self, handle: Any) -> Iterator[MigKind]:
        nvml = self._nvml
        for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            with suppress(nvml.NVMLError):
                info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number)
                yield MigKind(
                    # NVML names the profile "MIG 1g.5gb"; instances are named without the word.
                    name=nvmluse.text(info.name).removeprefix("MIG "),
                    memory_mib=int(info.memorySizeMB),
                    slices=int(info.sliceCount),
                    placements=tuple(self._placements(handle, int(info.id))),
                )

    def _placements(self, handle: Any, profile: int) -> Iterator[MigRange]:
        nvml = self._nvml
        count = ctypes.c_uint(0)
        with suppress(nvml.NVMLError):
            nvml.nvmlDeviceGetGpuInstancePossiblePlacements(
                handle, profile, None, ctypes.byref(count)
            )
            found = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
            nvml.nvmlDeviceGetGpuInstancePossiblePlacements(
                handle, profile, found, ctypes.byref(count)
            )
            yield from (MigRange(start=each.start, size=each.size) for each in found)

    def _slices(self, handle: Any) -> Iterator[MigSlice]:
        nvml = self._nvml
        for number in range(
            self._asked(lambda: int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)), 0)
        ):
            with suppress(nvml.NVMLError):
                slice_handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
                instance = nvml.nvmlDeviceGetGpuInstanceById(
                    handle, nvml.nvmlDeviceGetGpuInstanceId(slice_handle)
                )
                placement = nvml.nvmlGpuInstanceGetInfo(instance).placement
                memory = int(nvml.nvmlDeviceGetMemoryInfo(slice_handle).total) // _MIB
                # The name of an instance is "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
                yield MigSlice(
                    uuid=nvmluse.text(nvml.nvmlDeviceGetUUID(slice_handle)),
                    profile=nvmluse.text(nvml.nvmlDeviceGetName(slice_handle)).rpartition(" ")[2],
                    memory_mib=memory,
                    placement=MigRange(start=placement.start, size=placement.size),
                )


def _address(text: str) -> str:
    """Return a PCI address as sysfs writes it: NVML's domain has eight digits."""
    domain, mark, rest = text.lower().partition(":")
    return f"{domain[-_DOMAIN_DIGITS:]}{mark}{rest}"


def _numa_node(device: Path) -> int:
    try:
        return max(NO_NUMA_NODE, int((device / "numa_node").read_text()))
    except (OSError, ValueError):
        return NO_NUMA_NODE


if __name__ == "__main__":
    nvmluse.answer(lambda nvml: read(nvml).model_dump_json(by_alias=True))
