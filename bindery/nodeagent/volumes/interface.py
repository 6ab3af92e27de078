"""What a volume plugin is: the steps of a volume, each safe to repeat.

The steps raise MountError. What its kind means for the state is in `docs/nodecore.md`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from bindery.nodeagent.volumes.sources import (
    AttachmentObject,
    DriverObject,
    MountingPod,
    PodFieldFile,
    PodVolumeSource,
    StoredClaim,
    StoredVolume,
    TokenFile,
)
from bindery.nodecore.volumes.actual import Failure
from bindery.nodecore.volumes.populator import VolumeError
from bindery.nodecore.volumes.reconstruction import FoundVolume
from bindery.nodecore.volumes.specs import VolumeSpec

P = TypeVar("P")


class MountError(VolumeError):
    """A step of a volume has failed; `failure`: how much is known of it."""

    def __init__(self, message: str, failure: Failure = Failure.FINAL) -> None:
        super().__init__(message)
        self.failure = failure


class InitializationError(MountError):
    """The volume cannot be mounted as it is; nothing has begun."""


class InUseError(MountError):
    """The volume cannot grow while pods use it; the mount goes on."""


class NotSupportedError(MountError):
    """The plugin does not have the step."""


@dataclass(frozen=True)
class PodMount:
    """A volume for a pod.

    Attributes:
        source: the volume in the pod, None for one of a claim.
        volume: the PersistentVolume, None for the pod's own volumes.
        is_remount: whether the pod has the volume already, and perhaps new content.
        is_reconstructed: whether the mount was found after a restart.
    """

    pod: MountingPod
    spec: VolumeSpec
    source: PodVolumeSource | None = None
    volume: StoredVolume | None = None
    is_remount: bool = False
    is_reconstructed: bool = False


class VolumePlugin(Protocol):
    """A kind of volumes."""

    def path(self, mount: PodMount) -> Path:
        """Return what containers see."""

    async def set_up(self, mount: PodMount) -> None:
        """Make the volume for the pod at `path`."""

    async def tear_down(self, found: FoundVolume) -> None:
        """Take the volume of the pod away, whatever is left of it."""

    def construct(self, found: FoundVolume) -> VolumeSpec:
        """Return the volume that the last run has left; raises VolumeError if it is unknown."""


class DeviceVolumes(Protocol):
    """A kind of volumes that the node mounts once for all pods."""

    def device_path(self, spec: VolumeSpec) -> Path:
        """Return where the node has the volume."""

    async def mount_device(self, mount: PodMount, device: str) -> None:
        """Mount the volume for the node; `device`: the attached one, where the node knows it."""

    async def unmount_device(self, spec: VolumeSpec) -> None:
        """Take the mount of the node away."""

    def left_behind(self) -> list[VolumeSpec]:
        """Return the volumes that the last run has mounted for the node.

        Directories that it has made for nothing, or has not removed yet, are removed.
        """

    async def grow(self, mount: PodMount, size_bytes: int, device: str) -> None:
        """Let the volume have the size.

        Raises:
            InUseError: not while it is in use.
            NotSupportedError: the plugin has nothing to do for it.
            MountError: it has failed.
        """


class BlockVolumes(Protocol):
    """A kind of volumes that pods can use as devices."""

    def map_path(self, spec: VolumeSpec) -> Path:
        """Return the directory in which the node binds the device for each pod."""

    async def stage_block(self, mount: PodMount, device: str) -> None:
        """Make the device on the node."""

    async def publish_block(self, mount: PodMount, device: str) -> str:
        """Make the device for the pod; return its path."""

    async def unpublish_block(self, found: FoundVolume) -> None:
        """Take the device of the pod away."""

    async def unstage_block(self, spec: VolumeSpec) -> None:
        """Take the device of the node away."""

    def left_behind(self) -> list[VolumeSpec]:
        """Return the devices that the last run has made on the node, like that of volumes."""

    def bound(self) -> list[FoundVolume]:
        """Return the devices that the last run has made for pods, linked there or not."""

    def construct(self, found: FoundVolume) -> VolumeSpec:
        """Return the device that the last run has left; raises VolumeError if it is unknown."""


@dataclass(frozen=True)
class Plugins:
    """The kinds of volumes that the node has, by the names of their plugins."""

    volumes: Mapping[str, VolumePlugin]
    devices: Mapping[str, DeviceVolumes]
    blocks: Mapping[str, BlockVolumes]

    def volume(self, name: str) -> VolumePlugin:
        """Return a plugin; raises InitializationError if there is none."""
        return _known(self.volumes, name)

    def block(self, name: str) -> BlockVolumes:
        """Return a plugin of devices; raises InitializationError if there is none."""
        return _known(self.blocks, name)

    def construct(self, found: FoundVolume) -> VolumeSpec:
        """Return what the last run has left; raises VolumeError if it is unknown."""
        plugin = self.block(found.plugin) if found.is_block else self.volume(found.plugin)
        return plugin.construct(found)


class PodContent(Protocol):
    """What the files of pods show. Failures raise VolumeError."""

    async def config_map(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Return the data of a ConfigMap, its binary data too; None if there is none."""

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Return the data of a Secret; None if there is none."""

    async def token(self, pod: MountingPod, wanted: TokenFile) -> str:
        """Return a token of the pod's account, bound to the pod."""

    def value(self, pod: MountingPod, wanted: PodFieldFile) -> str:
        """Return the value of a field or an amount of the pod."""


class VolumeObjects(Protocol):
    """The objects of storage in the API. Failures raise VolumeError, and so do missing objects."""

    async def claim(self, namespace: str, name: str) -> StoredClaim:
        """Return a claim."""

    async def volume(self, name: str) -> StoredVolume:
        """Return a volume."""

    async def driver(self, name: str) -> DriverObject | None:
        """Return the CSIDriver, None without one."""

    async def attachment(self, name: str) -> AttachmentObject | None:
        """Return the VolumeAttachment, None if there is none."""

    async def attach(self, name: str, driver: str, volume: str) -> None:
        """Create the VolumeAttachment of the volume to this node, unless it exists."""

    async def detach(self, name: str) -> None:
        """Delete the VolumeAttachment."""

    async def has_grown(self, claim: StoredClaim, volume: StoredVolume) -> None:
        """Write the size of its volume into the status of the claim."""


def _known(plugins: Mapping[str, P], name: str) -> P:
    if name not in plugins:
        raise InitializationError(f"no volume plugin matched name: {name}")
    return plugins[name]
