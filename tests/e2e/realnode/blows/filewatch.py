"""Kills a node's agent when a file appears that it is about to rename.

`python -m tests.e2e.realnode.blows.filewatch PATTERN TIMEOUT_S` runs in the node. PATTERN is for
the names of temporary files. It prints the path of the file, and whether the agent died before it
renamed it: the watch and the agent race. Without such a file it prints nothing.
"""

import ctypes
import os
import re
import select
import signal
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path("/var/lib/kubelet")
COMMAND: Final = b"\0nodeagent\0run\0"
"""What the agent's command line has, and no other."""
PLACES: Final = ("", "device-plugins", "pki", "plugins", "pods")
"""The directories below `ROOT` that have temporary files; of the last two, those below them too."""
_CREATE, _ISDIR = 0x100, 0x40000000
_EVENT: Final = struct.Struct("iIII")
_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)


def agent() -> int | None:
    """Return the process id of this node's agent, None while there is none."""
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if COMMAND in (each / "cmdline").read_bytes():
                return int(each.name)
    return None


def end(pid: int) -> bool:
    """Kill a process; return whether there was one."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class Watch:
    """Watches `PLACES`."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._events = _LIBRARY.inotify_init1(os.O_CLOEXEC)
        self._places: dict[int, Path] = {}
        for place in PLACES:
            self._add(ROOT / place, is_deep=place in ("plugins", "pods"))

    def next(self, timeout_s: float) -> Path | None:
        """Return the next file of the pattern, None if there is none in this time."""
        deadline_s = time.monotonic() + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            if not select.select([self._events], [], [], left_s)[0]:
                return None
            for place, name, is_directory in self._read():
                if self._pattern.fullmatch(name):
                    return place / name
                if is_directory and place not in (ROOT, ROOT / "pki"):
                    self._add(place / name, is_deep=True)
        return None

    def _read(self) -> list[tuple[Path, str, bool]]:
        data = os.read(self._events, 65536)
        found, at = [], 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = data[at : at + length].rstrip(b"\0").decode()
            at += length
            if number in self._places:
                found.append((self._places[number], name, bool(mask & _ISDIR)))
        return found

    def _add(self, place: Path, *, is_deep: bool) -> None:
        number = _LIBRARY.inotify_add_watch(self._events, os.fsencode(place), _CREATE)
        if number < 0:
            return  # it is gone again
        self._places[number] = place
        if is_deep:
            with suppress(OSError):
                for each in place.iterdir():
                    if each.is_dir() and not each.is_symlink():
                        self._add(each, is_deep=True)


def main(pattern: str, timeout_s: float) -> None:
    """Deal one blow."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    watch = Watch(pattern)
    pid = agent()
    file = watch.next(timeout_s)
    if file is None:
        return
    if pid is None or not end(pid):
        now = agent()
        if now is None or not end(now):
            return
    time.sleep(0.05)  # until it is dead
    print(file, os.path.lexists(file))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
