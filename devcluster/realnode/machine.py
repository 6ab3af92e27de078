"""Reports what a machine lacks to build and to run real nodes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from devcluster import build
from devcluster.errors import BuildError

_TOOLS: Final = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "chroot": "coreutils",
    "pivot_root": "util-linux",
    "ip": "iproute2",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
"""Command -> Debian package. The last two commands download files of the nodes' images."""
_CGROUPS: Final = Path("/sys/fs/cgroup")
_ATTEMPT: Final = """
set -e
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work none /mnt/root
mount -t proc proc /mnt/root/proc
ip link add attempt type bridge
"""
"""Does the first steps of a node, in namespaces that end with this script."""


def lacks() -> Iterator[str]:
    """Yield each reason why real nodes cannot be built or run here; none if they can."""
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
    if not are_built():
        yield from _compilers()


def are_built() -> bool:
    """Return whether all programs of a real node are built."""
    return build.are_built(tuple(build.NODE_PROGRAMS)) and build.are_built(
        tuple(build.CONTAINER_PROGRAMS), build.CONTAINERS_MODULE
    )


def _refusals() -> Iterator[str]:
    """Yield the operations that the kernel, or a container around this process, refuses."""
    namespaces = ("--mount", "--propagation=private", "--net", "--pid", "--fork")
    if error := _refusal(["unshare", *namespaces, "sh", "-c", _ATTEMPT]):
        yield f"the namespaces and mounts of nodes are refused here: {error}"
    if not os.access(_CGROUPS, os.W_OK) or not any(_CGROUPS.iterdir()):
        yield f"{_CGROUPS} cannot be written: no cgroups for pods"


def _refusal(command: Sequence[str]) -> str:
    result = subprocess.run(  # noqa: S603  constant arguments
        command, capture_output=True, text=True, check=False
    )
    return result.stderr.strip() if result.returncode != 0 else ""


def _compilers() -> Iterator[str]:
    try:
        build.require_c()
    except BuildError as error:
        yield str(error)
