"""Writes the files of a volume so that readers see all old files or all new ones.

As the kubelet's AtomicWriter does it: files are in a directory with the time in its name, the link
`..data` leads there, and each name that containers see is a link through `..data`. Renaming one
link changes all files. What a killed process has left is removed by the next writer.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

from bindery.nodeagent.volumes.interface import MountError

DATA: Final = "..data"
_NEW_DATA: Final = "..data_tmp"
_LONGEST_PATH: Final = 4096
_LONGEST_NAME: Final = 255


@dataclass(frozen=True)
class VolumeFile:
    """A file.

    Attributes:
        mode: its permission bits.
        user: its owner, None for the agent's user.
    """

    data: bytes
    mode: int
    user: int | None = None


def checked(files: Mapping[str, VolumeFile]) -> dict[str, VolumeFile]:
    """Return the files by clean paths.

    Raises:
        MountError: a path is absolute, too long, or leads out of the volume.
    """
    for path in files:
        _check(path)
    return {str(PurePosixPath(path)): found for path, found in files.items()}


def write(
    place: Path,
    files: Mapping[str, VolumeFile],
    now_s: float,
    set_owner: Callable[[], None] = lambda: None,
) -> bool:
    """Let the volume at `place` have exactly `files`; return whether anything was written.

    `now_s`: since the epoch. `set_owner` is called when the new files are there and not yet seen.

    Raises:
        MountError: a path is not allowed, or a file cannot be written.
    """
    wanted = checked(files)
    try:
        return _write(place, wanted, now_s, set_owner)
    except OSError as error:
        raise MountError(f"{error.strerror}: {error.filename}") from error


def _write(
    place: Path, files: Mapping[str, VolumeFile], now_s: float, set_owner: Callable[[], None]
) -> bool:
    link = place / DATA
    old = place / link.readlink() if link.is_symlink() else None
    gone = _paths_in(old) - _with_parents(files) if old is not None else set()
    is_changed = old is None or bool(gone) or any(_differs(old / one, files[one]) for one in files)
    if is_changed:
        _swap(place, _fresh(place, files, now_s), set_owner)
    for path, file in files.items():
        _show(place, path.partition("/")[0], file.user)
    for path in gone:
        if "/" not in path:
            (place / path).unlink(missing_ok=True)
    current = link.readlink()
    for stale in place.glob("..2*"):
        if stale.name != str(current):
            shutil.rmtree(stale)
    return is_changed


def _fresh(place: Path, files: Mapping[str, VolumeFile], now_s: float) -> Path:
    """Write the files into a new directory and return it."""
    stamp = datetime.fromtimestamp(now_s, UTC).strftime("..%Y_%m_%d_%H_%M_%S.")
    fresh = Path(tempfile.mkdtemp(prefix=stamp, dir=place))
    fresh.chmod(0o755)
    for path, file in files.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.data)
        target.chmod(file.mode)
        if file.user is not None:
            os.lchown(target, file.user, -1)
    return fresh


def _swap(place: Path, fresh: Path, set_owner: Callable[[], None]) -> None:
    set_owner()
    new = place / _NEW_DATA
    new.unlink(missing_ok=True)  # a killed process has left it
    new.symlink_to(fresh.name)
    new.rename(place / DATA)


def _show(place: Path, name: str, user: int | None) -> None:
    shown = place / name
    if not shown.is_symlink():
        shown.symlink_to(f"{DATA}/{name}")
        if user is not None:
            os.lchown(shown, user, -1)


def _differs(path: Path, file: VolumeFile) -> bool:
    return not path.is_file() or path.read_bytes() != file.data


def _paths_in(directory: Path) -> set[str]:
    return {str(one.relative_to(directory)) for one in directory.rglob("*")}


def _with_parents(paths: Mapping[str, VolumeFile]) -> set[str]:
    return {
        str(one)
        for path in paths
        for one in (PurePosixPath(path), *PurePosixPath(path).parents)
        if str(one) != "."
    }


def _check(path: str) -> None:
    parts = path.split("/")
    if not path:
        raise MountError('invalid path: must not be empty: ""')
    if path.startswith("/"):
        raise MountError(f"invalid path: must be relative path: {path}")
    if len(path) > _LONGEST_PATH:
        raise MountError(f"invalid path: must be less than or equal to {_LONGEST_PATH} characters")
    if ".." in parts:
        raise MountError(f"invalid path: must not contain '..': {path}")
    if any(len(one) > _LONGEST_NAME for one in parts):
        raise MountError(
            f"invalid path: filenames must be less than or equal to {_LONGEST_NAME} characters"
        )
    if parts[0].startswith(".."):
        raise MountError(f"invalid path: must not start with '..': {path}")
