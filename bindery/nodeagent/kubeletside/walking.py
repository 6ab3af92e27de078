"""Finds the sockets of plugins by a walk through their directory, once in each round.

Used by `plugins`. A walk misses nothing: a socket that is replaced has another mark.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bindery.nodecore.plugins import DesiredPlugins, is_candidate


class Mark(NamedTuple):
    """Distinguishes a socket from a later one with the same path."""

    inode: int
    changed_ns: int


class SocketDirectory:
    """The sockets below a directory, brought to `desired` by each `look`."""

    def __init__(self, directory: Path, desired: DesiredPlugins) -> None:
        self._directory, self._desired = directory, desired
        self._known: dict[str, Mark] = {}

    def look(self) -> None:
        """Record the sockets that are new, replaced or gone."""
        found = dict(_sockets(self._directory))
        for path in self._known.keys() - found.keys():
            self._desired.remove(path)
        for path, mark in sorted(found.items()):
            if self._known.get(path) != mark:
                self._desired.add_or_update(path)
        self._known = found


def _sockets(directory: Path) -> Iterator[tuple[str, Mark]]:
    """Yield the sockets below a directory; what vanishes during the walk is left out."""
    for parent, folders, files in os.walk(directory):
        folders[:] = [one for one in folders if not one.startswith(".")]
        for name in files:
            path = Path(parent) / name
            try:
                found = path.lstat()
            except OSError:
                continue
            if is_candidate(name, is_socket=stat.S_ISSOCK(found.st_mode)):
                yield str(path), Mark(found.st_ino, found.st_ctime_ns)
