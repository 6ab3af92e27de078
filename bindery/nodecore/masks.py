"""Sets of NUMA nodes as bit masks: bit n stands for the node with id n, from 0 to 63."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final

from bindery.nodecore.errors import ConfigurationError

HIGHEST_ID: Final = 63


def mask_of(nodes: Iterable[int]) -> int:
    """Return the mask of `nodes`; raises ConfigurationError if an id is not between 0 and 63."""
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


def narrowness(mask: int) -> tuple[int, int]:
    """Return a sort key: the number of nodes, then the mask as a number."""
    return mask.bit_count(), mask


def sums(values: Mapping[int, int]) -> dict[int, int]:
    """Return the sum of `values` over every set of nodes but the empty one, small sets first."""
    nodes = tuple(sorted(values))
    found = [0]
    for node in nodes:
        value = values[node]
        found += [value + other for other in found]
    return {mask: found[place] for mask, place in _places(nodes)}


def iterate(nodes: Sequence[int]) -> Iterator[int]:
    """Yield the mask of every subset of `nodes` but the empty one, small subsets first."""
    yield from _subsets(tuple(nodes))


@lru_cache(maxsize=64)
def _subsets(nodes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        mask_of(subset) for size in range(1, len(nodes) + 1) for subset in combinations(nodes, size)
    )


@lru_cache(maxsize=64)
def _places(nodes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return each mask of `_subsets` with the same set as a mask over the places in `nodes`."""
    place_of = {node: place for place, node in enumerate(nodes)}
    return tuple(
        (mask, sum(1 << place_of[node] for node in nodes_of(mask))) for mask in _subsets(nodes)
    )
