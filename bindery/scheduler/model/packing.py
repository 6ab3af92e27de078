"""Packing the pods of a gang into given room on nodes, without changing any state.

Used for reservations, whose room becomes free later. The packing is greedy, in a given order, so
the same room gives the same nodes. If pods differ, it may miss an existing solution.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.resources import Request


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One pod. Equal pods share `rows`."""

    request: Request
    rows: NDArray[np.intp]
    """The possible node rows, in order of preference."""


def pack(items: Sequence[Item], room: IntColumns) -> list[int] | None:
    """Return a node row for each of `items`: the first row with `room` [resource, node] left.

    None means that not all items fit.
    """
    left, rows = room.copy(), list[int]()
    for item in items:
        fits = np.ones(len(item.rows), dtype=np.bool_)
        for index, amount in zip(item.request.indices, item.request.amounts, strict=True):
            fits &= left[index, item.rows] >= amount
        at = int(fits.argmax()) if len(fits) else 0  # argmax of an empty array raises
        if not len(fits) or not fits[at]:
            return None
        rows.append(_take(item, at, left))
    return rows


def pack_with_shortfall(
    items: Sequence[Item], room: IntColumns, most: IntColumns
) -> list[int] | None:
    """Return a node row for each of `items`: the row with the smallest shortfall.

    `room` is free now or later; `most` would be free if all pods left. Both are [resource, node].
    None means that the items do not fit even into `most`.
    """
    left, at_most, rows = room.copy(), most.copy(), list[int]()
    for item in items:
        lacks = shortfalls(item, left, at_most)
        at = int(lacks.argmin()) if len(lacks) else 0
        if not len(lacks) or np.isinf(lacks[at]):
            return None
        row = _take(item, at, left)
        at_most[list(item.request.indices), row] -= item.request.amounts
        rows.append(row)
    return rows


def shortfalls(item: Item, left: IntColumns, most: IntColumns) -> NDArray[np.float64]:
    """Return the missing share of the request of `item` on each of its rows.

    Infinite where even `most` is too little. `left`, `most`: [resource, node].
    """
    lacks = np.zeros(len(item.rows))
    for index, amount in zip(item.request.indices, item.request.amounts, strict=True):
        here = np.maximum(left[index, item.rows], 0)
        lacks += np.maximum(amount - here, 0) / amount
        # No departure of pods makes this node large enough.
        lacks[most[index, item.rows] < amount] = np.inf
    return lacks


def _take(item: Item, at: int, left: IntColumns) -> int:
    """Subtract `item` from `left` on its possible row number `at`; return the row."""
    row = int(item.rows[at])
    left[list(item.request.indices), row] -= item.request.amounts
    return row
