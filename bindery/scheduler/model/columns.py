"""Growing integer columns: arrays [resource, item] that keep their values as both axes grow."""

import numpy as np
from numpy.typing import NDArray

IntColumns = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]


def grown(columns: IntColumns, resources: int, items: int) -> IntColumns:
    """Return `columns` [resource, item] with room for at least `resources` and `items`.

    The size doubles, so that growing one by one costs constant time on average.
    """
    have_resources, have_items = columns.shape
    if resources <= have_resources and items <= have_items:
        return columns
    wider = np.zeros((_room(have_resources, resources), _room(have_items, items)), dtype=np.int64)
    wider[:have_resources, :have_items] = columns
    return wider


def _room(have: int, need: int) -> int:
    return have if need <= have else max(need, 2 * have, 8)
