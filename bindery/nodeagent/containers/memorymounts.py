"""Mounts file systems in memory, by the system calls of Linux."""

import ctypes
import os
from pathlib import Path
from typing import Final

_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)
_DETACH: Final = 2


class TmpfsMounts:
    """Mounts tmpfs; implements `volumes.Mounts`."""

    def mount(self, path: Path, size_bytes: int | None) -> None:
        """Mount a file system in memory, if none is there; raises OSError."""
        if os.path.ismount(path):
            return
        options = "" if size_bytes is None else f"size={size_bytes}"
        _check(_LIBRARY.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, options.encode()))

    def unmount(self, path: Path) -> None:
        """Unmount what is mounted at `path`; nothing there is no error. Raises OSError."""
        if os.path.ismount(path):
            _check(_LIBRARY.umount2(os.fsencode(path), _DETACH))


def _check(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
