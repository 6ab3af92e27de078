"""Mounts of the machine: made by mount(8) and umount(8), read from /proc/self/mountinfo.

The commands run beside the event loop, so a mount that hangs holds only its own operation.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bindery.nodeagent.volumes.interface import MountError

_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_MOUNTINFO: Final = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class MountPoint:
    """A mount.

    Attributes:
        device: major and minor number, such as 8:1.
        root: the directory of the file system that is mounted.
        place: where it is mounted.
        kind: the type of the file system.
        options: of the mount, with commas.
    """

    device: str
    root: str
    place: Path
    kind: str
    options: str


class Mounter(Protocol):
    """Makes and lists mounts. Failures raise MountError."""

    async def mount(
        self,
        source: str,
        place: Path,
        kind: str = "",
        options: Sequence[str] = (),
        *,
        kept: Sequence[int] = (),
    ) -> None:
        """Mount `source` at `place`; with the option `bind`, a file or directory.

        `kept`: descriptors to which `source` refers as /proc/self/fd/N.
        """

    async def unmount(self, place: Path) -> None:
        """Take the topmost mount at `place` away."""

    def mounts(self) -> list[MountPoint]:
        """Return all mounts, in the order in which they were made."""


def parsed(text: str) -> list[MountPoint]:
    """Return the mounts in the text of a mountinfo file."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        found.append(
            MountPoint(
                fields[2],
                _plain(fields[3]),
                Path(_plain(fields[4])),
                after.split(" ")[0],
                fields[5],
            )
        )
    return found


def make_directories(place: Path) -> None:
    """Make a directory, and those above it that are missing, with mode 0750; raises OSError.

    `Path.mkdir` gives those above it another mode.
    """
    if not place.is_dir():
        make_directories(place.parent)
        place.mkdir(0o750, exist_ok=True)


def at(place: Path, mounts: Sequence[MountPoint]) -> MountPoint | None:
    """Return the topmost mount at `place`, None if nothing is mounted there."""
    return next((one for one in reversed(mounts) if one.place == place), None)


def references(place: Path, mounts: Sequence[MountPoint]) -> list[Path]:
    """Return where else the file or directory at `place` is mounted."""
    over = [one for one in mounts if place.is_relative_to(one.place)]
    if not over:
        return []
    holder = max(reversed(over), key=lambda one: len(one.place.parts))
    root = Path(holder.root) / place.relative_to(holder.place)
    return [
        one.place
        for one in mounts
        if one.device == holder.device and Path(one.root) == root and one.place != place
    ]


async def remove_mount(mounter: Mounter, place: Path) -> None:
    """Unmount all that is mounted at `place` and remove it.

    Raises:
        MountError: it cannot be unmounted, or the directory below has something.
    """
    while at(place, mounter.mounts()) is not None:
        await mounter.unmount(place)
    _remove(place)


class LinuxMounter:
    """The machine's mounts."""

    async def mount(
        self,
        source: str,
        place: Path,
        kind: str = "",
        options: Sequence[str] = (),
        *,
        kept: Sequence[int] = (),
    ) -> None:
        """Mount `source` at `place`; the error has the words of the command."""
        if "bind" not in options:
            await _mount(source, place, kind, options, kept)
            return
        rest = [one for one in options if one != "bind"]
        await _mount(source, place, kind, ["bind"], kept)
        if rest:  # a bind mount takes its options in a second step
            await _mount("", place, "", ["bind", "remount", *rest], kept)

    async def unmount(self, place: Path) -> None:
        """Take the topmost mount at `place` away; raises MountError."""
        code, output = await run("umount", str(place))
        if code and "not mounted" not in output:
            raise MountError(
                f"unmount failed: exit status {code}\nUnmounting arguments: {place}\n"
                f"Output: {output}"
            )

    def mounts(self) -> list[MountPoint]:
        """Return all mounts of this process's namespace."""
        return parsed(_MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape"))


async def run(*command: str, kept: Sequence[int] = ()) -> tuple[int, str]:
    """Run a command; return its exit status and its output.

    Raises:
        MountError: there is no such command.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=tuple(kept),
        )
    except FileNotFoundError as error:
        raise MountError(f'exec: "{command[0]}": executable file not found in $PATH') from error
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    return process.returncode or 0, output.decode(errors="replace")


async def _mount(
    source: str, place: Path, kind: str, options: Sequence[str], kept: Sequence[int]
) -> None:
    arguments = [
        *(("--no-canonicalize",) if kept else ()),
        *(("-t", kind) if kind else ()),
        *(("-o", ",".join(options)) if options else ()),
        *((source,) if source else ()),
        str(place),
    ]
    code, output = await run("mount", *arguments, kept=kept)
    if code:
        raise MountError(
            f"mount failed: exit status {code}\nMounting command: mount\n"
            f"Mounting arguments: {' '.join(arguments)}\nOutput: {output}"
        )


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


def _remove(place: Path) -> None:
    try:
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
        else:
            place.unlink(missing_ok=True)
    except OSError as error:
        raise MountError(f"remove {place}: {error.strerror}") from error
