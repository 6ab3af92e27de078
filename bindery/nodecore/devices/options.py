"""What the answers of device plugins add to a container."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeviceNode:
    """A device file."""

    host_path: str
    container_path: str
    permissions: str


@dataclass(frozen=True)
class Mount:
    """A mount."""

    host_path: str
    container_path: str
    read_only: bool = False


@dataclass(frozen=True)
class RunOptions:
    """What one plugin, or all together, add to a container."""

    envs: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


def merged(answers: Iterable[RunOptions]) -> RunOptions:
    """Return all answers as one; where two set the same, the first one counts."""
    envs: dict[str, str] = {}
    devices: dict[str, DeviceNode] = {}
    mounts: dict[str, Mount] = {}
    annotations: dict[str, str] = {}
    cdi: dict[str, None] = {}
    for answer in answers:
        envs = {**answer.envs, **envs}
        annotations = {**answer.annotations, **annotations}
        for device in answer.devices:
            devices.setdefault(device.container_path, device)
        for mount in answer.mounts:
            mounts.setdefault(mount.container_path, mount)
        cdi.update(dict.fromkeys(answer.cdi_devices))
    return RunOptions(
        envs, tuple(devices.values()), tuple(mounts.values()), annotations, tuple(cdi)
    )
