"""What a machine lacks to run real nodes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TOOLS: Final = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "chroot": "coreutils",
    "ip": "iproute2",
}
"""Command -> package of Debian."""


def lacks() -> Iterator[str]:
    """Yield each reason why real nodes cannot run here; nothing if they can."""
    if sys.platform != "linux":
        yield "real nodes need Linux"
        return
    if os.geteuid() != 0:
        yield "real nodes need root: they make mounts, namespaces and cgroups"
        return
    missing = {tool: package for tool, package in _TOOLS.items() if shutil.which(tool) is None}
    for tool, package in missing.items():
        yield f"there is no {tool} (Debian: apt-get install {package})"
    if not missing:
        yield from _refusals()


def _refusals() -> Iterator[str]:
    """Yield what the kernel or a container around this process refuses."""
    attempt = [
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "mount",
        "-t",
        "tmpfs",
        "t",
        "/mnt",
    ]
    result = subprocess.run(attempt, capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode != 0:
        yield f"namespaces and mounts are refused here: {result.stderr.strip()}"
    cgroups = Path("/sys/fs/cgroup")
    if not os.access(cgroups, os.W_OK) or not any(cgroups.iterdir()):
        yield f"{cgroups} cannot be written: no cgroups for pods"
