"""The order in which pods fill the parts of a domain: as few parts as possible, level by level."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.trees import NOWHERE
from bindery.scheduler.model.verdicts import Rows

_STEP = 1e8
"""Above all scores of plugins."""


def bonus(
    columns: Sequence[NDArray[np.intp]], fits: NDArray[np.int64], need: int, beside: Rows
) -> NDArray[np.float64] | None:
    """Return node row -> bonus, so that `need` pods fill the best parts first; None if none count.

    `columns`: node row -> part, for each deeper level of the tree, widest first. `fits`: node row
    -> pods that fit there. `beside`: rows of pods that the others should be near.
    """
    places: list[NDArray[np.intp]] = []
    for column in columns:
        inside = (column != NOWHERE) & (fits > 0)
        parts = np.unique(column[inside])
        if len(parts) < 2 or len(parts) == np.count_nonzero(inside):
            continue  # one part has it all, or each node is a part: other scores decide
        sums = np.bincount(column[inside], fits[inside]).astype(np.int64)
        near = np.bincount(column[beside][column[beside] != NOWHERE], minlength=len(sums))
        order = _in_order(parts, sums, near, need)
        # NOWHERE is -1: the last entry, behind all parts.
        place = np.full(len(sums) + 1, len(order), dtype=np.intp)
        place[order] = np.arange(len(order))
        places.append(place[np.where(column < len(sums), column, NOWHERE)])
    if not places:
        return None
    # The widest level counts most; equal places share a number.
    _, numbers = np.unique(np.stack(places), axis=1, return_inverse=True)
    numbers = numbers.reshape(-1)
    return np.asarray((int(numbers.max()) - numbers) * _STEP)


def _in_order(
    parts: NDArray[np.intp], sums: NDArray[np.int64], near: NDArray[np.intp], need: int
) -> NDArray[np.intp]:
    """Return `parts` in the order in which `need` pods fill the fewest of them.

    First those with pods that the others should be near; then the largest, until one of the others
    takes all that is left: the smallest of these.
    """
    order = parts[np.lexsort((parts, -sums[parts], -near[parts]))]
    left, sizes = need, sums[order]
    for position, size in enumerate(sizes.tolist()):
        if not near[order[position]] and size >= left:
            # Sizes fall from here on; the first of the smallest that suffice.
            smallest = sizes[position:][sizes[position:] >= left][-1]
            at = position + int((sizes[position:] == smallest).argmax())
            return np.concatenate(
                [order[:position], order[at : at + 1], order[position:at], order[at + 1 :]]
            )
        left -= size
        if left <= 0:
            break
    return order
