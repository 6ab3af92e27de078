"""On which NUMA nodes memory and huge pages can be had."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bindery.nodecore import masks
from bindery.nodecore.numamemory import Block, MemoryTable, NumaNodeState
from bindery.nodecore.topology.hints import Hint, hint

Requests = Mapping[str, int]
"""Resource -> bytes."""

Machine = Mapping[int, NumaNodeState]

Reusable = Mapping[tuple[int, str], int]
"""Mask of NUMA nodes and resource -> bytes that the pod's init containers leave there."""


_NO_MEMORY: Final = MemoryTable(0, 0, 0, 0, 0)


def calculate(machine: Machine, requests: Requests, reusable: Reusable) -> dict[str, list[Hint]]:
    """Return the hints for each requested resource, the same for all; empty if there are none.

    A group of several NUMA nodes is possible only if each of them is unused or used as exactly
    this group. A hint is preferred if no smaller group could ever have room.
    """
    tables = {
        resource: {node: state.memory.get(resource, _NO_MEMORY) for node, state in machine.items()}
        for resource in requests
    }
    possible = _masks_with(tables, requests, lambda table: table.allocatable, {})
    has = set(_masks_with(tables, requests, lambda table: table.free, reusable))
    fewest = possible[0].bit_count() if possible else 0
    used, groups = _groups(machine)
    found = [mask for mask in possible if mask in has and (not mask & used or mask in groups)]
    if not found:
        return {}
    hints = [hint(mask, mask.bit_count() == fewest) for mask in found]
    return dict.fromkeys(requests, hints)


def is_group_possible(machine: Machine, group: Sequence[int]) -> bool:
    """Return whether the NUMA nodes of `group` are free to be used together, or alone."""
    if len(group) == 1:
        return len(machine[group[0]].cells) <= 1
    return not violates(machine, group)


def _groups(machine: Machine) -> tuple[int, set[int]]:
    """Return the mask of all nodes in use, and the groups with such nodes that are possible."""
    used = [node for node, one in machine.items() if one.assignments or len(one.cells) > 1]
    groups = {(node,) for node in used} | {machine[node].cells for node in used}
    possible = {masks.mask_of(group) for group in groups if is_group_possible(machine, group)}
    return masks.mask_of(used), possible


def violates(machine: Machine, group: Sequence[int]) -> bool:
    """Return whether a NUMA node of a group of several is in use alone or in another group."""
    if len(group) == 1:
        return False
    return any(
        machine[node].assignments > 0 and sorted(machine[node].cells) != sorted(group)
        for node in group
    )


def free(machine: Machine, group: Sequence[int], resource: str) -> int:
    """Return the free bytes of `resource` on the NUMA nodes of `group`."""
    tables = (machine[node].memory.get(resource) for node in group)
    return sum(table.free for table in tables if table is not None)


def has_room(machine: Machine, group: Sequence[int], requests: Requests) -> bool:
    """Return whether the NUMA nodes of `group` have `requests` free."""
    return all(free(machine, group, name) >= size for name, size in requests.items())


def best(hints: Sequence[Hint]) -> Hint | None:
    """Return the narrowest preferred hint, else the narrowest, None when there are none."""

    def order(hint: Hint) -> tuple[bool, tuple[int, int]]:
        return not hint.preferred, masks.narrowness(hint.mask or 0)

    return min(hints, key=order, default=None)


def regenerate(blocks: Sequence[Block], requests: Requests) -> dict[str, list[Hint]] | None:
    """Return the hints that lead to `blocks` once more.

    None, which is no preference, if the blocks are not what is requested.
    """
    if len(blocks) != len(requests):
        return None
    if any(requests.get(block.resource) != block.size for block in blocks):
        return None
    hints: dict[str, list[Hint]] = {resource: [] for resource in requests}
    for block in blocks:
        hints[block.resource].append(Hint(masks.mask_of(block.numa_nodes), preferred=True))
    return hints


def _masks_with(
    tables: Mapping[str, Mapping[int, MemoryTable]],
    requests: Requests,
    amount: Callable[[MemoryTable], int],
    extra: Reusable,
) -> list[int]:
    """Return the masks of groups whose amounts are enough for all requests, small groups first."""
    enough: list[int] | None = None
    for resource, size in requests.items():
        sums = masks.sums({node: amount(table) for node, table in tables[resource].items()})
        for mask, name in extra:
            if name == resource:
                sums[mask] += extra[mask, name]
        found = [mask for mask, total in sums.items() if total >= size]
        enough = found if enough is None else [mask for mask in enough if sums[mask] >= size]
    return enough or []
