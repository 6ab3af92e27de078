"""Tables over all subsets of a machine's NUMA nodes: row m is about the nodes of mask m.

With sums over supersets, the ANDs of two sets of masks are a product, and not a loop over pairs
(`docs/decisions/032-nodecore.md`). A table may have further axes, which are independent.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Sums = NDArray[np.signedinteger[Any]]


def all_ands(tables: Sequence[NDArray[np.bool_]], nodes: int) -> NDArray[np.bool_]:
    """Return where a mask is the AND of one mask of each table; bool [2^nodes, ...].

    Args:
        tables: at least one; bool [2^nodes, ...].
        nodes: how many NUMA nodes there are, at most 31.
    """
    # At most as many pairs have an AND as there are pairs: 2^(2 nodes).
    dtype: type[np.signedinteger[Any]] = np.int32 if nodes < 16 else np.int64
    reached = tables[0]
    for table in tables[1:]:
        sums = _superset_sums(reached.astype(dtype), nodes)
        sums *= _superset_sums(table.astype(dtype), nodes)
        for absent, present in _halves(sums, nodes):
            np.subtract(absent, present, out=absent)
        reached = sums > 0
    return reached


def _superset_sums(table: _Sums, nodes: int) -> _Sums:
    """Replace each row by the sum of the rows of its supersets; return the table."""
    for absent, present in _halves(table, nodes):
        np.add(absent, present, out=absent)
    return table


def _halves(table: _Sums, nodes: int) -> Sequence[tuple[_Sums, _Sums]]:
    """Return for each node views of the subsets without and with it."""
    cube = table.reshape((2,) * nodes + table.shape[1:])
    before: list[tuple[Any, ...]] = [(slice(None),) * axis for axis in range(nodes)]
    return [(cube[(*axes, 0, ...)], cube[(*axes, 1, ...)]) for axes in before]
