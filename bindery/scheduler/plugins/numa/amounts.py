"""Amounts of one node's zones as arrays: what pods hold and what is free. All values are frozen.

The axis grows when a node reports more zones or a new resource. `Axis.fitted` then extends older
amounts with zeros.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.masks import nodes_of
from bindery.nodecore.prediction.zones import Counts, NodeZones, is_memory

Amounts = NDArray[np.float64]
"""[zone, resource]: whole CPUs, bytes, devices."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldZones:
    """What one pod holds of a node's zones."""

    amounts: Amounts
    split: Amounts
    """Free CPUs that share a core with a reserved CPU: [zone]."""
    spans: tuple[int, ...] = ()
    """Masks of zones whose memory it uses together."""
    has_split: bool = False
    """Whether `split` is not zero."""

    def within(self, most: Amounts) -> "HeldZones":
        """Return the part of it that is at most `most`."""
        if (self.amounts <= most).all():
            return self
        return replace(self, amounts=np.clip(self.amounts, 0, np.maximum(most, 0)))

    def joined(self, other: "HeldZones") -> "HeldZones":
        """Return the larger of both amounts for each zone and resource."""
        if np.array_equal(self.amounts, other.amounts):
            return self
        return HeldZones(
            np.maximum(self.amounts, other.amounts),
            np.maximum(self.split, other.split),
            tuple(sorted({*self.spans, *other.spans})),
            self.has_split or other.has_split,
        )

    @property
    def zones(self) -> int:
        """The mask of the zones that it holds something of."""
        return sum(1 << zone for zone in np.flatnonzero(self.amounts.any(axis=1)).tolist())


@dataclass(frozen=True, eq=False)
class FreeZones:
    """What is free on one node."""

    free: Amounts
    split: Amounts
    """See `HeldZones.split`."""
    spans: Mapping[int, int]
    """Mask of zones -> number of pods that use the memory of these zones together."""

    def after_start(self, held: HeldZones) -> "FreeZones":
        """Return what is free after a pod took `held`, as far as it is free."""
        taken = held.within(self.free)
        return self._moved(taken, -1)

    def after_end(self, held: HeldZones, totals: Amounts) -> "FreeZones":
        """Return what is free after a pod gave `held` back, as far as `totals` has room for it."""
        return self._moved(held.within(totals - self.free), 1)

    def _moved(self, held: HeldZones, sign: int) -> "FreeZones":
        spans = self.spans
        if held.spans:  # seldom, and a copy takes longer than the rest
            changes = Counter(held.spans)
            spans = {
                mask: spans.get(mask, 0) - sign * changes[mask] for mask in {**spans, **changes}
            }
        return FreeZones(self.free + sign * held.amounts, self.split + sign * held.split, spans)


@dataclass(frozen=True)
class Axis:
    """The meaning of the entries of `Amounts`."""

    resources: tuple[str, ...] = ()
    zones: int = 0
    """The most zones that a node has."""

    @cached_property
    def columns(self) -> Mapping[str, int]:
        """Resource -> index."""
        return {name: index for index, name in enumerate(self.resources)}

    @cached_property
    def memory(self) -> tuple[int, ...]:
        """The columns of memory and huge pages."""
        return tuple(index for name, index in self.columns.items() if is_memory(name))

    def amounts(self, zones: Iterable[Counts]) -> Amounts:
        """Return amounts by zone and resource as an array; unknown resources are left out."""
        found = np.zeros((self.zones, len(self.resources)))
        for zone, counts in enumerate(zones):
            for name, amount in counts.items():
                if name in self.columns:
                    found[zone, self.columns[name]] = amount
        return found

    def split(self, node: NodeZones) -> Amounts:
        """Return the split CPUs of `node` as an array."""
        found = np.zeros(self.zones)
        found[: len(node.split)] = node.split
        return found

    def held(self, zones: Iterable[Counts]) -> HeldZones:
        """Return what a pod holds, from the amounts of each zone; its memory is used together."""
        amounts = self.amounts(zones)
        mask = self._memory_zones(amounts)
        return HeldZones(amounts, np.zeros(self.zones), (mask,) if mask & (mask - 1) else ())

    def part(self, zones: Iterable[Counts], spans: tuple[int, ...]) -> HeldZones:
        """Return what a pod holds, from the amounts of each zone and its groups of memory."""
        return HeldZones(self.amounts(zones), np.zeros(self.zones), spans)

    def taken(self, before: NodeZones, after: NodeZones) -> HeldZones:
        """Return what a pod takes that turns `before` into `after`."""
        amounts = self.amounts(before.free) - self.amounts(after.free)
        multiple = {mask for mask in after.groups if mask & (mask - 1)}
        taken = self._memory_zones(amounts)
        spans = tuple(sorted(mask for mask in multiple if mask & taken and taken & (taken - 1)))
        split = self.split(before) - self.split(after)
        return HeldZones(amounts, split, spans, bool(split.any()))

    def fitted(self, held: HeldZones) -> HeldZones:
        """Return `held`, of this axis or of a smaller one, as amounts of this axis."""
        if held.amounts.shape == (self.zones, len(self.resources)):
            return held
        amounts = corner(held.amounts, (self.zones, len(self.resources)))
        return replace(held, amounts=amounts, split=corner(held.split, (self.zones,)))

    def _memory_zones(self, amounts: Amounts) -> int:
        """Return the mask of the zones with memory in `amounts`."""
        return sum(
            1 << zone
            for zone in range(len(amounts))
            if any(amounts[zone, index] > 0 for index in self.memory)
        )


def groups(
    free: Sequence[Sequence[float]],
    totals: Sequence[Sequence[float]],
    memory: Sequence[int],
    spans: Mapping[int, int],
) -> list[int]:
    """Return which zones' memory is used together, and which zones' is used alone.

    See `NodeZones.groups`. `free` and `totals`: by zone and resource. `memory`: columns.
    `spans`: see `FreeZones`.
    """
    found = [0] * len(free)
    for zone, (left, total) in enumerate(zip(free, totals, strict=True)):
        if any(left[column] < total[column] for column in memory):
            found[zone] = 1 << zone
    for mask, count in spans.items():
        for zone in nodes_of(mask) if count > 0 else ():
            found[zone] |= mask
    return found


def corner(old: NDArray[Any], sizes: Sequence[int]) -> NDArray[Any]:
    """Return `old` in the lower corner of a larger array of zeros."""
    new = np.zeros(sizes, dtype=old.dtype)
    new[tuple(slice(size) for size in old.shape)] = old
    return new
