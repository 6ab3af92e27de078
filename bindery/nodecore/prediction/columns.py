"""The zones of nodes with as many zones each: one column for each node, one row for each zone."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.masks import iterate, narrowness
from bindery.nodecore.pods import CPU
from bindery.nodecore.prediction.arrays import Floats, ZoneArrays
from bindery.nodecore.prediction.zones import is_memory

_BLOCK: Final = 1024
"""Columns that are computed at once where a column has 2^Z numbers, so that they stay in cache."""

Bools = NDArray[np.bool_]
Masks = NDArray[np.uint8]
"""One mask of zones for each column; 0 is no preference."""


class Columns:
    """What is left on the zones of n nodes with Z zones each.

    Attributes:
        zones: Z.
        size: n.
        free: resource -> float64 [Z, n].
        totals: the same.
        reusable: what init containers leave of CPUs and devices; the same.
        reusable_memory: resource -> float64 [2^Z, n]: by mask; empty before an init container.
        split: float64 [Z, n].
        groups: uint8 [Z, n].
    """

    def __init__(
        self, arrays: ZoneArrays, nodes: NDArray[np.intp], zones: int, names: tuple[str, ...]
    ) -> None:
        self.zones = zones
        self.size = len(nodes)
        self.everything = (1 << zones) - 1
        places = {name: place for place, name in enumerate(arrays.resources)}
        listed = [name for name in names if name in places]

        def columns(amounts: Floats, name: str) -> Floats:
            return np.ascontiguousarray(amounts[nodes, :zones, places[name]].T)

        nothing = np.zeros((zones, self.size))
        self.free = {name: columns(arrays.free, name) for name in listed}
        self.totals = {name: columns(arrays.totals, name) for name in listed}
        for name in names:
            self.free.setdefault(name, nothing.copy())
            self.totals.setdefault(name, nothing)
        self.reusable: dict[str, Floats] = {}
        self.reusable_memory: dict[str, Floats] = {}
        self.split = np.ascontiguousarray(arrays.split[nodes, :zones].T)
        self.groups = np.ascontiguousarray(arrays.groups[nodes, :zones].T)
        self.policy = arrays.policy[nodes]
        self.threads_per_core = arrays.threads_per_core[nodes]
        self.has_static_memory = arrays.has_static_memory[nodes]
        self.placed: dict[str, Bools] = {
            name: np.asarray(self.totals[name].max(axis=0) > 0)
            for name in names
            if not is_memory(name)
        }
        if CPU in self.placed:
            self.placed[CPU] &= arrays.has_static_cpus[nodes]
        self._closest = arrays.prefer_closest[nodes]
        self._distances = arrays.distances[nodes, :zones, :zones] if self._closest.any() else None

    @property
    def has_distances(self) -> bool:
        """Whether distances count for any node."""
        return self._distances is not None

    def usable(self, resource: str) -> Floats:
        """Return what is free or reusable on each zone."""
        reusable = self.reusable.get(resource)
        return self.free[resource] if reusable is None else self.free[resource] + reusable

    def mean_distance(
        self, mask: int, policy: int, nodes: NDArray[np.intp] | slice = slice(None)
    ) -> Floats | None:
        """Return the mean distance within `mask` for each column, 0 where it does not count.

        None if it counts nowhere. `policy`: the code of the policy that has no such option.
        """
        if self._distances is None:
            return None
        inside = [zone for zone in range(self.zones) if mask >> zone & 1]
        distances = self._distances[nodes][:, inside][:, :, inside]
        counts = self._closest[nodes] & (self.policy[nodes] != policy)
        return np.where(counts, distances.sum(axis=(1, 2)) / len(inside) ** 2, 0.0)

    def bits(self, chosen: Masks, zone: int) -> Bools:
        """Return for each column whether `zone` is in its mask."""
        return (chosen >> np.uint8(zone) & np.uint8(1)).astype(np.bool_)


def blocks(nodes: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Yield `nodes` in parts that are small enough for tables with 2^Z rows."""
    for start in range(0, len(nodes), _BLOCK):
        yield nodes[start : start + _BLOCK]


@lru_cache(maxsize=16)
def by_narrowness(zones: int) -> tuple[int, ...]:
    """Return all masks but 0 of so many zones: those with few zones first, then low numbers."""
    return tuple(sorted(iterate(range(zones)), key=narrowness))


@lru_cache(maxsize=128)
def of_size(zones: int, size: int) -> tuple[int, ...]:
    """Return the masks with `size` of so many zones, low numbers first."""
    return tuple(mask for mask in by_narrowness(zones) if mask.bit_count() == size)


class Sums:
    """Sums of the rows of an array [Z, n] over masks of zones, each computed once."""

    def __init__(self, rows: Floats) -> None:
        self._rows = rows
        self._known: dict[int, Floats] = {}

    def over(self, mask: int) -> Floats:
        """Return the sum over the zones of `mask`, which is not 0; float64 [n]."""
        lowest = mask & -mask
        row: Floats = self._rows[lowest.bit_length() - 1]
        if mask == lowest:
            return row
        found = self._known.get(mask)
        if found is None:
            found = self._known[mask] = self.over(mask ^ lowest) + row
        return found
