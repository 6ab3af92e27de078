"""How many equal pods fit on each node, by sums of resources: an upper bound."""

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.resources import Request
from bindery.scheduler.model.views import NodesView


def pods_per_node(
    nodes: NodesView, request: Request, room: IntColumns, most: int
) -> NDArray[np.int64]:
    """Return how many pods of `request` fit into `room` [resource, node]; at most `most` a node."""
    fit = np.full(room.shape[1], most, dtype=np.int64)
    for index, amount in nodes.demands(request, np.arange(room.shape[1])):
        free = np.maximum(room[index], 0)
        # A node may serve a resource without counting it; see `NodesView.serves`.
        count = np.where(amount == 0, most, free // np.maximum(amount, 1))
        np.minimum(fit, count, out=fit)
    return fit
