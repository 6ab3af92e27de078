"""Reads what is on a node: the kubelet's files and socket, and the hardware. Never writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bindery.nodeagent.beside import podresources
from bindery.nodeagent.beside.podresources import PodResources
from bindery.nodeagent.sockets import podresources as calls
from bindery.nodeagent.sockets.podresources import SOCKET
from bindery.nodeagent.sockets.services import CallError
from bindery.nodecore import sysfs
from bindery.nodecore.checkpoints import allocations, cpu, devices, memory

KUBELET_DIRECTORY: Final = Path("/var/lib/kubelet")
SYSTEM: Final = Path("/sys/devices/system")
DEVICES: Final = Path("device-plugins") / devices.FILE
FILES: Final = (cpu.FILE, memory.FILE, allocations.FILE)

Mark = tuple[int, int]
"""Inode and time of the last change of a file."""


class SourceError(Exception):
    """A file or the socket cannot be read."""


class Sources(Protocol):
    """What is on a node."""

    def marks(self) -> Mapping[str, Mark]:
        """Return the marks of all files that change when the kubelet gives or takes something."""

    def started(self) -> Mark | None:
        """Return the mark of the kubelet's socket, new at each start; None while it is missing."""

    def files(self) -> Mapping[str, bytes]:
        """Return name of a checkpoint file -> content; raises SourceError."""

    def configuration(self) -> str | None:
        """Return the kubelet's configuration file; None if it cannot be read."""

    def hardware(self) -> Mapping[str, str]:
        """Return the files of the hardware, as `nodecore.sysfs` reads them; raises SourceError."""

    async def resources(self) -> PodResources:
        """Return the answers of the socket; raises SourceError."""


@dataclass(frozen=True)
class NodeSources:
    """The directories of this node; implements `Sources`.

    Attributes:
        directory: the kubelet's root directory.
        configuration_file: the kubelet's configuration.
        system: /sys/devices/system, as it is mounted here.
    """

    directory: Path = KUBELET_DIRECTORY
    configuration_file: Path = KUBELET_DIRECTORY / "config.yaml"
    system: Path = SYSTEM

    def marks(self) -> Mapping[str, Mark]:
        """Return the marks of all files that change when the kubelet gives or takes something."""
        found = {name: _mark(self.directory / name) for name in (*FILES, str(DEVICES))}
        return {name: mark for name, mark in found.items() if mark is not None}

    def started(self) -> Mark | None:
        """Return the mark of the kubelet's socket, new at each start; None while it is missing."""
        return _mark(self.directory / SOCKET)

    def files(self) -> Mapping[str, bytes]:
        """Return name of a checkpoint file -> content; raises SourceError."""
        found: dict[str, bytes] = {}
        for name in FILES:
            try:
                found[name] = (self.directory / name).read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise SourceError(f"{self.directory / name}: {error.strerror}") from error
        return found

    def configuration(self) -> str | None:
        """Return the kubelet's configuration file; None if it cannot be read."""
        try:
            return self.configuration_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def hardware(self) -> Mapping[str, str]:
        """Return the files of the hardware, as `nodecore.sysfs` reads them; raises SourceError."""
        found: dict[str, str] = {}
        for pattern in sysfs.PATTERNS:
            for path in sorted(self.system.glob(pattern)):
                try:
                    found[str(path.relative_to(self.system))] = path.read_text(encoding="utf-8")
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise SourceError(f"{path}: {error.strerror}") from error
        return found

    async def resources(self) -> PodResources:
        """Return the answers of the socket; raises SourceError."""
        socket = self.directory / SOCKET
        try:
            allocatable = await calls.allocatable(socket)
            listed = await calls.listed(socket)
        except CallError as error:
            raise SourceError(f"{socket}: {error}") from error
        return podresources.read(allocatable, listed)


def _mark(path: Path) -> Mark | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns
