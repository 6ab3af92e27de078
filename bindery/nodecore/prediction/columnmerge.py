"""The topology manager's choice for many nodes at once.

A preferred choice is a mask that every resource prefers. Preferred hints of a resource have all as
many zones, so that only masks of one size are tried for a node. `topology/merge.py` explains the
choices that are not preferred.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.pods import CPU
from bindery.nodecore.prediction.arrays import POLICIES, Floats
from bindery.nodecore.prediction.columnhints import SINGLE, ColumnHints, Counted, Memory
from bindery.nodecore.prediction.columns import (
    Bools,
    Columns,
    Masks,
    blocks,
    by_narrowness,
    of_size,
)
from bindery.nodecore.prediction.requests import Wanted
from bindery.nodecore.topology.hints import Hint
from bindery.nodecore.topology.merge import order
from bindery.nodecore.topology.policies import BEST_EFFORT, NONE
from bindery.nodecore.topology.subsets import all_ands

_NONE = POLICIES.index(NONE)
_BEST_EFFORT = POLICIES.index(BEST_EFFORT)


@dataclass(frozen=True)
class Decisions:
    """The choice for each of n nodes. `masks`: uint8 [n]; 0 is no preference."""

    masks: Masks
    preferred: Bools
    admit: Bools


def decide(columns: Columns, wanted: Wanted) -> Decisions:
    """Return the topology manager's choice for what is `wanted`."""
    hints = _hints(columns, wanted)
    has_policy = columns.policy != _NONE
    no_preference = np.ones(columns.size, np.bool_)
    for resource in hints:
        no_preference &= ~resource.active
    masks = _preferred(columns, hints, has_policy & ~no_preference)
    masks[has_policy & no_preference] = columns.everything
    preferred: Bools = masks != 0
    others = np.flatnonzero((columns.policy == _BEST_EFFORT) & ~preferred)
    for some in blocks(others):
        masks[some] = _reachable(columns, hints, some)
    masks[(columns.policy == SINGLE) & (masks == columns.everything)] = 0
    admit = preferred | ~has_policy | (columns.policy == _BEST_EFFORT)
    return Decisions(masks, preferred, admit)


def _hints(columns: Columns, wanted: Wanted) -> list[ColumnHints]:
    hints: list[ColumnHints] = [
        Counted(columns, name, count)
        for name, count in wanted.devices.items()
        if columns.placed[name].any()
    ]
    if wanted.cpus and columns.placed[CPU].any():
        hints.append(Counted(columns, CPU, wanted.cpus))
    if wanted.memory and columns.has_static_memory.any():
        hints.append(Memory(columns, wanted.memory))
    return hints


def _preferred(columns: Columns, hints: Sequence[ColumnHints], asked: Bools) -> Masks:
    """Return the best mask that all resources prefer, 0 where there is none."""
    found = np.zeros(columns.size, np.uint8)
    sizes = _common_size(columns, hints)
    sizes[~asked | ((columns.policy == SINGLE) & (sizes != 1))] = 0
    nearest: Floats | None = None
    for size in range(1, columns.zones + 1):
        of_this = sizes == size
        if not of_this.any():
            continue
        for mask in of_size(columns.zones, size):
            fits = of_this.copy()
            for resource in hints:
                fits &= resource.has(mask) | ~resource.active
            distance = columns.mean_distance(mask, SINGLE) if size > 1 else None
            if distance is None:
                found[fits & (found == 0)] = mask
            else:
                if nearest is None:
                    nearest = np.full(columns.size, np.inf)
                better = fits & (distance < nearest)
                found[better] = mask
                nearest[better] = distance[better]
    return found


def _common_size(columns: Columns, hints: Sequence[ColumnHints]) -> NDArray[np.int64]:
    """Return how many zones the preferred hints of all resources have, 0 where they differ."""
    least = np.full(columns.size, columns.zones + 1)
    most = np.zeros(columns.size, np.int64)
    for resource in hints:
        least = np.where(resource.active, np.minimum(least, resource.fewest), least)
        most = np.where(resource.active, np.maximum(most, resource.fewest), most)
    return np.where(least == most, most, 0)


def _reachable(columns: Columns, hints: Sequence[ColumnHints], nodes: NDArray[np.intp]) -> Masks:
    """Return the best AND of one hint of each resource, for the columns `nodes`."""
    tables = [resource.table(nodes) & resource.active[nodes] for resource in hints]
    fewest = np.zeros(len(nodes), np.uint8)
    for table in tables:
        zones = _fewest_zones(columns, table)
        table[columns.everything] |= zones == 0
        np.maximum(fewest, zones, out=fewest)
    reached = all_ands(tables, columns.zones)
    return _nearest(columns, reached, _best(columns, reached, fewest), nodes)


def _fewest_zones(columns: Columns, table: Bools) -> NDArray[np.uint8]:
    """Return with how many zones the narrowest hint of each column is, 0 without any hint."""
    counts = np.bitwise_count(np.arange(len(table), dtype=np.uint8))
    weights = np.uint8(columns.zones + 1) - counts  # the narrowest has the largest
    largest: NDArray[np.uint8] = (table.view(np.uint8) * weights[:, None]).max(axis=0)
    return np.where(largest > 0, np.uint8(columns.zones + 1) - largest, np.uint8(0))


def _best(columns: Columns, reached: Bools, fewest: NDArray[np.uint8]) -> Masks:
    """Return the best of the masks in `reached`, without distances; all zones without any."""
    best = np.full(len(fewest), columns.everything, np.uint8)
    for count in range(columns.zones + 1):
        of_this = fewest == count
        if of_this.any():
            weights, masks = _order(columns.zones, count)
            largest = (reached.view(np.uint8) * weights[:, None]).max(axis=0)
            np.copyto(best, masks[largest], where=of_this)
    return best


@lru_cache(maxsize=128)
def _order(zones: int, fewest: int) -> tuple[NDArray[np.uint8], Masks]:
    """Return the weight of each mask and the mask of each weight; the best has the largest.

    The empty mask has the weight 0, which stands for all zones.
    """
    hints = [Hint(mask, preferred=False) for mask in by_narrowness(zones)]
    ordered = [hint.mask or 0 for hint in sorted(hints, key=lambda one: order(one, fewest))]
    masks = np.array([len(ordered), *reversed(ordered)], np.uint8)
    weights = np.zeros(len(masks), np.uint8)
    weights[masks[1:]] = np.arange(1, len(masks))
    return weights, masks


def _nearest(columns: Columns, reached: Bools, best: Masks, nodes: NDArray[np.intp]) -> Masks:
    """Return the nearest of the masks in `reached` that have as many zones as the best.

    `reached`: bool [2^Z, m]. `best`: uint8 [m]. `nodes`: the m columns that are asked.
    """
    if not columns.has_distances:
        return best
    found, counts = best.copy(), np.bitwise_count(best)
    nearest = np.full(len(nodes), np.inf)
    for mask in by_narrowness(columns.zones):
        fits = reached[mask] & (counts == mask.bit_count())
        distance = columns.mean_distance(mask, SINGLE, nodes) if fits.any() else None
        if distance is not None:
            better = fits & (distance < nearest)
            found[better] = mask
            nearest[better] = distance[better]
    return found
