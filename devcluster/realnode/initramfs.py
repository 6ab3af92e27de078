"""Makes the initramfs of a virtual machine: a busybox and the kernel modules that the node needs.

The format is the kernel's "newc" (Documentation/driver-api/early-userspace/buffer-format.rst).
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_MODULES: Final = (
    "virtio_pci", "virtio_net", "virtio_rng", "9pnet_virtio", "9p", "overlay", "bridge", "veth",
    "loop", "crc32c_generic", "ext4",
)  # fmt: skip
"""Kernel modules to load; the rest is built into Debian's kernel. ext4 asks for crc32c by name."""
_DEPENDS: Final = re.compile(rb"\0depends=([^\0]*)\0")
"""The field of a module with the names of modules that must be loaded first."""
_DIRECTORY: Final = 0o40755
_PROGRAM: Final = 0o100755
_FILE: Final = 0o100644
_LINK: Final = 0o120777
_CONSOLE: Final = 0o20600
_INIT: Final = """#!/bin/sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
for module in /modules/*; do
    $b insmod $module || $b echo "cannot load $module"
done
# runc cannot pivot from the file system of an initramfs.
$b mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose root /root
for each in dev proc sys; do
    $b mount --move /$each /root/$each
done
exec $b switch_root /root /bin/sh {command}
"""


def make(busybox: Path, modules: Path, command: str) -> bytes:
    """Return an initramfs that runs `command` by sh, with the host's files as its root.

    Args:
        busybox: a statically linked busybox.
        modules: the directory of the kernel's modules.
        command: a script with its arguments.
    """
    entries = [_entry(name, _DIRECTORY) for name in ("bin", "dev", "proc", "sys", "root")]
    entries += [
        _entry("modules", _DIRECTORY),
        _entry("dev/console", _CONSOLE, device=(5, 1)),
        _entry("bin/busybox", _PROGRAM, busybox.read_bytes()),
        _entry("bin/sh", _LINK, b"busybox"),
        _entry("init", _PROGRAM, _INIT.format(command=command).encode()),
    ]
    entries += [
        _entry(f"modules/{place:02}-{path.name}", _FILE, path.read_bytes())
        for place, path in enumerate(_in_order(modules))
    ]
    return b"".join([*entries, _entry("TRAILER!!!", 0)])


def _in_order(directory: Path) -> list[Path]:
    """Return the modules in load order: each after the modules that it needs."""
    known = {_plain(path.stem): path for path in directory.rglob("*.ko")}
    return list(dict.fromkeys(_with_needed(_MODULES, known)))


def _with_needed(names: Iterable[str], known: dict[str, Path]) -> Iterator[Path]:
    for name in filter(None, names):
        path = known[_plain(name)]
        found = _DEPENDS.search(path.read_bytes())
        yield from _with_needed(found[1].decode().split(",") if found else (), known)
        yield path


def _plain(name: str) -> str:
    """Return a module's name with underscores, as `depends` and files write it both ways."""
    return name.replace("-", "_")


def _entry(name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    path = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % each for each in fields) + path
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
