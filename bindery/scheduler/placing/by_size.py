"""The order of pods by size, for gangs that do not fit in the order of their pods.

A small pod may take the only room of a large one. So the largest pods go first in a second attempt.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.resources import total


def largest_part(tasks: Iterable[Task], cluster_total: NDArray[np.int64]) -> float:
    """Return the largest part of the cluster that `tasks` request together of any resource."""
    amounts = total(task.shape.request.on_nodes for task in tasks)
    return max((n / max(int(cluster_total[at]), 1) for at, n in amounts.items()), default=0.0)


def largest_first(tasks: Sequence[Task], cluster_total: NDArray[np.int64]) -> Sequence[Task]:
    """Return `tasks`, the largest first; empty if they are in such an order already."""
    shapes = {task.shape for task in tasks}
    if len(shapes) < 2:
        return ()
    part = dict.fromkeys(shapes, 0.0)
    for task in tasks:
        part[task.shape] = part[task.shape] or largest_part([task], cluster_total)
    parts = [part[task.shape] for task in tasks]
    if all(one >= other for one, other in pairwise(parts)):
        return ()
    return sorted(tasks, key=lambda task: -part[task.shape])
