"""configMap, secret, downwardAPI and projected: files that follow the objects of the API."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from bindery.nodeagent.volumes import atomicwriter
from bindery.nodeagent.volumes.emptydir import MEMORY_MEDIUM, Scratch
from bindery.nodeagent.volumes.interface import MountError, PodContent, PodMount
from bindery.nodeagent.volumes.ownership import set_group
from bindery.nodeagent.volumes.payloads import files_of, nested
from bindery.nodeagent.volumes.sources import PodVolumeSource, ScratchSource
from bindery.nodecore.volumes.reconstruction import FoundVolume
from bindery.nodecore.volumes.specs import VolumeSpec, pod_volume_path

CONFIG_MAP: Final = "kubernetes.io/configmap"
SECRET: Final = "kubernetes.io/secret"  # noqa: S105  the name of a plugin
DOWNWARD_API: Final = "kubernetes.io/downward-api"
PROJECTED: Final = "kubernetes.io/projected"
FILE_PLUGINS: Final = (CONFIG_MAP, SECRET, DOWNWARD_API, PROJECTED)


class FilePlugin:
    """One of these kinds; `name`: of the plugin, `now_s`: the clock since the epoch.

    Files are in memory, except those of ConfigMaps.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        scratch: Scratch,
        content: PodContent,
        now_s: Callable[[], float],
    ) -> None:
        self._name = name
        self._root = root
        self._scratch = scratch
        self._content = content
        self._now_s = now_s
        self._medium = ScratchSource(medium="" if name == CONFIG_MAP else MEMORY_MEDIUM)

    def path(self, mount: PodMount) -> Path:
        """Return the directory of the files."""
        return self._place(mount.pod.uid, mount.spec.name)

    async def set_up(self, mount: PodMount) -> None:
        """Write the files as the objects are now; a failure leaves nothing."""
        source = mount.source or PodVolumeSource(name=mount.spec.name)
        files = await files_of(source, mount.pod, self._content)
        place, name, uid = self.path(mount), mount.spec.name, mount.pod.uid
        wrapped = _wrapped(name)
        await self._scratch.make(place, wrapped, mount.pod, self._medium)
        self._scratch.finish(wrapped, uid)
        try:
            for directory in nested(name, mount.pod):
                (place / directory).mkdir(parents=True, exist_ok=True)
            atomicwriter.write(place, files, self._now_s(), lambda: self._set_group(place, mount))
        except (MountError, OSError) as error:
            await self._scratch.remove(place, wrapped, uid)
            raise error if isinstance(error, MountError) else MountError(str(error)) from error

    async def tear_down(self, found: FoundVolume) -> None:
        """Remove the files."""
        place = self._place(found.pod_uid, found.name)
        await self._scratch.remove(place, _wrapped(found.name), found.pod_uid)

    def construct(self, found: FoundVolume) -> VolumeSpec:
        """Return the volume: its directory has its name."""
        return VolumeSpec(found.name, self._name, requires_remount=True)

    def _set_group(self, place: Path, mount: PodMount) -> None:
        set_group(place, mount, is_read_only=True)

    def _place(self, pod_uid: str, name: str) -> Path:
        return self._root / pod_volume_path(pod_uid, self._name, name)


def _wrapped(name: str) -> str:
    return f"wrapped_{name}"
