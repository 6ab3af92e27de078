"""subPath: a part of a volume for one container, which cannot lead out of the volume."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bindery.nodeagent.volumes.hostpath import has_backsteps
from bindery.nodeagent.volumes.interface import MountError
from bindery.nodeagent.volumes.mounts import Mounter, at, make_directories, remove_mount

_DIRECTORY: Final = "volume-subpaths"
_STEP: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class SubPath:
    """A part of a volume.

    Attributes:
        volume: the pod's mount of it.
        path: the part, relative to it.
        name: the volume's name in paths, with which `clean` is called.
        index: of the mount in the container.
    """

    volume: Path
    path: str
    pod_uid: str
    name: str
    container: str
    index: int


async def bind(root: Path, mounter: Mounter, part: SubPath) -> Path:
    """Bind a part of a volume for a container, made if it is missing; return where it is.

    Links are followed once. After that each step refuses links, and the mount goes by the opened
    file, so a container that changes the path meanwhile gets nothing else. `root`: the kubelet's
    directory.

    Raises:
        MountError: the path leads out of the volume.
    """
    check(part.path)
    base = root / "pods" / part.pod_uid / _DIRECTORY
    place = base / part.name / part.container / str(part.index)
    if at(place, mounter.mounts()) is not None:
        return place
    opened = _open(part)
    try:
        _make(place, opened)
        await mounter.mount(f"/proc/self/fd/{opened}", place, "", ["bind"], kept=(opened,))
    finally:
        os.close(opened)
    return place


def check(sub_path: str) -> None:
    """Raise MountError if a subPath may not be used."""
    if sub_path.startswith("/"):
        raise MountError(f"error SubPath `{sub_path}` must not be an absolute path")
    if has_backsteps(sub_path):
        raise MountError(f"unable to provision SubPath `{sub_path}`: must not contain '..'")


async def clean(root: Path, mounter: Mounter, pod_uid: str, name: str) -> None:
    """Unmount and remove all parts of the volume that containers of the pod have had."""
    base = root / "pods" / pod_uid / _DIRECTORY
    if not (base / name).is_dir():
        return
    for container in sorted((base / name).iterdir()):
        for place in sorted(container.iterdir()):
            await remove_mount(mounter, place)
        container.rmdir()
    (base / name).rmdir()
    if not any(base.iterdir()):
        base.rmdir()


def _make(place: Path, opened: int) -> None:
    make_directories(place.parent)
    if stat.S_ISDIR(os.fstat(opened).st_mode):
        place.mkdir(exist_ok=True, mode=0o750)
    else:
        place.touch(mode=0o640)


def _open(part: SubPath) -> int:
    """Open the part step by step from the volume, and make directories that are missing."""
    volume = part.volume.resolve(strict=True)
    target = (volume / part.path).resolve()
    if not target.is_relative_to(volume):
        raise MountError(f"path {target} is outside of allowed base {volume}")
    opened = os.open(volume, _STEP)
    mode = stat.S_IMODE(os.fstat(opened).st_mode)
    try:
        for step in target.relative_to(volume).parts:
            is_new = False
            try:
                inner = os.open(step, _STEP, dir_fd=opened)
            except FileNotFoundError:
                os.mkdir(step, 0o750, dir_fd=opened)
                inner = os.open(step, _STEP, dir_fd=opened)
                is_new = True
            os.close(opened)
            opened = inner
            if is_new:  # whoever may use the volume may use its parts
                Path(f"/proc/self/fd/{opened}").chmod(mode)
    except OSError as error:
        os.close(opened)
        raise MountError(f"cannot open {target}: {error.strerror}") from error
    return opened
