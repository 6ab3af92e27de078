"""The group of a volume's files (`fsGroup`), as the kubelet sets it."""

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bindery.nodeagent.volumes.interface import MountError, PodMount
from bindery.nodecore.volumes.actual import Failure

_READ_WRITE: Final = 0o660
_READ: Final = 0o440
_EXECUTE: Final = 0o110
_FILES_AT_A_TIME: Final = 500


def set_group(place: Path, mount: PodMount, *, is_read_only: bool = False) -> None:
    """Give all files below `place` to the pod's group, at once; nothing without one."""
    for _ in _changes(place, mount, is_read_only=is_read_only, by_policy=False):
        pass


async def set_group_slowly(place: Path, mount: PodMount) -> None:
    """Give all files below `place` to the pod's group; other operations run in between.

    Nothing changes if the pod has no group, or if it wants none where the directory has it already.

    Raises:
        MountError: uncertain, because the volume is mounted.
    """
    try:
        for count, _ in enumerate(_changes(place, mount, is_read_only=False, by_policy=True)):
            if count % _FILES_AT_A_TIME == 0:
                await asyncio.sleep(0)
    except OSError as error:
        raise MountError(
            f"applyFSGroup failed for vol {mount.spec.plugin_volume or mount.spec.name}: "
            f"{error.strerror}: {error.filename}",
            Failure.UNCERTAIN,
        ) from error


def _changes(
    place: Path, mount: PodMount, *, is_read_only: bool, by_policy: bool
) -> Iterator[Path]:
    group = mount.pod.fs_group
    if group is None:
        return
    mask = _READ if is_read_only else _READ_WRITE
    if by_policy and mount.pod.changes_group_on_mismatch and _has_group(place, group, mask):
        return
    for path in _deepest_first(place):
        _change(path, group, mask)
        yield path


def _change(path: Path, group: int, mask: int) -> None:
    found = path.lstat()
    os.lchown(path, -1, group)
    if stat.S_ISLNK(found.st_mode):
        return  # chmod would change what it leads to
    if stat.S_ISDIR(found.st_mode):
        mask |= stat.S_ISGID | _EXECUTE
    path.chmod(stat.S_IMODE(found.st_mode) | mask)


def _has_group(place: Path, group: int, mask: int) -> bool:
    found = place.stat()
    wanted = mask | _EXECUTE | stat.S_ISGID
    return (
        found.st_gid == group
        and stat.S_ISDIR(found.st_mode)
        and stat.S_IMODE(found.st_mode) & wanted == wanted
    )


def _deepest_first(place: Path) -> Iterator[Path]:
    """Yield all paths; the directory itself is last, so that a break is seen as a mismatch."""
    for directory, folders, files in os.walk(place, topdown=False):
        here = Path(directory)
        yield from (here / name for name in files)
        yield from (here / name for name in folders if (here / name).is_symlink())
        yield here
