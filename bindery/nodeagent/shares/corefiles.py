"""The files of HAMi-core on the node: whether its library is there, and directories of containers.

The library is installed by HAMi's own image or by the administrator, not by Bindery.
"""

import shutil
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from bindery.nodeagent.shares.containers import HamiCore

_KEPT_S = 300.0
"""Seconds that the directory of an unknown pod is kept, as by HAMi's monitor."""
_LOCKS = "tmp/vgpulock"


class CoreFiles:
    """The files below `root`, the root directory of the node as this process sees it."""

    def __init__(self, root: Path, directory: PurePosixPath) -> None:
        self._root, self._directory = root, directory

    def found(self) -> HamiCore:
        """Return the library's place, and whether it is there now."""
        core = HamiCore(self._directory, is_installed=False)
        return HamiCore(self._directory, self._inside(core.library).is_file())

    def prepare(self, core: HamiCore, pod_uid: str, container: str) -> None:
        """Make an empty directory for a container, if the library is installed."""
        if not core.is_installed:
            return
        place = self._inside(core.cache(pod_uid, container))
        shutil.rmtree(place, ignore_errors=True)
        for each in (place, self._root / _LOCKS):
            each.mkdir(parents=True, exist_ok=True)
            each.chmod(0o777)  # processes of containers run as any user

    def remove_unknown(self, pod_uids: Collection[str], now_s: float) -> None:
        """Remove the directories of pods that are not on this node any more."""
        home = self._inside(self.found().home) / "containers"
        for place in home.glob("*_*"):
            is_old = place.stat().st_mtime < now_s - _KEPT_S
            if place.name.partition("_")[0] not in pod_uids and is_old:
                shutil.rmtree(place, ignore_errors=True)

    def _inside(self, path: PurePosixPath) -> Path:
        return self._root / path.relative_to("/")
