"""The CPUs of a machine: which core, cache, NUMA node and socket each belongs to."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from bindery.nodecore.cpusets import EMPTY, CpuSet
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.machine import Machine

Level = Mapping[int, CpuSet]
"""Id of a core, cache, NUMA node or socket -> its CPUs."""


@dataclass(frozen=True)
class CpuInfo:
    """Where a logical CPU is.

    Attributes:
        core: its core; the id is the lowest CPU of the core, which is unique on the machine.
        uncore: its last-level cache; the socket's id when the caches are not known.
    """

    numa: int
    socket: int
    core: int
    uncore: int = 0


@dataclass(frozen=True)
class CpuTopology:
    """The CPUs of a machine.

    Attributes:
        details: logical CPU -> where it is.
        num_numa: the number of NUMA nodes that have CPUs.
    """

    details: Mapping[int, CpuInfo]
    num_cpus: int
    num_cores: int
    num_sockets: int
    num_numa: int
    num_uncore: int = 0

    @property
    def cpus_per_core(self) -> int:
        """The number of threads of a core."""
        return self.num_cpus // self.num_cores if self.num_cores else 0

    @property
    def cpus_per_socket(self) -> int:
        """The number of CPUs of a socket."""
        return self.num_cpus // self.num_sockets if self.num_sockets else 0

    @property
    def cpus_per_uncore(self) -> int:
        """The number of CPUs that share a last-level cache."""
        return self.num_cpus // self.num_uncore if self.num_uncore else 0

    @cached_property
    def cpus(self) -> CpuSet:
        """All logical CPUs."""
        return frozenset(self.details)

    @cached_property
    def numa(self) -> Level:
        """The CPUs of each NUMA node."""
        return self._level(lambda info: info.numa)

    @cached_property
    def sockets(self) -> Level:
        """The CPUs of each socket."""
        return self._level(lambda info: info.socket)

    @cached_property
    def cores(self) -> Level:
        """The CPUs of each core."""
        return self._level(lambda info: info.core)

    @cached_property
    def uncores(self) -> Level:
        """The CPUs of each last-level cache."""
        return self._level(lambda info: info.uncore)

    def cpus_in(self, numa_nodes: Iterable[int]) -> CpuSet:
        """Return the CPUs of some NUMA nodes; a node without CPUs has none."""
        return EMPTY.union(*(self.numa.get(node, EMPTY) for node in numa_nodes))

    def sockets_of(self, numa_nodes: Iterable[int]) -> frozenset[int]:
        """Return the sockets that some NUMA nodes are in."""
        return frozenset(self.details[cpu].socket for cpu in self.cpus_in(numa_nodes))

    def _level(self, unit: Callable[[CpuInfo], int]) -> Level:
        units: dict[int, set[int]] = {}
        for cpu, info in self.details.items():
            units.setdefault(unit(info), set()).add(cpu)
        return {number: frozenset(cpus) for number, cpus in units.items()}


def discover(machine: Machine) -> CpuTopology:
    """Return the CPUs of `machine`.

    Raises:
        ConfigurationError: the machine has no CPUs, or a core has a CPU twice or none.
    """
    details: dict[int, CpuInfo] = {}
    cores = 0
    for node in machine.nodes:
        for core in node.cores:
            cores += 1
            core_id = _core_id(core.threads)
            cache = core.socket if core.uncore_cache is None else core.uncore_cache
            for cpu in core.threads:
                details[cpu] = CpuInfo(node.id, core.socket, core_id, cache)
    if not details:
        raise ConfigurationError("could not detect number of cpus")
    return CpuTopology(
        details=details,
        num_cpus=len(details),
        num_cores=cores,
        num_sockets=len({info.socket for info in details.values()}),
        num_numa=len({info.numa for info in details.values()}),
        num_uncore=len({info.uncore for info in details.values()}),
    )


def _core_id(threads: Iterable[int]) -> int:
    ids = list(threads)
    if not ids:
        raise ConfigurationError("no cpus provided")
    if len(ids) != len(set(ids)):
        raise ConfigurationError("cpus provided are not unique")
    return min(ids)
