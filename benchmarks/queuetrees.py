"""Trees of queues to divide a cluster among, and what every right division of them fulfils.

Made by `room`. The same number of queues always gives the same tree: names, sizes and wishes come
from a seeded generator.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bindery.scheduler.fairness.division import Amounts, Demand, QueueTree

_LEVELS: Final = (0.01, 0.09, 0.3, 0.6)
"""Parts of all queues by level, from the root down."""
_UNITS: Final = (1.0, 2.0**20, 1.0)
"""Of CPU in milli-cores, memory in bytes, GPUs."""
_SEED: Final = 20260101


@dataclass(frozen=True)
class Division:
    """What `fair_shares` takes. `total`, `unit`: [resource]."""

    tree: QueueTree
    demand: Demand
    total: Amounts
    unit: Amounts
    k_value: float = 1.0


def four_levels(count: int) -> Division:
    """Return `count` queues in four levels; their wishes are several times what there is."""
    random, unit = np.random.default_rng(_SEED), np.array(_UNITS)
    parent = _parents(count)
    tree = QueueTree(
        parent=parent,
        priority=random.choice(np.array([50, 100, 200], dtype=np.int64), count),
        seniority=random.permutation(count).astype(np.int64),
    )
    shape = (len(_UNITS), count)
    request = random.integers(0, 40, shape) * unit[:, None]
    for queue in range(count - 1, -1, -1):  # a parent asks for what all below it ask for
        if parent[queue] >= 0:
            request[:, parent[queue]] += request[:, queue]
    limited = random.random(shape) < 0.2
    demand = Demand(
        quota=np.floor(request / unit[:, None] * random.uniform(0, 0.2, shape)) * unit[:, None],
        weight=random.integers(0, 5, shape).astype(np.float64),
        limit=np.where(limited, np.floor(request / 2), np.inf),
        request=request,
        usage=random.uniform(0, 1 / count, shape),
    )
    roots = parent < 0
    return Division(tree, demand, np.floor(request[:, roots].sum(axis=1) / 3), unit)


def is_right(division: Division, share: Amounts) -> bool:
    """Return whether nobody has more than it wants or less than its quota's part of that, and no
    queue's children have more together than it has itself, beyond their quotas.
    """
    demand, parent = division.demand, division.tree.parent
    wanted = np.minimum(demand.limit, demand.request)
    granted = np.minimum(demand.quota, wanted)
    size = max(1, len(parent))
    tolerance = 1e-6 * division.total[:, None]
    whole = np.concatenate([share, division.total[:, None]], axis=1)
    above = np.where(parent < 0, size, parent)
    together, quotas = np.zeros_like(whole), np.zeros_like(whole)
    np.add.at(together.T, above, share.T)
    np.add.at(quotas.T, above, granted.T)
    return bool(
        (share <= wanted + tolerance).all()
        and (share >= granted - tolerance).all()
        and (together <= np.maximum(whole, quotas) + tolerance).all()
        and (share.sum(axis=1) > 0).all()
    )


def _parents(count: int) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    """Return the parent of each queue, level after level, siblings spread evenly."""
    ends = np.maximum(np.round(np.cumsum(_LEVELS) * count).astype(int), np.arange(4) + 1)
    parent = np.full(count, -1, dtype=np.intp)
    start = 0
    for level, end in enumerate(ends[:-1]):
        below = np.arange(end, ends[level + 1])
        parent[below] = start + (below - end) % (end - start)
        start = end
    return parent
