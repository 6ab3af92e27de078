"""Packing pods onto nodes on paper: which nodes a gang would take of some room.

Pure arrays, used for reservations, whose room is yet to come. Greedy and in a given order, so that
the same room gives the same nodes; where pods differ it may miss a way that exists.
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
    """The node rows that may take it, the most wanted first."""


def pack(items: Sequence[Item], room: IntColumns) -> list[int] | None:
    """Return the node row of each of `items`, each on the first with `room` [resource, node] left.

    None: they do not all fit.
    """
    left, rows = room.copy(), list[int]()
    for item in items:
        fits = np.ones(len(item.rows), dtype=np.bool_)
        for index, amount in zip(item.request.indices, item.request.amounts, strict=True):
            fits &= left[index, item.rows] >= amount
        at = int(fits.argmax()) if len(fits) else 0
        if not len(fits) or not fits[at]:
            return None
        rows.append(_take(item, at, left))
    return rows


def pack_with_shortfall(
    items: Sequence[Item], room: IntColumns, most: IntColumns
) -> list[int] | None:
    """Return the node row of each of `items`, each where it lacks the least.

    `room`: what is or will be free, `most`: what could be if everybody went: [resource, node].
    None: even then they do not all fit.
    """
    left, at_most, rows = room.copy(), most.copy(), list[int]()
    for item in items:
        lacks = np.zeros(len(item.rows))
        for index, amount in zip(item.request.indices, item.request.amounts, strict=True):
            here = np.maximum(left[index, item.rows], 0)
            lacks += np.maximum(amount - here, 0) / amount
            lacks[at_most[index, item.rows] < amount] = np.inf
        at = int(lacks.argmin()) if len(lacks) else 0
        if not len(lacks) or np.isinf(lacks[at]):
            return None
        row = _take(item, at, left)
        at_most[list(item.request.indices), row] -= item.request.amounts
        rows.append(row)
    return rows


def _take(item: Item, at: int, left: IntColumns) -> int:
    """Take the room of `item` on its row number `at` from `left`; return the row."""
    row = int(item.rows[at])
    left[list(item.request.indices), row] -= item.request.amounts
    return row
