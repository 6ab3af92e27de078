"""The two-phase division of a cluster among a tree of queues.

Phase 1 gives every queue its quota, up to its requests. Phase 2 divides the rest by over-quota
weight, one priority after the other, highest first. It works in rounds: a queue that wants less
than its slice gets what it wants, and the rest is divided again. Children divide the share of their
parent. The formulas are KAI-Scheduler's (v0.17, plugins/proportion/resource_division), with the
time-based term. Unlike there, a priority gives out its leftovers before the next lower one divides:
a lower priority gets nothing that a higher one still wants. All sibling groups of one depth, and
all resources, are divided at once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Amounts = NDArray[np.float64]
"""[resource, queue], in ledger units."""

_DIGITS = 9
"""Decimal digits of slices in units; smaller differences are floating-point errors."""


@dataclass(frozen=True)
class QueueTree:
    """The queues as a tree. All arrays are over queues, in any order.

    `parent`: int, position of the parent, -1 under the root. `priority`: int. `seniority`: int,
    smaller is older (ties of age broken by UID already); it decides about leftovers.
    """

    parent: NDArray[np.intp]
    priority: NDArray[np.int64]
    seniority: NDArray[np.int64]

    def depths(self) -> NDArray[np.intp]:
        """Return the depth of each queue, 0 under the root; raises ValueError on a cycle."""
        depth = np.zeros(len(self.parent), dtype=np.intp)
        ancestor = self.parent.copy()
        for _ in range(len(self.parent) + 1):
            below = ancestor >= 0
            if not below.any():
                return depth
            depth += below
            ancestor = np.where(below, self.parent[ancestor], -1)
        raise ValueError("the queues' parents form a cycle")


@dataclass(frozen=True)
class Demand:
    """The rules and requests of the queues; every array is [resource, queue].

    `quota`, `limit`: UNLIMITED where there is none. `weight`: over-quota weight, >= 0. `request`:
    allocated and pending, with all queues below. `usage`: past usage as a part of capacity.
    """

    quota: Amounts
    weight: Amounts
    limit: Amounts
    request: Amounts
    usage: Amounts


def fair_shares(
    tree: QueueTree, demand: Demand, total: Amounts, unit: Amounts, k_value: float
) -> Amounts:
    """Return the fair share of each queue [resource, queue].

    Args:
        tree: the queues.
        demand: their rules and requests.
        total: [resource] the amounts to divide.
        unit: [resource] the smallest amount that phase 2 gives: one device, one milli-core.
        k_value: how strongly past usage counts; no effect while nothing has been used.
    """
    share = np.zeros_like(demand.request)
    depth = tree.depths()
    for level in range(int(depth.max(initial=-1)) + 1):
        members = np.flatnonzero(depth == level)
        members = members[np.argsort(tree.parent[members], kind="stable")]
        parents = tree.parent[members]
        group_of, group = np.unique(parents, return_inverse=True)
        available = np.where(group_of >= 0, share[:, group_of], total[:, None])
        share[:, members] = _Level(tree, demand, members, group, unit, k_value).divide(available)
    return share


class _Level:
    """All queues of one depth. `group`: number of the sibling group of each, ascending."""

    def __init__(
        self,
        tree: QueueTree,
        demand: Demand,
        members: NDArray[np.intp],
        group: NDArray[np.intp],
        unit: Amounts,
        k_value: float,
    ) -> None:
        self._group = group
        self._starts = np.searchsorted(group, np.arange(int(group[-1]) + 1))
        self._priority = tree.priority[members]
        self._seniority = tree.seniority[members]
        self._quota = demand.quota[:, members]
        self._weight = demand.weight[:, members]
        self._wanted = np.minimum(demand.limit[:, members], demand.request[:, members])
        self._usage = demand.usage[:, members]
        self._unit = unit[:, None]
        self._k_value = k_value

    def divide(self, available: Amounts) -> Amounts:
        """Return [resource, member]; `available`: [resource, group]."""
        # An unlimited quota would take more than there is: it is cut to the group's amount.
        quota = np.minimum(self._quota, available[:, self._group])
        share = np.minimum(np.where(np.isinf(self._quota), quota, self._quota), self._wanted)
        left = np.maximum(available - self._sum(share), 0.0)
        for bucket in self._buckets():
            left = self._divide_bucket(share, left, bucket)
        return share

    def _buckets(self) -> list[NDArray[np.bool_]]:
        """Return masks of members by rank of their priority among siblings, highest first."""
        order = np.lexsort((-self._priority, self._group))
        group, priority = self._group[order], self._priority[order]
        new_group = np.r_[True, group[1:] != group[:-1]]
        new_rank = new_group | np.r_[True, priority[1:] != priority[:-1]]
        running = np.cumsum(new_rank)
        first = np.maximum.accumulate(np.where(new_group, running, 0))
        rank = np.empty(len(order), dtype=np.intp)
        rank[order] = running - first
        return [rank == r for r in range(int(rank.max(initial=-1)) + 1)]

    def _divide_bucket(self, share: Amounts, left: Amounts, bucket: NDArray[np.bool_]) -> Amounts:
        """Divide `left` [resource, group] among the members of `bucket`; return the rest.

        A group gets another round only if a member wanted less than its slice. Otherwise its
        fractions must stay as they are, whatever happens in other groups and resources.
        """
        fraction = np.zeros_like(share)
        goes_on = np.ones(left.shape, dtype=np.bool_)
        while True:
            missing = self._wanted - share
            divisible = (goes_on & (left > 0))[:, self._group]
            asking = bucket & (missing > 0) & (self._weight > 0) & divisible
            if not asking.any():
                break
            # Rounded, so that three thirds are a whole unit.
            in_units = np.round(left[:, self._group] * self._parts(asking) / self._unit, _DIGITS)
            slice_ = in_units * self._unit
            content = asking & (missing <= slice_)
            floored = np.floor(in_units) * self._unit
            given = np.where(content, missing, np.where(asking, floored, 0.0))
            rest = np.round(in_units - np.floor(in_units), _DIGITS)
            fraction = np.where(asking & ~content, rest, fraction)
            share += given
            left = np.maximum(left - self._sum(given), 0.0)
            goes_on = np.logical_or.reduceat(content, self._starts, axis=1)
        return self._give_leftovers(share, left, bucket, fraction)

    def _parts(self, asking: NDArray[np.bool_]) -> Amounts:
        """Return the part of each asking member, from its weight and its past usage."""
        weight = np.where(asking, self._weight, 0.0)
        normal = _ratio(weight, self._sum(weight)[:, self._group])
        corrected = np.maximum(0.0, normal + self._k_value * (normal - self._usage))
        corrected = np.where(asking, corrected, 0.0)
        return _ratio(corrected, self._sum(corrected)[:, self._group])

    def _give_leftovers(
        self, share: Amounts, left: Amounts, bucket: NDArray[np.bool_], fraction: Amounts
    ) -> Amounts:
        """Give leftovers by unit: the largest remembered fraction first, then the older queue."""
        for resource in np.flatnonzero(((fraction > 0) & bucket).any(axis=1)):
            members = np.flatnonzero(bucket & (fraction[resource] > 0))
            order = np.lexsort(
                (self._seniority[members], -fraction[resource, members], self._group[members])
            )
            members = members[order]
            group = self._group[members]
            missing = self._wanted[resource, members] - share[resource, members]
            wish = np.minimum(missing, self._unit[resource, 0])
            # Each gets what is left after the wishes before it in its own group.
            before = np.cumsum(wish) - wish
            before -= before[np.searchsorted(group, group)]
            gift = np.clip(left[resource, group] - before, 0.0, wish)
            share[resource, members] += gift
            np.subtract.at(left[resource], group, gift)
        return left

    def _sum(self, amounts: Amounts) -> Amounts:
        """Return [resource, group]: the sums of [resource, member]."""
        return np.add.reduceat(amounts, self._starts, axis=1)


def _ratio(part: Amounts, whole: Amounts) -> Amounts:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
