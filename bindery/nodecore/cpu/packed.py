"""Taking CPUs so that they fill as few NUMA nodes, sockets, caches and cores as possible."""

from collections.abc import Callable, Iterable

from bindery.nodecore.cpu.topology import CpuTopology, Level
from bindery.nodecore.cpusets import EMPTY, CpuSet
from bindery.nodecore.errors import AllocationError


def take_packed(
    topology: CpuTopology,
    available: CpuSet,
    count: int,
    *,
    spread_over_cores: bool = False,
    align_by_uncore: bool = False,
) -> CpuSet:
    """Return `count` of the `available` CPUs, as close together as the kubelet takes them.

    Whole NUMA nodes and sockets come first, then whole caches if asked for, whole cores, and single
    CPUs. At each level, units with fewer free CPUs come first. `spread_over_cores`: take single
    CPUs over many cores rather than whole cores. `align_by_uncore`: prefer CPUs that share a
    last-level cache.

    Raises:
        AllocationError: there are fewer CPUs than `count`.
    """
    taking = Accumulator(topology, available, count)
    if taking.is_satisfied:
        return taking.result
    if taking.is_failed:
        raise not_enough(count, available)
    steps = [*taking.whole_units()]
    if align_by_uncore:
        steps.append(taking.take_uncore)
    if not spread_over_cores:
        steps.append(taking.take_cores)
    for step in steps:
        step()
        if taking.is_satisfied:
            return taking.result
    taking.take_singles(spread_over_cores=spread_over_cores)
    return taking.result


def not_enough(count: int, available: CpuSet) -> AllocationError:
    """Return the error for a request that exceeds the available CPUs."""
    return AllocationError(
        "not enough cpus available to satisfy request: "
        f"requested={count}, available={len(available)}"
    )


class Accumulator:
    """The CPUs taken so far, the free CPUs, and the number that is still needed."""

    def __init__(self, topology: CpuTopology, available: CpuSet, count: int) -> None:
        self._topology = topology
        self.free = available & topology.cpus
        self.needed = count
        self.result = EMPTY
        self._numa_first = topology.num_sockets >= topology.num_numa

    @property
    def is_satisfied(self) -> bool:
        """Whether enough CPUs are taken."""
        return self.needed < 1

    @property
    def is_failed(self) -> bool:
        """Whether more CPUs are needed than are free."""
        return self.needed > len(self.free)

    def take(self, cpus: CpuSet) -> None:
        """Take `cpus`."""
        self.result |= cpus
        self.free -= self.result
        self.needed -= len(cpus)

    def free_in(self, level: Level, unit: int) -> CpuSet:
        """Return the free CPUs of a unit of a level."""
        return level[unit] & self.free

    def numa_nodes(self) -> list[int]:
        """Return the NUMA nodes with free CPUs; those with the fewest come first.

        On machines with several NUMA nodes in a socket, the sockets are ordered first.
        """
        numa = self._topology.numa
        details = self._topology.details
        if self._numa_first:
            return self._ordered((details[cpu].numa for cpu in self.free), numa)
        return [
            node
            for socket in self.sockets()
            for node in self._ordered(
                (details[cpu].numa for cpu in self.free_in(self._topology.sockets, socket)), numa
            )
        ]

    def sockets(self) -> list[int]:
        """Return the sockets with free CPUs; those with the fewest come first."""
        sockets = self._topology.sockets
        details = self._topology.details
        if not self._numa_first:
            return self._ordered((details[cpu].socket for cpu in self.free), sockets)
        return [
            socket
            for node in self.numa_nodes()
            for socket in self._ordered(
                (details[cpu].socket for cpu in self.free_in(self._topology.numa, node)), sockets
            )
        ]

    def free_numa_nodes(self) -> list[int]:
        """Return the NUMA nodes that are wholly free, in the order of `numa_nodes`."""
        numa = self._topology.numa
        return [node for node in self.numa_nodes() if numa[node] <= self.free]

    def free_sockets(self) -> list[int]:
        """Return the sockets that are wholly free, in the order of `sockets`."""
        size = self._topology.cpus_per_socket
        sockets = self._topology.sockets
        return [one for one in self.sockets() if len(self.free_in(sockets, one)) == size]

    def free_cores(self) -> list[int]:
        """Return the cores that are wholly free, unit by unit; fuller units come first."""
        size = self._topology.cpus_per_core
        cores = self._topology.cores
        return [core for core in self._cores() if len(self.free_in(cores, core)) == size]

    def free_cpus(self, *, spread_over_cores: bool = False) -> list[int]:
        """Return the free CPUs core by core, or by their ids within a socket."""
        level = self._topology.sockets if spread_over_cores else self._topology.cores
        units = self.sockets() if spread_over_cores else self._cores()
        return [cpu for unit in units for cpu in sorted(self.free_in(level, unit))]

    def whole_units(self) -> list[Callable[[], None]]:
        """Return the steps that take whole NUMA nodes and whole sockets, the larger first."""
        steps = [self._take_numa_nodes, self._take_sockets]
        return steps if self._numa_first else steps[::-1]

    def take_uncore(self) -> None:
        """Take whole caches, and then the cache that has just enough cores."""
        for uncore in self._uncores():
            if self.needed >= self._topology.cpus_per_uncore:
                self._take_units(self._free_uncores(), self._topology.uncores)
            if self.is_satisfied:
                return
            self._take_part_of_uncore(uncore)
            if self.is_satisfied:
                return

    def take_cores(self) -> None:
        """Take whole cores."""
        self._take_units(self.free_cores(), self._topology.cores)

    def take_singles(self, *, spread_over_cores: bool) -> None:
        """Take single CPUs: core by core, or by their ids within a socket."""
        for cpu in self.free_cpus(spread_over_cores=spread_over_cores):
            self.take(frozenset([cpu]))
            if self.is_satisfied:
                return

    def _take_numa_nodes(self) -> None:
        self._take_units(self.free_numa_nodes(), self._topology.numa)

    def _take_sockets(self) -> None:
        self._take_units(self.free_sockets(), self._topology.sockets)

    def _take_units(self, units: Iterable[int], level: Level) -> None:
        for unit in units:
            if self.needed >= len(level[unit]):
                self.take(level[unit])

    def _uncores(self) -> list[int]:
        details = self._topology.details
        return [
            uncore
            for node in self.numa_nodes()
            for uncore in self._ordered(
                (details[cpu].uncore for cpu in self.free_in(self._topology.numa, node)),
                self._topology.uncores,
            )
        ]

    def _free_uncores(self) -> list[int]:
        uncores = self._topology.uncores
        return [uncore for uncore in self._uncores() if uncores[uncore] <= self.free]

    def _take_part_of_uncore(self, uncore: int) -> None:
        """Take CPUs of one cache if they are exactly as many as needed."""
        threads = self._topology.cpus_per_core
        wanted_cores = -(-self.needed // threads)
        details = self._topology.details
        free = self.free_in(self._topology.uncores, uncore)
        cores = sorted({details[cpu].core for cpu in free})[:wanted_cores]
        cpus = sorted(cpu for core in cores for cpu in self.free_in(self._topology.cores, core))
        if self.needed % 2 and threads > 1 and len(cpus) > self.needed:
            cpus.pop()
        if len(cpus) == self.needed:
            self.take(frozenset(cpus))

    def _cores(self) -> list[int]:
        details = self._topology.details
        if self._numa_first:
            level, units = self._topology.sockets, self.sockets()
        else:
            level, units = self._topology.numa, self.numa_nodes()
        return [
            core
            for unit in units
            for core in self._ordered(
                (details[cpu].core for cpu in self.free_in(level, unit)), self._topology.cores
            )
        ]

    def _ordered(self, units: Iterable[int], level: Level) -> list[int]:
        return sorted(set(units), key=lambda unit: (len(self.free_in(level, unit)), unit))
