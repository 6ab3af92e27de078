"""Hints of many nodes at once: the sets of zones that can serve a resource.

The hints of a resource are a function of the mask: `has(mask)` returns for each column whether the
mask is a hint. All hints with `fewest` zones are preferred.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.prediction.arrays import POLICIES, Floats
from bindery.nodecore.prediction.columns import Bools, Columns, Masks, Sums, by_narrowness
from bindery.nodecore.topology.policies import SINGLE_NUMA_NODE

SINGLE: Final = POLICIES.index(SINGLE_NUMA_NODE)


class ColumnHints(Protocol):
    """The hints of one resource for n nodes.

    Attributes:
        active: bool [n]; elsewhere the resource has no preference.
        fewest: int [n]; how many zones a preferred hint has.
    """

    active: Bools
    fewest: NDArray[np.int64]

    def has(self, mask: int) -> Bools:
        """Return whether `mask` is a hint; bool [n]."""

    def table(self, nodes: NDArray[np.intp]) -> Bools:
        """Return which masks are hints for some nodes; bool [2^Z, m]. The empty mask is none."""


class Counted:
    """The hints for a number of CPUs or devices."""

    def __init__(self, columns: Columns, resource: str, count: int) -> None:
        totals = columns.totals[resource]
        self.active = columns.placed[resource]
        absent = np.asarray(totals <= 0)
        self._absent = absent if absent.any() else None
        self.fewest = _fewest(totals, count)
        self._rows = columns.free[resource]
        self._free = Sums(self._rows)
        self._count = count
        self._room: float | Floats = count
        self._reusable = columns.reusable.get(resource)
        if self._reusable is not None:
            self._room = count - self._reusable.sum(axis=0)

    def has(self, mask: int) -> Bools:
        """Return where all zones of `mask` exist, have room, and hold all that is reusable."""
        found: Bools = np.greater_equal(self._free.over(mask), self._room)
        for zone in range(len(self._absent) if self._absent is not None else 0):
            if mask >> zone & 1 and self._absent is not None:
                found &= ~self._absent[zone]
        if self._reusable is not None:
            for zone, left in enumerate(self._reusable):
                if not mask >> zone & 1:
                    found &= left <= 0
        return found

    def table(self, nodes: NDArray[np.intp]) -> Bools:
        """Return which masks are hints for some nodes; bool [2^Z, m]."""
        if self._reusable is not None:
            return _stacked(self, len(self._rows), nodes)
        found = enough_on(self._rows[:, nodes].astype(np.float32), self._count)
        if self._absent is not None:
            found &= all_of(~self._absent[:, nodes])
        found[0] = False
        return found


class Memory:
    """The hints for memory and huge pages, which are the same for all their resources."""

    def __init__(self, columns: Columns, wanted: Mapping[str, int]) -> None:
        self._columns = columns
        self._wanted = wanted
        self._free = {name: Sums(columns.free[name]) for name in wanted}
        self._totals = {name: Sums(columns.totals[name]) for name in wanted}
        groups = columns.groups
        self._unused = groups == 0
        self._has_groups = bool((groups & (groups - 1) != 0).any())
        singles = {1 << zone for zone in range(columns.zones)}
        self._used_masks = sorted({*np.unique(groups).tolist(), *singles})
        self._masks: dict[int, Bools] = {}
        self.fewest = self._fewest()
        self.active: Bools = columns.has_static_memory & self._is_possible()

    def has(self, mask: int) -> Bools:
        """Return where the zones of `mask` have room and are not used apart or with others."""
        found = self._masks.get(mask)
        if found is None:
            found = self._group_is_free(mask)
            for name, size in self._wanted.items():
                free = self._free[name].over(mask)
                if name in self._columns.reusable_memory:
                    free = free + self._columns.reusable_memory[name][mask]
                    found &= self._totals[name].over(mask) >= size
                found &= free >= size
            self._masks[mask] = found
        return found

    def table(self, nodes: NDArray[np.intp]) -> Bools:
        """Return which masks are hints for some nodes; bool [2^Z, m]."""
        columns = self._columns
        if columns.reusable_memory:
            return _stacked(self, columns.zones, nodes)
        found = all_of(self._unused[:, nodes])
        for mask in self._used_masks:
            found[mask] = self._group_is_free(mask, nodes)
        for name, size in self._wanted.items():
            found &= enough_on(columns.free[name][:, nodes], size)
        found[0] = False
        return found

    def narrowest(self, nodes: NDArray[np.intp], inside: Masks) -> Masks:
        """Return the narrowest hint of each node that has all zones of a mask, 0 if none has.

        `nodes`: the m columns to ask. `inside`: uint8 [m]; the masks.
        """
        order = np.array([0, *reversed(by_narrowness(self._columns.zones))], np.uint8)
        weights = np.argsort(order).astype(np.uint8)  # the narrowest mask has the largest
        lacking = inside[None, :] & ~np.arange(len(order), dtype=np.uint8)[:, None]
        fits = self.table(nodes) & (lacking == 0)
        found: Masks = order[(fits.view(np.uint8) * weights[:, None]).max(axis=0)]
        return found

    def _group_is_free(self, mask: int, nodes: NDArray[np.intp] | slice = slice(None)) -> Bools:
        """Return where no zone of `mask` is used apart or with others."""
        is_single = mask & (mask - 1) == 0
        free = np.ones(self._columns.size, np.bool_)[nodes]
        for zone in range(self._columns.zones):
            if mask >> zone & 1:
                if self._has_groups or is_single:
                    groups = self._columns.groups[zone, nodes]
                    free &= (groups == 0) | (groups == mask)
                else:
                    free &= self._unused[zone, nodes]
        return free

    def _fewest(self) -> NDArray[np.int64]:
        """Return with how many zones all could ever be had, 0 if never."""
        if len(self._wanted) == 1:
            ((name, size),) = self._wanted.items()
            totals = self._columns.totals[name]
            return np.where(totals.sum(axis=0) >= size, _fewest(totals, size), 0)
        fewest = np.zeros(self._columns.size, np.int64)
        for mask in by_narrowness(self._columns.zones):
            enough = fewest == 0
            if not enough.any():
                break
            for name, size in self._wanted.items():
                enough &= self._totals[name].over(mask) >= size
            fewest[enough] = mask.bit_count()
        return fewest

    def _is_possible(self) -> Bools:
        """Return where there is any hint; without one, the memory manager has no preference.

        Under the policy single-numa-node, a node without a hint for one zone refuses in either
        case, unless its zones are used in groups.
        """
        columns = self._columns
        found = np.zeros(columns.size, np.bool_)
        for zone in range(columns.zones):
            found |= self.has(1 << zone)
        asked = ~found
        if not self._has_groups:
            asked &= columns.policy != SINGLE
            found |= columns.policy == SINGLE
            if not columns.reusable_memory:
                # Only unused zones can be grouped.
                for name, size in self._wanted.items():
                    asked &= (columns.free[name] * self._unused).sum(axis=0) >= size
        for mask in by_narrowness(columns.zones):
            if not asked.any():
                break
            found |= asked & self.has(mask)
            asked &= ~found
        return found


def enough_on(rows: Floats | NDArray[np.float32], size: float) -> Bools:
    """Return for all masks whether the sum of their rows is at least `size`; bool [2^Z, m].

    `rows`: float64 [Z, m], or float32 for counts, which it holds exactly up to 2^24.
    """
    # Two short tables of sums, for the lower and the upper zones, instead of 2^Z sums.
    half = len(rows) // 2
    lower, upper = _sums(rows[:half]), _sums(rows[half:])
    enough = lower[None, :, :] >= (size - upper)[:, None, :]
    return np.asarray(enough.reshape(1 << len(rows), rows.shape[1]))


def _sums(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the sums of the rows of all masks; [2^Z, m]."""
    sums = np.zeros((1 << len(rows), rows.shape[1]), rows.dtype)
    for zone, row in enumerate(rows):
        np.add(sums[: 1 << zone], row, out=sums[1 << zone : 2 << zone])
    return sums


def all_of(rows: Bools) -> Bools:
    """Return for all masks whether all of their rows are true; bool [2^Z, m]."""
    found = np.ones((1 << len(rows), rows.shape[1]), np.bool_)
    for zone, row in enumerate(rows):
        np.logical_and(found[: 1 << zone], row, out=found[1 << zone : 2 << zone])
    return found


def _stacked(hints: ColumnHints, zones: int, nodes: NDArray[np.intp]) -> Bools:
    """Return the table of `hints` from its answers for each mask."""
    table = np.zeros((1 << zones, len(nodes)), np.bool_)
    for mask in by_narrowness(zones):
        table[mask] = hints.has(mask)[nodes]
    return table


def _fewest(totals: Floats, count: float) -> NDArray[np.int64]:
    """Return on how few zones `count` could ever be had; all zones with any if it could not."""
    if (totals.max(axis=0) >= count).all():
        return np.ones(totals.shape[1], np.int64)
    # Each node in a row of its own: short rows are sorted much faster than columns.
    largest_first = np.sort(np.ascontiguousarray(-totals.T), axis=1)
    cumulated = np.cumsum(largest_first, axis=1)
    fewest = (cumulated > -count).sum(axis=1) + 1
    found: NDArray[np.int64] = np.minimum(fewest, (totals > 0).sum(axis=0))
    return found
