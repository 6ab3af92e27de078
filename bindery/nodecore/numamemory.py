"""Memory of NUMA nodes: the amounts of each node, and the blocks that containers have."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryTable:
    """One resource (memory, or a size of huge pages) of one NUMA node, in bytes.

    Attributes:
        total: the amount in the NUMA node.
        system_reserved: the amount for the system.
        allocatable: the amount for containers; for memory, without huge pages.
        reserved: the amount of the containers.
        free: the rest of `allocatable`.
    """

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


@dataclass(frozen=True)
class NumaNodeState:
    """A NUMA node.

    Attributes:
        assignments: number of blocks on the node, one for each resource of a container.
        cells: the group of NUMA nodes that are used together, with the node itself.
    """

    assignments: int
    memory: Mapping[str, MemoryTable]
    cells: tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """Memory of one resource that a container or pod has on a group of NUMA nodes.

    Attributes:
        numa_nodes: the NUMA nodes, ascending.
        resource: "memory" or "hugepages-SIZE".
        size: bytes.
    """

    numa_nodes: tuple[int, ...]
    resource: str
    size: int


Blocks = tuple[Block, ...]
