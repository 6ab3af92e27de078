"""HAMi-core on a node: its library, what limited containers get of it, and its directories.

The library is loaded into each process of a container by `ld.so.preload`; without it, limits are
only variables. It is installed by HAMi's own image or by the administrator, not by Bindery. Names
are those of HAMi v2.10.
"""

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

_KEPT_S: Final = 300.0
"""Seconds that the directory of an unknown pod is kept, as by HAMi's monitor."""
_LOCKS: Final = PurePosixPath("/tmp/vgpulock")  # noqa: S108  HAMi-core's path
_PRELOAD: Final = "/etc/ld.so.preload"


@dataclass(frozen=True)
class ContainerMount:
    """A file or directory of the node in a container."""

    inside: str
    on_node: str
    read_only: bool = False


@dataclass(frozen=True)
class HamiCore:
    """HAMi-core's library on the node. Paths are the same on the node and in containers."""

    directory: PurePosixPath
    """The parent of `vgpu`, such as /usr/local."""
    is_installed: bool
    """Whether the library is on the node."""

    @property
    def home(self) -> PurePosixPath:
        """The directory of the library."""
        return self.directory / "vgpu"

    @property
    def library(self) -> PurePosixPath:
        """The library."""
        return self.home / "libvgpu.so"

    def of_container(self, pod_uid: str, container: str) -> PurePosixPath:
        """Return the directory on the node in which a container's processes share their counts."""
        return self.home / "containers" / f"{pod_uid}_{container}"

    def of_request(self, claim_uid: str, request: str) -> PurePosixPath:
        """Return the same for all containers that use a request of a claim: one limit holds them.

        Not beside those of pods, where HAMi's monitor removes what belongs to no pod.
        """
        return self.home / "claims" / f"{claim_uid}_{request}"

    def counts(self, name: str) -> str:
        """Return the file of the counts in a container (CUDA_DEVICE_MEMORY_SHARED_CACHE)."""
        return str(self.home / f"{name}.cache")

    def mounts(
        self, shared: PurePosixPath, *, is_loaded: bool = True
    ) -> tuple[ContainerMount, ...]:
        """Return what containers get; nothing if the library is not installed.

        Args:
            shared: the directory on the node with the counts.
            is_loaded: whether the library is loaded into their processes.
        """
        if not self.is_installed:
            return ()
        library, home, locks = str(self.library), str(self.home), str(_LOCKS)
        found = [
            ContainerMount(library, library, read_only=True),
            ContainerMount(home, str(shared)),
            ContainerMount(locks, locks),
        ]
        if is_loaded:
            found.append(ContainerMount(_PRELOAD, str(self.home / "ld.so.preload"), read_only=True))
        return tuple(found)


class CoreFiles:
    """The files below `root`, the root directory of the node as this process sees it."""

    def __init__(self, root: Path, directory: PurePosixPath) -> None:
        self._root, self._directory = root, directory

    def found(self) -> HamiCore:
        """Return the library's place, and whether it is there now."""
        core = HamiCore(self._directory, is_installed=False)
        return HamiCore(self._directory, self._inside(core.library).is_file())

    def prepare(self, core: HamiCore, shared: PurePosixPath) -> None:
        """Make the directory `shared` empty, if the library is installed."""
        if not core.is_installed:
            return
        place = self._inside(shared)
        shutil.rmtree(place, ignore_errors=True)
        for each in (place, self._inside(_LOCKS)):
            each.mkdir(parents=True, exist_ok=True)
            each.chmod(0o777)  # processes of containers run as any user

    def remove_unknown_pods(self, pod_uids: Collection[str], now_s: float) -> None:
        """Remove the directories of pods that are not on this node any more."""
        for place in self._shared(self.found().of_container("", "")):
            is_old = place.stat().st_mtime < now_s - _KEPT_S
            if place.name.partition("_")[0] not in pod_uids and is_old:
                shutil.rmtree(place, ignore_errors=True)

    def remove_unknown_claims(self, claim_uids: Collection[str]) -> None:
        """Remove the directories of claims that are not prepared."""
        for place in self._shared(self.found().of_request("", "")):
            if place.name.partition("_")[0] not in claim_uids:
                shutil.rmtree(place, ignore_errors=True)

    def _shared(self, example: PurePosixPath) -> list[Path]:
        return list(self._inside(example.parent).glob("*_*"))

    def _inside(self, path: PurePosixPath) -> Path:
        return self._root / path.relative_to("/")
