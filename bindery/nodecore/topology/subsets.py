"""Tables over all subsets of a machine's NUMA nodes: row m is about the nodes of mask m.

With sums over supersets, the ANDs of sets of masks are a product, and not a loop over combinations
(`docs/decisions/032-nodecore.md`). A table may have further axes, which are independent.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_Sums = NDArray[np.unsignedinteger[Any]]

_PRODUCT_BITS: Final = 32
"""As many tables are combined at once as have products of so many bits: four for eight nodes."""


def all_ands(tables: Sequence[NDArray[np.bool_]], nodes: int) -> NDArray[np.bool_]:
    """Return where a mask is the AND of one mask of each table; bool [2^nodes, ...].

    The empty mask counts in no table, and its row in the result has no meaning. `tables`: at least
    one; bool [2^nodes, ...]. `nodes`: at most 31.
    """
    reached, left = tables[0], list(tables[1:])
    at_once = max(1, _PRODUCT_BITS // nodes - 1)
    while left:
        some, left = left[:at_once], left[at_once:]
        # A table has at most 2^nodes - 1 masks, so a sum has `nodes` bits, and a product this many:
        products = _superset_sums(reached, nodes).astype(_unsigned(nodes * (1 + len(some))))
        for table in some:
            np.multiply(products, _superset_sums(table, nodes), out=products)
        for absent, present in _halves(products, nodes):
            np.subtract(absent, present, out=absent)
        reached = products > 0
    return reached


def _superset_sums(table: NDArray[np.bool_], nodes: int) -> _Sums:
    """Return for each row the sum of the rows of its supersets, without the empty mask."""
    sums: _Sums = table.astype(_unsigned(nodes))
    sums[0] = 0
    for absent, present in _halves(sums, nodes):
        np.add(absent, present, out=absent)
    return sums


def _unsigned(bits: int) -> np.dtype[Any]:
    """Return the smallest type for unsigned numbers with so many bits."""
    return np.min_scalar_type((1 << bits) - 1)


def _halves(table: _Sums, nodes: int) -> Sequence[tuple[_Sums, _Sums]]:
    """Return for each node views of the subsets without and with it."""
    cube = table.reshape((2,) * nodes + table.shape[1:])
    before: list[tuple[Any, ...]] = [(slice(None),) * axis for axis in range(nodes)]
    return [(cube[(*axes, 0, ...)], cube[(*axes, 1, ...)]) for axes in before]
