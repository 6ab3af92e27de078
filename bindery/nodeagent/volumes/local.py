"""local: a directory or a disk of the node that a PersistentVolume names."""

import stat
from pathlib import Path
from typing import Final

from bindery.nodeagent.volumes.hostpath import has_backsteps
from bindery.nodeagent.volumes.interface import (
    InitializationError,
    MountError,
    NotSupportedError,
    PodMount,
)
from bindery.nodeagent.volumes.mounts import (
    Mounter,
    at,
    make_directories,
    references,
    remove_mount,
    run,
)
from bindery.nodeagent.volumes.ownership import set_group_slowly
from bindery.nodecore.volumes.reconstruction import FoundVolume
from bindery.nodecore.volumes.specs import VolumeSpec, pod_volume_path

LOCAL: Final = "kubernetes.io/local-volume"
_FILE_SYSTEM: Final = "ext4"


class LocalPlugin:
    """The plugin of local volumes; `root`: the kubelet's directory."""

    def __init__(self, root: Path, mounter: Mounter) -> None:
        self._root = root
        self._mounter = mounter

    def path(self, mount: PodMount) -> Path:
        """Return where the pod has the volume."""
        return self._root / pod_volume_path(mount.pod.uid, LOCAL, mount.spec.name)

    async def set_up(self, mount: PodMount) -> None:
        """Bind the directory, or the mounted disk, for the pod."""
        source = self._source(mount)
        if _kind(source) == stat.S_IFBLK:
            source = self.device_path(mount.spec)
        place = self.path(mount)
        mounts = self._mounter.mounts()
        if at(place, mounts) is not None:
            return
        is_first = not any(
            one.is_relative_to(self._root / "pods") for one in references(source, mounts)
        )
        make_directories(place)
        options = ["bind", *(("ro",) if mount.spec.is_read_only else ()), *_options(mount)]
        try:
            await self._mounter.mount(str(source), place, "", options)
        except MountError:
            await remove_mount(self._mounter, place)
            raise
        if is_first and not mount.spec.is_read_only:
            await set_group_slowly(place, mount)

    async def tear_down(self, found: FoundVolume) -> None:
        """Unmount the volume of the pod."""
        place = self._root / pod_volume_path(found.pod_uid, LOCAL, found.name)
        await remove_mount(self._mounter, place)

    def construct(self, found: FoundVolume) -> VolumeSpec:
        """Return the volume: its directory has the name of the PersistentVolume."""
        return VolumeSpec(
            found.name, LOCAL, found.name, is_device_mountable=True, is_block=found.is_block
        )

    def device_path(self, spec: VolumeSpec) -> Path:
        """Return where the node mounts the disk."""
        return self._root / "plugins" / LOCAL / "mounts" / spec.name

    async def mount_device(self, mount: PodMount, device: str) -> None:  # noqa: ARG002  it has its own
        """Mount the disk for the node, with a new file system if it has none."""
        if _kind(_declared(mount)) == stat.S_IFDIR:
            return
        source, place = self._source(mount), self.device_path(mount.spec)
        if at(place, self._mounter.mounts()) is not None:
            return
        make_directories(place)
        code, found = await run("blkid", "-p", "-s", "TYPE", "-o", "value", str(source))
        kind = found.strip()
        if code and not kind:
            kind = _FILE_SYSTEM
            code, output = await run("mkfs.ext4", "-F", "-m0", str(source))
            if code:
                raise MountError(f"format of disk {source} failed: {output}")
        options = [*(("ro",) if mount.spec.is_read_only else ()), *_options(mount)]
        await self._mounter.mount(str(source), place, kind, options or ["defaults"])

    async def unmount_device(self, spec: VolumeSpec) -> None:
        """Unmount the disk from the node."""
        place = self.device_path(spec)
        if place.exists():
            await remove_mount(self._mounter, place)

    def left_behind(self) -> list[VolumeSpec]:
        """Return the volumes with directories of the node."""
        return [
            VolumeSpec(
                one.name, LOCAL, one.name, is_device_mountable=True, is_block=kind != "mounts"
            )
            for kind in ("mounts", "volumeDevices")
            for one in sorted(self._root.glob(f"plugins/{LOCAL}/{kind}/*"))
        ]

    def bound(self) -> list[FoundVolume]:
        """Return the disks that are bound for pods."""
        return [
            FoundVolume(one.name, LOCAL, one.parent.name, is_block=True)
            for one in sorted(self._root.glob(f"plugins/{LOCAL}/volumeDevices/*/*"))
        ]

    async def grow(self, mount: PodMount, size_bytes: int, device: str) -> None:  # noqa: ARG002
        """Do nothing: local volumes do not grow."""
        raise NotSupportedError("local volumes do not grow")

    def map_path(self, spec: VolumeSpec) -> Path:
        """Return the directory in which the disk is bound for each pod."""
        return self._root / "plugins" / LOCAL / "volumeDevices" / spec.name

    async def stage_block(self, mount: PodMount, device: str) -> None:
        """Do nothing: the disk is on the node."""

    async def publish_block(self, mount: PodMount, device: str) -> str:  # noqa: ARG002  it has its own
        """Return the disk."""
        source = self._source(mount)
        if _kind(source) != stat.S_IFBLK:
            raise MountError(f"path {source} is not a block device")
        return str(source)

    async def unpublish_block(self, found: FoundVolume) -> None:
        """Do nothing: the disk stays on the node."""

    async def unstage_block(self, spec: VolumeSpec) -> None:
        """Do nothing: the disk stays on the node."""

    def _source(self, mount: PodMount) -> Path:
        path = _declared(mount)
        if has_backsteps(str(path)):
            raise MountError(f"invalid path: {path} must not contain '..'")
        return path


def _declared(mount: PodMount) -> Path:
    local = mount.volume.spec.local if mount.volume else None
    if local is None or not local.path:
        raise MountError(f'LocalVolume volume "{mount.spec.name}" path is empty')
    return Path("/") / local.path


def _kind(path: Path) -> int:
    """Return whether a path is a directory or a disk, as its type in `stat`."""
    try:
        found = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError as error:
        raise InitializationError(f'path "{path}" does not exist') from error
    if found not in (stat.S_IFDIR, stat.S_IFBLK):
        raise InitializationError("only directory and block device are supported")
    return found


def _options(mount: PodMount) -> list[str]:
    return list((mount.volume and mount.volume.spec.mount_options) or ())
