"""Replaces the files of a directory at once, so that readers see all old or all new ones.

Source: `pkg/volume/util/atomic_writer.go`, Kubernetes 1.36: the files are in a directory of their
own, `..data` is a link to it, and each visible name is a link through `..data`.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from bindery.nodeagent.containers.errors import VolumeError

_DATA: Final = "..data"
_NEW: Final = "..data_tmp"


@dataclass(frozen=True)
class FileContent:
    """The content and mode of a file; `owner` is the user, None for root."""

    content: bytes
    mode: int
    owner: int | None = None


def write(
    directory: Path,
    files: Mapping[str, FileContent],
    token: Callable[[], str],
    group: int | None = None,
) -> bool:
    """Make `files`, by path, the content of `directory`; return whether anything has changed.

    `token` returns a name that is not in use. `group`: the owning group, None for root.

    Raises:
        VolumeError: a path leaves the directory.
    """
    for path in files:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or parts[0].startswith(".."):
            raise VolumeError(f"invalid path: {path}")
    directory.mkdir(parents=True, exist_ok=True)
    current = directory / _DATA
    if current.exists() and _content(current.resolve()) == {
        path: file.content for path, file in files.items()
    }:
        return False
    old = current.resolve() if current.is_symlink() else None
    fresh = directory / f"..{token()}"
    fresh.mkdir(mode=0o755)
    fresh.chmod(0o755)
    for path, file in files.items():
        _write(fresh, path, file, group)
    new = directory / _NEW
    new.unlink(missing_ok=True)
    new.symlink_to(fresh.name)
    new.rename(current)
    _link(directory, files)
    if old is not None and old != fresh and old.parent == directory.resolve():
        shutil.rmtree(old, ignore_errors=True)
    return True


def _write(fresh: Path, path: str, file: FileContent, group: int | None) -> None:
    target = fresh / path
    for parent in reversed(PurePosixPath(path).parents[:-1]):
        (fresh / parent).mkdir(mode=0o755, exist_ok=True)
        (fresh / parent).chmod(0o755)
    target.write_bytes(file.content)
    target.chmod(file.mode)
    if group is not None or file.owner is not None:
        os.chown(
            target,
            -1 if file.owner is None else file.owner,
            -1 if group is None else group,
        )


def _link(directory: Path, files: Mapping[str, FileContent]) -> None:
    """Make the visible names, and remove those of files that are gone."""
    names = {PurePosixPath(path).parts[0] for path in files}
    for name in sorted(names):
        link = directory / name
        if not link.is_symlink():
            link.symlink_to(f"{_DATA}/{name}")
    for entry in directory.iterdir():
        if entry.is_symlink() and entry.name not in names and not entry.name.startswith(".."):
            entry.unlink()


def _content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }
