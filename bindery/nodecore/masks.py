"""Sets of NUMA nodes as bit masks: bit n stands for the node with id n, from 0 to 63."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final

from bindery.nodecore.errors import ConfigurationError

HIGHEST_ID: Final = 63


def mask_of(nodes: Iterable[int]) -> int:
    """Return the mask of `nodes`.

    Raises:
        ConfigurationError: an id is not between 0 and 63.
    """
    mask = 0
    for node in nodes:
        if not 0 <= node <= HIGHEST_ID:
            raise ConfigurationError("bit number must be in range 0-63")
        mask |= 1 << node
    return mask


@lru_cache(maxsize=8192)
def nodes_of(mask: int) -> tuple[int, ...]:
    """Return the ids in `mask`, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


def is_narrower(mask: int, other: int) -> bool:
    """Return whether `mask` has fewer nodes than `other`, or as many and lower ids."""
    return narrowness(mask) < narrowness(other)


def narrowness(mask: int) -> tuple[int, int]:
    """Return a sort key: the number of nodes, then the mask as a number."""
    return mask.bit_count(), mask


def sums(values: Mapping[int, int]) -> dict[int, int]:
    """Return the sum of `values` over every set of nodes but the empty one, by mask.

    Args:
        values: the value of each node by its id.
    """
    found = {0: 0}
    for mask in iterate(sorted(values)):
        lowest = mask & -mask
        found[mask] = found[mask ^ lowest] + values[lowest.bit_length() - 1]
    del found[0]
    return found


def iterate(nodes: Sequence[int]) -> Iterator[int]:
    """Yield the mask of every subset of `nodes` but the empty one, small subsets first."""
    yield from _subsets(tuple(nodes))


@lru_cache(maxsize=64)
def _subsets(nodes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        mask_of(subset) for size in range(1, len(nodes) + 1) for subset in combinations(nodes, size)
    )
