"""The cgroup manager: creates, changes and removes cgroups through given files."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from bindery.nodecore.cgroups import conversions, names, values
from bindery.nodecore.cgroups.conversions import MIN_SHARES
from bindery.nodecore.cgroups.names import CgroupName
from bindery.nodecore.cgroups.values import CgroupValues
from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.pods import CPU, MEMORY

KILL_ROUNDS: Final = 5

_PROCS: Final = "cgroup.procs"
_MAX: Final = "max"
_MEMORY_LIMIT: Final = {1: "memory.limit_in_bytes", 2: "memory.max"}
_MEMORY_USAGE: Final = {1: "memory.usage_in_bytes", 2: "memory.current"}
_NEEDED: Final = {
    1: frozenset({"cpu", "cpuacct", "cpuset", "memory"}),
    2: frozenset({"cpu", "cpuset", "memory", "hugetlb", "pids"}),
}


class CgroupError(NodeCoreError):
    """A cgroup is not there, lacks a controller, or cannot be removed."""


class CgroupFiles(Protocol):
    """The tree of cgroups: a real one, or one in memory. Paths start with a slash."""

    def controllers(self, path: str) -> Iterable[str]:
        """Return the controllers that are there for the cgroup."""

    def exists(self, path: str) -> bool:
        """Return whether the cgroup is there."""

    def make(self, path: str) -> None:
        """Create the cgroup and those above it."""

    def remove(self, path: str) -> None:
        """Remove the cgroup, which has no children and no processes."""

    def children(self, path: str) -> Sequence[str]:
        """Return the paths of the cgroups directly below."""

    def read(self, path: str, file: str) -> str:
        """Return the content of a file of the cgroup, empty if there is none."""

    def write(self, path: str, file: str, text: str) -> None:
        """Write a file of the cgroup."""

    def kill(self, pid: int) -> None:
        """Kill a process."""


class CgroupManager:
    """Cgroups by name.

    Args:
        files: the tree of cgroups.
        driver: "cgroupfs" or "systemd".
        version: 1 or 2.
        page_sizes: the sizes of huge pages of the machine, in bytes.
    """

    def __init__(
        self, files: CgroupFiles, driver: str, version: int, page_sizes: Sequence[int] = ()
    ) -> None:
        self._files = files
        self._driver = driver
        self.version = version
        self._page_sizes = page_sizes

    def name(self, cgroup: CgroupName) -> str:
        """Return the path of the cgroup as the driver has it."""
        return names.to_driver(cgroup, self._driver)

    def cgroup_name(self, path: str) -> CgroupName:
        """Return the name of which `path` is the path."""
        is_systemd = self._driver == names.SYSTEMD
        return names.from_systemd(path) if is_systemd else names.from_cgroupfs(path)

    def validate(self, cgroup: CgroupName) -> None:
        """Raise CgroupError unless the cgroup has all controllers that it needs."""
        path = self.name(cgroup)
        if not self._files.exists(path):
            raise CgroupError(f"cgroup {path} doesn't exist")
        found = set(self._files.controllers(path))
        needed = _NEEDED[self.version] & set(self._files.controllers("/"))
        if not needed <= found:
            missing = ", ".join(sorted(needed - found))
            raise CgroupError(f"cgroup {path} has some missing controllers: {missing}")

    def exists(self, cgroup: CgroupName) -> bool:
        """Return whether the cgroup is there with all controllers that it needs."""
        try:
            self.validate(cgroup)
        except CgroupError:
            return False
        return True

    def create(self, cgroup: CgroupName, content: CgroupValues) -> None:
        """Create the cgroup and set its values."""
        self._files.make(self.name(cgroup))
        self.update(cgroup, content)

    def update(self, cgroup: CgroupName, content: CgroupValues) -> None:
        """Set values of the cgroup; raises CgroupError if it is not there."""
        path = self.name(cgroup)
        if not self._files.exists(path):
            raise CgroupError(f"cgroup {path} doesn't exist")
        written = values.files_v1 if self.version == 1 else values.files_v2
        for file, text in written(content, self._page_sizes).items():
            self._files.write(path, file, text)

    def config(self, cgroup: CgroupName, resource: str) -> CgroupValues:
        """Return the values that are set on the cgroup for "cpu" or "memory".

        Raises:
            CgroupError: the resource is another one, or its files cannot be read.
        """
        path = self.name(cgroup)
        readers = {CPU: self._cpu_config, MEMORY: self._memory_config}
        if resource not in readers:
            raise CgroupError(f"unsupported resource {resource} for cgroup {path}")
        try:
            return readers[resource](path)
        except ValueError as error:
            raise CgroupError(f"failed to read {resource} of cgroup {path}: {error}") from error

    def children(self, cgroup: CgroupName) -> list[CgroupName]:
        """Return the cgroups directly below, none if the cgroup is not there."""
        path = self.name(cgroup)
        if not self._files.exists(path):
            return []
        return [self.cgroup_name(child) for child in self._files.children(path)]

    def destroy(self, cgroup: CgroupName) -> None:
        """Kill the processes of the cgroup and remove it with all below it, the deepest first.

        Raises:
            CgroupError: processes are left after five rounds.
        """
        for _ in range(KILL_ROUNDS):
            pids = self.pids(cgroup)
            if not pids:
                break
            for pid in pids:
                self._files.kill(pid)
        else:
            if self.pids(cgroup):
                raise CgroupError(f"unable to kill all processes of cgroup {self.name(cgroup)}")
        for path in reversed(self._below(self.name(cgroup))):
            self._files.remove(path)

    def pids(self, cgroup: CgroupName) -> list[int]:
        """Return the processes of the cgroup and of all below it."""
        found = {
            int(line)
            for path in self._below(self.name(cgroup))
            for line in self._files.read(path, _PROCS).split()
        }
        return sorted(found)

    def reduce_cpu_limits(self, cgroup: CgroupName) -> None:
        """Give the cgroup the least CPU shares: its pod is gone and its processes are ending."""
        self.update(cgroup, CgroupValues(cpu_shares=MIN_SHARES))

    def memory_usage(self, cgroup: CgroupName) -> int:
        """Return how many bytes the cgroup uses."""
        text = self._files.read(self.name(cgroup), _MEMORY_USAGE[self.version]).strip()
        return int(text) if text else 0

    def _cpu_config(self, path: str) -> CgroupValues:
        if self.version == 1:
            return CgroupValues(
                cpu_shares=int(self._files.read(path, "cpu.shares")),
                cpu_quota_us=int(self._files.read(path, "cpu.cfs_quota_us")),
                cpu_period_us=int(self._files.read(path, "cpu.cfs_period_us")),
            )
        quota, period = self._files.read(path, "cpu.max").split()
        return CgroupValues(
            cpu_shares=conversions.shares_of_weight(int(self._files.read(path, "cpu.weight"))),
            cpu_quota_us=conversions.UNLIMITED_QUOTA if quota == _MAX else int(quota),
            cpu_period_us=int(period),
        )

    def _memory_config(self, path: str) -> CgroupValues:
        text = self._files.read(path, _MEMORY_LIMIT[self.version]).strip()
        return CgroupValues(memory_limit=None if text == _MAX else int(text))

    def _below(self, path: str) -> list[str]:
        """Return the cgroup and all below it, the highest first."""
        if not self._files.exists(path):
            return []
        found = [path]
        for child in self._files.children(path):
            found += self._below(child)
        return found
