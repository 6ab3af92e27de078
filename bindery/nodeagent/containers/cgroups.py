"""The cgroups of pods and QoS classes on this machine: cgroup v2, v1, or a plain directory.

The decisions are in `nodecore.cgroups`; here are the files. Implements its `CgroupFiles`.
"""

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from bindery.nodecore.cgroups import names
from bindery.nodecore.cgroups.manager import CgroupFiles, CgroupManager
from bindery.nodecore.cgroups.pods import NoPodCgroups
from bindery.nodecore.cgroups.system import Mount, Subsystems, subsystems
from bindery.nodecore.container_manager import ContainerManager
from bindery.nodecore.pods import Pod

ROOT: Final = Path("/sys/fs/cgroup")
_CONTROLLERS: Final = "cgroup.controllers"
_CHILDREN: Final = "cgroup.subtree_control"
_INHERITED: Final = ("cpuset.cpus", "cpuset.mems")
_PROCS: Final = "cgroup.procs"

log = structlog.get_logger(__name__)


class UnifiedFiles:
    """Cgroup v2, or a directory with its files. Paths start with a slash."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root

    def controllers(self, path: str) -> Iterable[str]:
        """Return the controllers that are there for the cgroup."""
        return self.read(path, _CONTROLLERS).split()

    def exists(self, path: str) -> bool:
        """Return whether the cgroup is there."""
        return self._at(path).is_dir()

    def make(self, path: str) -> None:
        """Create the cgroup and those above it, with all controllers that are there."""
        target = self._at(path)
        for part in reversed([target, *target.parents]):
            if part == self._root or self._root not in part.parents:
                continue
            if part.parent != self._root or not part.is_dir():
                self._delegate(part.parent)
            part.mkdir(exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove the cgroup, which has no children and no processes."""
        self._at(path).rmdir()

    def children(self, path: str) -> Sequence[str]:
        """Return the paths of the cgroups directly below."""
        base = path.rstrip("/")
        return [f"{base}/{name}" for name in sorted(_directories(self._at(path)))]

    def read(self, path: str, file: str) -> str:
        """Return the content of a file of the cgroup, empty if there is none."""
        try:
            return (self._at(path) / file).read_text()
        except FileNotFoundError:
            return ""

    def write(self, path: str, file: str, text: str) -> None:
        """Write a file of the cgroup."""
        (self._at(path) / file).write_text(text)

    def kill(self, pid: int) -> None:
        """Kill a process."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _delegate(self, parent: Path) -> None:
        listed = parent / _CONTROLLERS
        if listed.exists():
            wanted = " ".join(f"+{name}" for name in listed.read_text().split())
            (parent / _CHILDREN).write_text(wanted)


class SplitFiles:
    """Cgroup v1: each controller has a tree of its own, and a cgroup is in all of them."""

    def __init__(self, mount_points: Mapping[str, Path]) -> None:
        self._trees = {name: root for name, root in mount_points.items() if root.is_dir()}

    def controllers(self, path: str) -> Iterable[str]:
        """Return the controllers that are there for the cgroup."""
        return [name for name, root in self._trees.items() if (root / path.lstrip("/")).is_dir()]

    def exists(self, path: str) -> bool:
        """Return whether the cgroup is there."""
        return any(each.is_dir() for each in self._all(path))

    def make(self, path: str) -> None:
        """Create the cgroup and those above it; a new cpuset gets what the one above has."""
        for name, root in self._trees.items():
            target = root / path.lstrip("/")
            for part in reversed([target, *target.parents]):
                if root not in part.parents or part.is_dir():
                    continue
                part.mkdir()
                for file in _INHERITED if name == "cpuset" else ():
                    (part / file).write_text((part.parent / file).read_text())

    def remove(self, path: str) -> None:
        """Remove the cgroup, which has no children and no processes."""
        for each in self._all(path):
            if each.is_dir():
                each.rmdir()

    def children(self, path: str) -> Sequence[str]:
        """Return the paths of the cgroups directly below."""
        base = path.rstrip("/")
        found = {
            f"{base}/{name}"
            for tree in self._all(path)
            if tree.is_dir()
            for name in _directories(tree)
        }
        return sorted(found)

    def read(self, path: str, file: str) -> str:
        """Return the content of a file of the cgroup, empty if there is none.

        Processes are those of all trees.
        """
        texts = []
        for tree in self._all(path) if file == _PROCS else [self._tree(file) / path.lstrip("/")]:
            with suppress(FileNotFoundError):
                texts.append((tree / file).read_text())
        return "".join(texts)

    def write(self, path: str, file: str, text: str) -> None:
        """Write a file of the cgroup; one of a controller that is not there is left out."""
        if file.partition(".")[0] in self._trees:
            (self._tree(file) / path.lstrip("/") / file).write_text(text)

    def kill(self, pid: int) -> None:
        """Kill a process."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _tree(self, file: str) -> Path:
        return self._trees.get(file.partition(".")[0], Path("/nonexistent"))

    def _all(self, path: str) -> list[Path]:
        return [root / path.lstrip("/") for root in self._trees.values()]


def _directories(path: Path) -> list[str]:
    """Return the names of the directories in one. A cgroup has many files: none is looked at."""
    with os.scandir(path) as entries:
        return [each.name for each in entries if each.is_dir(follow_symlinks=False)]


def of_machine() -> tuple[CgroupFiles, int, Subsystems]:
    """Return the cgroups of this machine, their version, and where controllers are mounted."""
    if (ROOT / _CONTROLLERS).exists():
        return UnifiedFiles(ROOT), 2, subsystems([Mount(str(ROOT), "cgroup2")], is_unified=True)
    # Also trees of controllers that are not written: runtimes make cgroups there, which stay.
    points = {path.name: path for path in sorted(ROOT.glob("*")) if path.is_dir()}
    mounts = [Mount(str(path), "cgroup", (name,)) for name, path in points.items()]
    return SplitFiles(points), 1, subsystems(mounts, is_unified=False)


class PodCgroupKeeper:
    """Makes and removes the cgroups of pods and QoS classes, by a container manager's decisions."""

    def __init__(
        self, manager: Callable[[], ContainerManager], files: CgroupFiles, version: int
    ) -> None:
        self._manager = manager
        self._cgroups = CgroupManager(files, names.CGROUPFS, version)

    def prepare(self) -> None:
        """Make the cgroup of all pods and those of the QoS classes; raises CgroupError, OSError."""
        manager = self._manager()
        root = names.from_cgroupfs(manager.pod_cgroup_root())
        content = manager.root_cgroup()
        write = self._cgroups.update if self._cgroups.exists(root) else self._cgroups.create
        write(root, content)
        manager.update_qos_cgroups(self._cgroups)

    def ensure(self, pod: Pod) -> str:
        """Make the cgroup of a pod and return its path; raises CgroupError, OSError."""
        pods = self._manager().new_pod_container_manager(self._cgroups)
        pods.ensure_exists(pod)
        self._manager().update_qos_cgroups(self._cgroups)
        return pods.name(pod)[1]

    def remove(self, uid: str) -> None:
        """Kill what is left in the cgroup of the pod `uid`, and remove the cgroup.

        Raises:
            CgroupError: processes are left.
            OSError: it is still busy.
        """
        pods = self._manager().new_pod_container_manager(self._cgroups)
        if isinstance(pods, NoPodCgroups):
            return
        found = pods.pods().get(uid)
        if found is not None:
            pods.destroy(found)
            self._manager().update_qos_cgroups(self._cgroups)

    def left(self) -> set[str]:
        """Return the UIDs of pods that have cgroups."""
        pods = self._manager().new_pod_container_manager(self._cgroups)
        return set(pods.pods())


class NoCgroupKeeper(PodCgroupKeeper):
    """Stands where this agent has no right to cgroups: the runtime makes its own."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def prepare(self) -> None:
        """Report that pods have no cgroups."""
        log.warning("pods have no cgroups of their own", reason=self.reason)

    def ensure(self, pod: Pod) -> str:
        """Return no path."""
        del pod
        return ""

    def remove(self, uid: str) -> None:
        """Do nothing."""

    def left(self) -> set[str]:
        """Return no pods."""
        return set()
