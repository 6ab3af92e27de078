"""The network namespace of a control plane and its nodes.

The namespace belongs to threads of this process; functions that run in them connect and start
processes inside. The namespace ends with this process and with the processes started in it.
"""

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from devcluster.errors import ControlPlaneError

_CLONE_NEWNET: Final = 0x40000000
_THREADS: Final = 8
_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)
"""For unshare and setns, which `os` has since Python 3.12."""

T = TypeVar("T")


class Network:
    """Threads that are inside the namespace."""

    def __init__(self) -> None:
        """Make the namespace, with nothing but a loopback interface."""
        self._lock = threading.Lock()
        self._namespace: int | None = None
        """Descriptor of the namespace; None before the first thread has made it."""
        self.threads = ThreadPoolExecutor(_THREADS, "network", self._enter)
        """Threads that start processes inside."""
        self.run(["ip", "link", "set", "lo", "up"])

    def call(self, function: Callable[[], T]) -> T:
        """Call `function` inside the namespace and return its result."""
        return self.threads.submit(function).result()

    def run(self, command: Sequence[str]) -> None:
        """Run a command inside.

        Raises:
            ControlPlaneError: the command failed; the text is its message.
        """
        result = self.call(
            lambda: subprocess.run(  # noqa: S603  the callers build the commands
                command, capture_output=True, text=True, check=False
            )
        )
        if result.returncode != 0:
            raise ControlPlaneError(f"{' '.join(command)}: {result.stderr.strip()}")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move the calling thread inside for a time; threads and processes that it starts are
        inside too.
        """
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._enter()
            yield
        finally:
            _set(before)
            os.close(before)

    def close(self) -> None:
        """End the threads. Processes started in the namespace keep the namespace."""
        self.threads.shutdown()
        if self._namespace is not None:
            os.close(self._namespace)
            self._namespace = None

    def _enter(self) -> None:
        """Move the calling thread into the namespace."""
        with self._lock:
            if self._namespace is None:
                _check(_LIBRARY.unshare(_CLONE_NEWNET))
                self._namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            else:
                _set(self._namespace)


def _set(namespace: int) -> None:
    _check(_LIBRARY.setns(namespace, _CLONE_NEWNET))


def _check(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
