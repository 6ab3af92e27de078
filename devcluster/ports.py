"""Free loopback ports.

Used by `local` and `components`. A returned port is not reserved: if another process takes it
first, the caller tries another port.
"""

import random
import socket
from typing import Final

from devcluster.errors import ControlPlaneError

_FIRST: Final = 20000
_LAST: Final = 32000
"""Below the range from which Linux takes outgoing ports (32768 and up). A server that restarts on a
port of that range could find a client's connection there, even one connected to itself."""


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    candidates = list(range(_FIRST, _LAST))
    random.shuffle(candidates)
    for port in candidates:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ControlPlaneError(f"no port of 127.0.0.1 from {_FIRST} to {_LAST} is free")
