"""emptyDir: a directory of the pod, on the node's disk or in memory."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bindery.nodeagent.volumes.interface import MountError, PodMount
from bindery.nodeagent.volumes.mounts import Mounter, at, make_directories
from bindery.nodeagent.volumes.ownership import set_group
from bindery.nodeagent.volumes.sources import MountingPod, ScratchSource, size_bytes
from bindery.nodecore.volumes.reconstruction import FoundVolume
from bindery.nodecore.volumes.specs import VolumeSpec, pod_volume_path

EMPTY_DIR: Final = "kubernetes.io/empty-dir"
MEMORY_MEDIUM: Final = "Memory"
_MODE: Final = 0o777
_READY: Final = "ready"


class Scratch:
    """Directories of pods, with a file that marks finished ones.

    `root`: the kubelet's directory. `allocatable_bytes`: the node's memory for pods.
    `without_swap`: whether the kernel knows tmpfs' option `noswap`.
    """

    def __init__(
        self,
        root: Path,
        mounter: Mounter,
        allocatable_bytes: Callable[[], int],
        *,
        without_swap: bool = False,
    ) -> None:
        self._root = root
        self._mounter = mounter
        self._allocatable_bytes = allocatable_bytes
        self._without_swap = without_swap

    async def make(self, place: Path, name: str, pod: MountingPod, wanted: ScratchSource) -> None:
        """Make the directory, unless it is there; raises MountError."""
        is_memory = wanted.medium == MEMORY_MEDIUM
        if wanted.medium not in ("", MEMORY_MEDIUM):
            raise MountError(f'unknown storage medium "{wanted.medium}"')
        ready = self._meta(pod.uid, name) / _READY
        # The list of mounts grows with the node's pods: it is read only if there can be a mount.
        is_there = _is_there(place)
        is_mounted = is_memory and is_there and at(place, self._mounter.mounts()) is not None
        if _is_there(ready) and (is_mounted if is_memory else is_there):
            return
        _make_directory(place)
        if is_memory and not is_mounted:
            await self._mounter.mount("tmpfs", place, "tmpfs", self._options(pod, wanted))

    def finish(self, name: str, pod_uid: str) -> None:
        """Mark the directory as finished."""
        meta = self._meta(pod_uid, name)
        make_directories(meta)
        (meta / _READY).touch()

    async def remove(self, place: Path, name: str, pod_uid: str) -> None:
        """Remove the directory with all it has; raises MountError."""
        shutil.rmtree(self._meta(pod_uid, name), ignore_errors=True)
        while at(place, self._mounter.mounts()) is not None:
            await self._mounter.unmount(place)
        remove_tree(place, self._mounter)

    def _options(self, pod: MountingPod, wanted: ScratchSource) -> list[str]:
        limits = (
            self._allocatable_bytes(), pod.memory_limit_bytes, size_bytes(wanted.size_limit),
        )  # fmt: skip
        size = min((one for one in limits if one > 0), default=0)
        return [
            *((f"size={size}",) if size else ()),
            *(("noswap",) if self._without_swap else ()),
        ]

    def _meta(self, pod_uid: str, name: str) -> Path:
        return self._root / "pods" / pod_uid / "plugins" / EMPTY_DIR.replace("/", "~") / name


class EmptyDirPlugin:
    """The plugin of emptyDir."""

    def __init__(self, root: Path, scratch: Scratch) -> None:
        self._root = root
        self._scratch = scratch

    def path(self, mount: PodMount) -> Path:
        """Return the directory."""
        return self._root / pod_volume_path(mount.pod.uid, EMPTY_DIR, mount.spec.name)

    async def set_up(self, mount: PodMount) -> None:
        """Make the directory."""
        wanted = (mount.source and mount.source.empty_dir) or ScratchSource()
        await self._scratch.make(self.path(mount), mount.spec.name, mount.pod, wanted)
        set_group(self.path(mount), mount)
        self._scratch.finish(mount.spec.name, mount.pod.uid)

    async def tear_down(self, found: FoundVolume) -> None:
        """Remove the directory."""
        place = self._root / pod_volume_path(found.pod_uid, EMPTY_DIR, found.name)
        await self._scratch.remove(place, found.name, found.pod_uid)

    def construct(self, found: FoundVolume) -> VolumeSpec:
        """Return the volume: its directory has its name."""
        return VolumeSpec(found.name, EMPTY_DIR)


def remove_tree(place: Path, mounter: Mounter) -> None:
    """Remove a directory with all it has.

    Raises:
        MountError: something is mounted in it, whose files are not to be removed.
    """
    inside = [one.place for one in mounter.mounts() if one.place.is_relative_to(place)]
    if inside:
        raise MountError(f"cannot remove {place}: {inside[0]} is mounted")
    try:
        shutil.rmtree(place)
    except FileNotFoundError:
        return
    except OSError as error:
        raise MountError(f"cannot remove {place}: {error.strerror}") from error


def _is_there(path: Path) -> bool:
    return path.exists()


def _make_directory(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
        if place.stat().st_mode & _MODE != _MODE:  # the process has a umask
            place.chmod(_MODE)
    except OSError as error:
        raise MountError(f"mkdir {place}: {error.strerror}") from error
