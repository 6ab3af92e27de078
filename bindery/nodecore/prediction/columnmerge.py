"""The topology manager's choice for many nodes at once.

A preferred choice is a mask that every resource prefers. Preferred hints of a resource have all as
many zones, so that only masks of one size are tried for a node. `topology/merge.py` explains the
choices that are not preferred.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.pods import CPU
from bindery.nodecore.prediction.arrays import POLICIES, Floats
from bindery.nodecore.prediction.columnhints import SINGLE, ColumnHints, Counted, Memory
from bindery.nodecore.prediction.columns import Bools, Columns, Masks, by_narrowness, of_size
from bindery.nodecore.prediction.requests import Wanted
from bindery.nodecore.topology.policies import BEST_EFFORT, NONE
from bindery.nodecore.topology.subsets import all_ands

_NONE = POLICIES.index(NONE)
_BEST_EFFORT = POLICIES.index(BEST_EFFORT)

_FEWEST, _FEWER, _MORE = 0, 16, 32
"""Ranks of choices that are not preferred; see `merge.order`."""


@dataclass(frozen=True)
class Decisions:
    """The choice for each of n nodes.

    Attributes:
        masks: uint8 [n]; 0 is no preference.
        preferred: bool [n].
        admit: bool [n].
    """

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
    if len(others):
        masks[others] = _reachable(columns, hints, others)
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
    first, inverse = _distinct(np.concatenate(tables))
    tables = [table[:, first] for table in tables]
    narrow = np.array([0, *by_narrowness(columns.zones)])
    counts = np.bitwise_count(narrow)
    fewest = np.zeros(len(first), np.uint8)
    for table in tables:
        # The first row is the empty mask, which is no hint: without any hint, this is 0.
        fewest = np.maximum(fewest, counts[table[narrow].argmax(axis=0)])
        table[columns.everything] |= ~table.any(axis=0)
    reached = all_ands(tables, columns.zones)
    if columns.has_distances:
        return _best(columns, reached[:, inverse], fewest[inverse], nodes)
    return _best(columns, reached, fewest, nodes[first])[inverse]


def _distinct(table: Bools) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return one column of each kind, and for each column which of these it is like."""
    bits = [table.view(np.uint8)[place::8] for place in range(8)]
    packed = bits[0].copy()
    for place, rows in enumerate(bits):
        packed[: len(rows)] |= rows << np.uint8(place)
    packed = np.ascontiguousarray(packed.T)
    kinds = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, inverse = np.unique(kinds, return_index=True, return_inverse=True)
    return first, inverse


def _best(
    columns: Columns, reached: Bools, fewest: NDArray[np.uint8], nodes: NDArray[np.intp]
) -> Masks:
    """Return the best of the masks in `reached`, all zones where there is none."""
    best = np.full(len(nodes), columns.everything, np.uint8)
    lowest = np.full(len(nodes), 2 * _MORE)
    nearest = np.zeros(len(nodes))
    for mask in by_narrowness(columns.zones):
        count = mask.bit_count()
        if not reached[mask].any():
            continue
        rank = np.where(count < fewest, _FEWER + columns.zones - count, _MORE + count)
        rank[count == fewest] = _FEWEST
        distance = columns.mean_distance(mask, SINGLE)
        near = np.zeros(len(nodes)) if distance is None else distance[nodes]
        better = reached[mask] & ((rank < lowest) | ((rank == lowest) & (near < nearest)))
        best[better] = mask
        lowest[better] = rank[better]
        nearest[better] = near[better]
    return best
