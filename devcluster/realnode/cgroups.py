"""The cgroups of real nodes: one tree for each cluster, with a directory for each node.

The name of a tree contains its process id, so that a later start can remove trees of killed
processes.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from devcluster.processes import Record, is_recorded_running, start_time

_ROOT: Final = Path("/sys/fs/cgroup")
_NAME: Final = re.compile(r"bindery-(\d+)-(\d+)-\d+")
_CONTROLLERS: Final = (
    "cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd",
)  # fmt: skip
_BUSY_S: Final = 10.0
"""Seconds that a cgroup may stay busy after its processes were killed."""


def tree_name(pid: int, number: int) -> str:
    """Return the name of a tree of the process `pid`; `number`: which of its trees."""
    return f"bindery-{pid}-{start_time(pid)}-{number}"


def make(tree: str, node: str) -> None:
    """Make the cgroups of a node in all hierarchies."""
    if (_ROOT / "cgroup.controllers").exists():
        _make_unified(tree, node)
        return
    for controller in _CONTROLLERS:
        for path in (_ROOT / controller / tree, _ROOT / controller / tree / node):
            path.mkdir(exist_ok=True)
            if controller == "cpuset":
                # A new cpuset has neither CPUs nor memory nodes; processes can only enter one with
                # both.
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (path / name).write_text((path.parent / name).read_text())


def _make_unified(tree: str, node: str) -> None:
    path = _ROOT / tree / node
    path.mkdir(parents=True, exist_ok=True)
    for above in (_ROOT, _ROOT / tree):
        for controller in (above / "cgroup.controllers").read_text().split():
            (above / "cgroup.subtree_control").write_text(f"+{controller}")


def remove(tree: str) -> list[Path]:
    """Remove a tree after its processes have ended; return the cgroups that are still busy."""
    deadline_s = time.monotonic() + _BUSY_S
    while left := list(_remove_once(tree)):
        if time.monotonic() > deadline_s:
            return left
        time.sleep(0.1)
    return []


def remove_abandoned() -> None:
    """Remove the trees of processes that have ended."""
    for tree in {path.name for path in trees()}:
        found = _NAME.fullmatch(tree)
        if found and not is_recorded_running(Record("", int(found[1]), found[2])):
            remove(tree)


def trees() -> Iterator[Path]:
    """Yield all trees in all hierarchies."""
    yield from _ROOT.glob("bindery-*")
    yield from _ROOT.glob("*/bindery-*")


def _remove_once(tree: str) -> Iterator[Path]:
    """Remove the cgroups that are not busy, from the leaves; yield the others."""
    for top in [path for path in trees() if path.name == tree]:
        below = sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
        for path in (*below, top):
            try:
                path.rmdir()
            except OSError:
                yield path
