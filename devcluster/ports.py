"""Free loopback ports.

Used by `local` and `components`. A returned port goes to no other process that chooses its ports
here, so that the caller has time to listen there. If a foreign process takes it first, the caller
tries another port.
"""

import fcntl
import os
import random
import socket
from collections import deque
from functools import cache
from typing import Final

from devcluster.build import cache_directory
from devcluster.errors import ControlPlaneError

_FIRST: Final = 20000
_LAST: Final = 32000
"""Below the range from which Linux takes outgoing ports (32768 and up). A server that restarts on a
port of that range could find a client's connection there, even one connected to itself."""
_MOST_RESERVED: Final = 500
"""Ports that one process reserves; the oldest are in use by then, or not wanted any more."""


class _Reserved:
    """The ports of this process: locked bytes of a file that all processes of the user have."""

    def __init__(self) -> None:
        cache = cache_directory()
        cache.mkdir(parents=True, exist_ok=True)
        path = cache / "ports"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._ports: deque[int] = deque()

    def take(self, port: int) -> bool:
        """Reserve a port; return False if a process has it."""
        if port in self._ports:
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        self._ports.append(port)
        if len(self._ports) > _MOST_RESERVED:
            self.give_back(self._ports[0])
        return True

    def give_back(self, port: int) -> None:
        self._ports.remove(port)
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, port)


@cache
def _reserved(_process: int) -> _Reserved:
    """Return the ports of a process; one that was forked has none of its parent's."""
    return _Reserved()


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    reserved = _reserved(os.getpid())
    candidates = list(range(_FIRST, _LAST))
    random.shuffle(candidates)
    for port in candidates:
        if reserved.take(port):
            if _is_free(port):
                return port
            reserved.give_back(port)
    raise ControlPlaneError(f"no port of 127.0.0.1 from {_FIRST} to {_LAST} is free")


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
