"""The memory of a machine's NUMA nodes: what is there at the start, charged, released, compared."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from bindery.nodecore.errors import ConfigurationError, StateError
from bindery.nodecore.machine import HugePages, Machine, NumaNode
from bindery.nodecore.numamemory import Block, MemoryTable, NumaNodeState
from bindery.nodecore.pods import HUGE_PAGES_PREFIX, MEMORY

NodeStates = Mapping[int, NumaNodeState]

Reserved = Mapping[int, Mapping[str, int]]
"""NUMA node -> resource -> bytes that are kept for the system."""

_KIB = 1024
_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def huge_pages_resource(size_kib: int) -> str:
    """Return the name of the resource of huge pages, such as hugepages-2Mi."""
    size, power = size_kib * _KIB, 0
    while size % _KIB == 0 and power + 1 < len(_SUFFIXES):
        size //= _KIB
        power += 1
    return f"{HUGE_PAGES_PREFIX}{size}{_SUFFIXES[power]}"


def initial(machine: Machine, reserved: Reserved) -> dict[int, NumaNodeState]:
    """Return the state without containers; raises ConfigurationError if too much is reserved."""
    return {node.id: _initial(node, reserved.get(node.id, {})) for node in machine.nodes}


def charge(states: NodeStates, group: Sequence[int], resource: str, size: int) -> NodeStates:
    """Return the states after `size` bytes are taken from the nodes of `group`, in id order.

    Every node of the group counts one assignment more and belongs to the group.
    """
    after = dict(states)
    for node in group:
        state = after[node]
        tables = dict(state.memory)
        table = tables.get(resource)
        taken = min(size, table.free) if table is not None else 0
        if table is not None and taken:
            tables[resource] = replace(
                table, reserved=table.reserved + taken, free=table.free - taken
            )
        size -= taken
        after[node] = NumaNodeState(state.assignments + 1, tables, tuple(group))
    return after


def release(states: NodeStates, blocks: Iterable[Block]) -> NodeStates:
    """Return the states without `blocks`; a node without assignments is alone in its group."""
    after = dict(states)
    for block in blocks:
        size = block.size
        for node in block.numa_nodes:
            state = after[node]
            tables = dict(state.memory)
            table = tables.get(block.resource)
            given = min(size, table.reserved) if table is not None else 0
            if table is not None and given:
                tables[block.resource] = replace(
                    table, reserved=table.reserved - given, free=table.free + given
                )
            size -= given
            left = state.assignments - 1
            after[node] = NumaNodeState(left, tables, state.cells if left else (node,))
    return after


def expected(states: NodeStates, blocks: Iterable[tuple[str, Block]]) -> NodeStates:
    """Return the states after recorded blocks are charged.

    Blocks of small groups come first, so that larger groups leave them room. `blocks`: each with
    its owner, as the error names it.

    Raises:
        StateError: a block has a NUMA node or a resource that the machine lacks.
    """
    for owner, block in sorted(blocks, key=lambda one: len(one[1].numa_nodes)):
        for node in block.numa_nodes:
            if node not in states:
                raise StateError(
                    f"[memorymanager] ({owner}) the memory assignment uses the NUMA that does not "
                    "exist"
                )
            if block.resource not in states[node].memory:
                raise StateError(
                    f"[memorymanager] ({owner}) the memory assignment uses memory resource that "
                    "does not exist"
                )
        states = charge(states, block.numa_nodes, block.resource, block.size)
    return states


def is_same(one: NodeStates, other: NodeStates, groups: Iterable[Sequence[int]] = ()) -> bool:
    """Return whether two states agree.

    Within a group of NUMA nodes, only the sums of what is free and reserved have to agree: the
    order in which blocks were charged decides which node of the group has them.

    Groups that overlap leave more open: the block that was charged last decides which group a node
    is in. The kubelet compares with its blocks in random order; here any order may fit. `one` is
    the recorded state. `groups`: those of the recorded blocks, to allow for overlaps.
    """
    if one.keys() != other.keys():
        return False
    distinct = {tuple(sorted(group)) for group in groups}
    return all(_is_same_node(one, other, node, _overlapping(node, distinct)) for node in one)


def _is_same_node(
    one: NodeStates, other: NodeStates, node: int, overlapping: AbstractSet[tuple[int, ...]]
) -> bool:
    mine, theirs = one[node], other[node]
    cells = tuple(sorted(mine.cells))
    allowed = {group for group in overlapping if node in group} | {tuple(sorted(theirs.cells))}
    if (
        mine.assignments != theirs.assignments
        or cells not in allowed
        or mine.memory.keys() != theirs.memory.keys()
    ):
        return False
    together = set(cells).union(*overlapping)
    return all(
        _fixed(mine.memory[resource]) == _fixed(theirs.memory[resource])
        and _sums(one, together, resource) == _sums(other, together, resource)
        for resource in mine.memory
    )


def _overlapping(node: int, groups: AbstractSet[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Return the groups that `node` is in or that overlaps join to it; empty if none overlap."""
    found = {group for group in groups if node in group}
    joined = set(found)
    while joined:
        nodes = set().union(*joined)
        joined = {group for group in groups - found if not nodes.isdisjoint(group)}
        found |= joined
    return found if len(found) > 1 else set()


def _fixed(table: MemoryTable) -> tuple[int, int, int]:
    return table.total, table.system_reserved, table.allocatable


def _sums(states: NodeStates, group: Iterable[int], resource: str) -> tuple[int, int]:
    tables = [states[node].memory[resource] for node in group]
    return sum(table.free for table in tables), sum(table.reserved for table in tables)


def _initial(node: NumaNode, reserved: Mapping[str, int]) -> NumaNodeState:
    tables: dict[str, MemoryTable] = {}
    in_huge_pages = 0
    for pages in node.huge_pages:
        total = _bytes(pages)
        in_huge_pages += total
        resource = huge_pages_resource(pages.size_kib)
        tables[resource] = _table(node.id, resource, total, reserved.get(resource, 0), 0)
    kept = reserved.get(MEMORY, 0)
    tables[MEMORY] = _table(node.id, MEMORY, node.memory_bytes, kept, in_huge_pages)
    return NumaNodeState(0, tables, (node.id,))


def _bytes(pages: HugePages) -> int:
    return pages.count * pages.size_kib * _KIB


def _table(node: int, resource: str, total: int, reserved: int, elsewhere: int) -> MemoryTable:
    allocatable = total - reserved - elsewhere
    if total < 0 or reserved < 0 or allocatable < 0:
        raise ConfigurationError(
            f"NUMA node {node} has {total} bytes of {resource}, but {reserved + elsewhere} are "
            "reserved or in huge pages"
        )
    return MemoryTable(total, reserved, allocatable, 0, allocatable)
