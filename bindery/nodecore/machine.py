"""A machine: its NUMA nodes with their cores, memory and huge pages, as cAdvisor reports it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Core:
    """A physical core.

    Attributes:
        threads: the ids of its logical CPUs.
        uncore_cache: the id of its last-level cache, None when it is not known.
    """

    socket: int
    threads: Sequence[int]
    uncore_cache: int | None = None


@dataclass(frozen=True)
class HugePages:
    """The huge pages of one size on a NUMA node."""

    size_kib: int
    count: int


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node.

    Attributes:
        id: its id; ids need not be dense.
        cores: its cores; a node with memory only has none.
        distances: the distance to each node by id, None when it is not known.
    """

    id: int
    cores: Sequence[Core] = ()
    memory_bytes: int = 0
    huge_pages: Sequence[HugePages] = ()
    distances: Sequence[int] | None = None


@dataclass(frozen=True)
class Machine:
    """The hardware of a node."""

    nodes: Sequence[NumaNode]

    @property
    def numa_ids(self) -> tuple[int, ...]:
        """The ids of all NUMA nodes, ascending."""
        return tuple(sorted(node.id for node in self.nodes))


def uniform(
    *,
    sockets: int = 1,
    numa_per_socket: int = 1,
    cores_per_numa: int = 4,
    threads_per_core: int = 1,
    cores_per_cache: int | None = None,
    memory_bytes_per_numa: int = 0,
    huge_pages_per_numa: Sequence[HugePages] = (),
) -> Machine:
    """Return a machine whose NUMA nodes are all alike.

    CPUs are numbered as Linux does on x86: the first thread of every core, then the second.
    Distances are 10 within a NUMA node, 12 within a socket, and 32 between sockets.
    """
    count = sockets * numa_per_socket
    cores = count * cores_per_numa
    per_cache = cores_per_cache or cores_per_numa

    def numa_node(node: int) -> NumaNode:
        socket = node // numa_per_socket
        first = node * cores_per_numa
        return NumaNode(
            id=node,
            cores=tuple(
                Core(
                    socket=socket,
                    threads=tuple(core + thread * cores for thread in range(threads_per_core)),
                    uncore_cache=core // per_cache,
                )
                for core in range(first, first + cores_per_numa)
            ),
            memory_bytes=memory_bytes_per_numa,
            huge_pages=huge_pages_per_numa,
            distances=tuple(
                10 if other == node else 12 if other // numa_per_socket == socket else 32
                for other in range(count)
            ),
        )

    return Machine(tuple(numa_node(node) for node in range(count)))
