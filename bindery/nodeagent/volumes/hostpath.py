"""hostPath: a path of the node, which is not mounted but checked."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bindery.nodeagent.volumes.interface import MountError, PodMount
from bindery.nodeagent.volumes.sources import HostSource
from bindery.nodecore.volumes.reconstruction import FoundVolume
from bindery.nodecore.volumes.specs import VolumeSpec

HOST_PATH: Final = "kubernetes.io/host-path"
_CHECKS: Final[dict[str, tuple[Callable[[int], bool], str]]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


class HostPathPlugin:
    """The plugin of hostPath."""

    def path(self, mount: PodMount) -> Path:
        """Return the path on the node."""
        return Path(_source(mount).path)

    async def set_up(self, mount: PodMount) -> None:
        """Check the path, or create it where the type asks for it."""
        check(_source(mount))

    async def tear_down(self, found: FoundVolume) -> None:
        """Do nothing: the path is the node's."""

    def construct(self, found: FoundVolume) -> VolumeSpec:
        """Return the volume. The node's path is not known; nothing needs it to take it away."""
        return VolumeSpec(found.name, HOST_PATH)


def check(source: HostSource) -> None:
    """Check a path of the node, or create it where the type asks for it; raises MountError."""
    path, kind = Path(source.path), source.type
    if has_backsteps(source.path):
        raise MountError(f"invalid HostPath `{source.path}`: must not contain '..'")
    if not kind:
        return
    if kind not in _CHECKS:
        raise MountError(f"{kind} is an invalid volume type")
    is_kind, name = _CHECKS[kind]
    try:
        if kind == "DirectoryOrCreate" and not path.exists():
            path.mkdir(parents=True, mode=0o755)
        elif kind == "FileOrCreate" and not path.exists():
            path.touch(mode=0o644)
        found = path.stat().st_mode
    except FileNotFoundError as error:
        if kind == "FileOrCreate":
            raise MountError(f"open {path}: no such file or directory") from error
        raise MountError(f"hostPath type check failed: {path} is not {name}") from error
    except OSError as error:
        raise MountError(f"{path}: {error.strerror}") from error
    if not is_kind(found):
        raise MountError(f"hostPath type check failed: {path} is not {name}")


def has_backsteps(path: str) -> bool:
    """Return whether a path leads upwards somewhere."""
    return ".." in path.split("/")


def _source(mount: PodMount) -> HostSource:
    of_pod = mount.source.host_path if mount.source else None
    of_claim = mount.volume.spec.host_path if mount.volume else None
    return of_pod or of_claim or HostSource()
