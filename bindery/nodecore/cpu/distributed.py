"""Taking CPUs in equal parts from several NUMA nodes, when one cannot give them all.

The kubelet looks for the smallest number of NUMA nodes that can give equal parts, and among those
for the choice that leaves the free CPUs most balanced.
"""

import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bindery.nodecore.cpu.packed import Accumulator, not_enough, take_packed
from bindery.nodecore.cpu.topology import CpuTopology
from bindery.nodecore.cpusets import CpuSet
from bindery.nodecore.errors import AllocationError


def take_distributed(
    topology: CpuTopology,
    available: CpuSet,
    count: int,
    group_size: int = 1,
    *,
    spread_over_cores: bool = False,
) -> CpuSet:
    """Return `count` of the `available` CPUs in equal parts over as few NUMA nodes as possible.

    CPUs are handed out in groups of `group_size`: the threads of a core, or 1.

    Raises:
        AllocationError: there are fewer CPUs than `count`, or the choice cannot be carried out.
    """
    if count % group_size:
        return take_packed(topology, available, count, spread_over_cores=spread_over_cores)
    taking = Accumulator(topology, available, count)
    if taking.is_satisfied:
        return taking.result
    if count > len(taking.free):
        raise not_enough(count, available)
    free = {node: len(taking.free_in(topology.numa, node)) for node in taking.numa_nodes()}
    for nodes in _counts_of_nodes(topology, len(free), count, group_size):
        choice = _best_choice(free, nodes, count, group_size)
        if choice is not None:
            _take_choice(taking, topology, choice, group_size, spread_over_cores=spread_over_cores)
            return taking.result
    return take_packed(topology, available, count, spread_over_cores=spread_over_cores)


@dataclass
class _Choice:
    """A combination of NUMA nodes, and the nodes in it that give one group more."""

    nodes: "Slice"
    remainder: "Slice | None"
    balance: float


def _counts_of_nodes(
    topology: CpuTopology, nodes_with_room: int, count: int, group_size: int
) -> range:
    """Return the numbers of NUMA nodes that can be enough, ascending."""
    groups = -(-len(topology.details) // group_size)
    groups_per_node = -(-groups // len(topology.numa))
    needed = -(-count // group_size)
    return range(-(-needed // groups_per_node), min(needed, nodes_with_room) + 1)


def _best_choice(
    free: Mapping[int, int], nodes: int, count: int, group_size: int
) -> _Choice | None:
    """Return the choice of so many NUMA nodes with the best balance, None when none can."""
    best: _Choice | None = None
    share = count // nodes // group_size * group_size
    for combination in combinations(list(free), nodes):
        if best is not None and best.balance == 0:
            break
        chosen = combination.values
        if not _has_room(free, chosen, count, share, group_size):
            continue
        left = {node: cpus - share * (node in chosen) for node, cpus in free.items()}
        remainder, balance = _best_remainder(left, chosen, count - share * nodes, group_size)
        if balance < (best.balance if best else sys.float_info.max):
            best = _Choice(combination, remainder, balance)
    return best


def _has_room(
    free: Mapping[int, int], chosen: Collection[int], count: int, share: int, group_size: int
) -> bool:
    return (
        sum(free[node] for node in chosen) >= count
        and sum(free[node] // group_size for node in chosen) * group_size >= count
        and all(free[node] >= share for node in chosen)
    )


def _best_remainder(
    left: Mapping[int, int], chosen: Sequence[int], remainder: int, group_size: int
) -> tuple["Slice | None", float]:
    """Return the NUMA nodes that give the rest, and the balance after that."""
    if remainder == 0:
        return None, deviation(left.values())
    candidates = [node for node in chosen if left[node] >= group_size]
    best: Slice | None = None
    best_balance = sys.float_info.max
    for size in range(len(candidates), 0, -1):
        for subset in combinations(candidates, size):
            nodes = subset.values
            if sum(left[node] for node in nodes) < remainder:
                continue
            after = _hand_out(left, nodes, remainder, group_size)
            balance = deviation(after.values())
            if balance < best_balance:
                best, best_balance = subset, balance
    return best, best_balance


def _hand_out(
    left: Mapping[int, int], nodes: Sequence[int], remainder: int, group_size: int
) -> dict[int, int]:
    after = dict(left)
    while remainder > 0:
        before = remainder
        for node in nodes:
            if remainder > 0 and after[node] >= group_size:
                after[node] -= group_size
                remainder -= group_size
        if remainder == before:
            break
    return after


def _take_choice(
    taking: Accumulator,
    topology: CpuTopology,
    choice: _Choice,
    group_size: int,
    *,
    spread_over_cores: bool,
) -> None:
    """Take the shares of the chosen NUMA nodes, then the rest; raises AllocationError."""

    def take(node: int, count: int) -> None:
        free = taking.free_in(topology.numa, node)
        if count <= len(free):
            taking.take(take_packed(topology, free, count, spread_over_cores=spread_over_cores))

    count = taking.needed
    nodes = choice.nodes.values
    share = count // len(nodes) // group_size * group_size
    for node in nodes:
        take(node, share)
    remainder = count - share * len(nodes)
    while remainder > 0:
        before = remainder
        for node in choice.remainder.values if choice.remainder else ():
            if remainder > 0 and len(taking.free_in(topology.numa, node)) >= group_size:
                take(node, group_size)
                remainder -= group_size
        if remainder == before:
            break
    if taking.needed > 0:
        raise AllocationError(
            f"accounting error, not enough CPUs allocated, remaining: {taking.needed}"
        )


def deviation(values: Collection[int]) -> float:
    """Return the standard deviation; it and the mean are rounded to three decimals."""
    mean = _rounded(sum(values) / len(values))
    return _rounded(math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)))


def _rounded(value: float) -> float:
    return math.floor(value * 1000 + 0.5) / 1000


class Slice:
    """A Go slice: values in an array that slices made by `append` may share.

    The kubelet keeps its best combination as a slice whose last element later combinations
    overwrite when the array has room. With 4, 6 or 7 NUMA nodes it therefore takes other CPUs
    than the balance asks for. A prediction has to do the same.
    """

    def __init__(self, array: list[int], length: int) -> None:
        self._array = array
        self._length = length

    @property
    def values(self) -> list[int]:
        """The values as the array has them now."""
        return self._array[: self._length]

    def append(self, value: int) -> "Slice":
        """Return the slice with one value more, in the same array if that has room."""
        if self._length < len(self._array):
            self._array[self._length] = value
            return Slice(self._array, self._length + 1)
        room = max(1, 2 * len(self._array)) - self._length - 1
        return Slice([*self._array, value, *[0] * room], self._length + 1)


def combinations(items: Sequence[int], size: int) -> Iterator[Slice]:
    """Yield the combinations of `size` items, in the order and the arrays of the kubelet."""
    if size >= 1:
        yield from _combinations(items, size, 0, Slice([], 0))


def _combinations(items: Sequence[int], size: int, start: int, chosen: Slice) -> Iterator[Slice]:
    if size == 0:
        yield chosen
        return
    for index in range(start, len(items) - size + 1):
        yield from _combinations(items, size - 1, index + 1, chosen.append(items[index]))
