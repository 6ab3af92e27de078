"""Merging hints: the best set of NUMA nodes for all resources at once.

The kubelet tries every combination of one hint of each resource. The nodes of a combination are the
nodes in all its hints. A combination is preferred if all its hints are preferred and equal. Of all
combinations the best by a fixed order wins, so that only the set of reachable results matters. Here
that set is found without the combinations:

- a preferred result is a mask that every resource prefers (or has no preference about);
- the other results are all ANDs of one mask of each resource (`subsets`).

`docs/decisions/032-nodecore.md` has the reasons. A test compares this with all combinations.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.masks import narrowness
from bindery.nodecore.topology.hints import IMPOSSIBLE, NO_PREFERENCE, Hint, ProviderHints
from bindery.nodecore.topology.numa import NumaInfo
from bindery.nodecore.topology.subsets import all_ands

Key = Callable[[int], Any]
"""Sort key of masks with the better first, when both are preferred."""

_MOST_TABLE_NODES = 16
"""Tables of subsets grow as 2^n. Machines with more NUMA nodes have few hints, or none at all."""


def filtered(providers: Iterable[ProviderHints]) -> list[list[Hint]]:
    """Return the hints of each resource of each provider.

    A resource without preference has one preferred hint for any node; one that cannot be had has
    one hint that is not preferred.
    """
    resources: list[list[Hint]] = []
    for provider in providers:
        if not provider:
            resources.append([NO_PREFERENCE])
            continue
        for hints in provider.values():
            if hints is None:
                resources.append([NO_PREFERENCE])
            else:
                resources.append(list(hints) or [IMPOSSIBLE])
    return resources


def merge(
    numa: NumaInfo, resources: Sequence[Sequence[Hint]], *, prefer_closest: bool = False
) -> Hint:
    """Return the best combination of one hint of each resource.

    Without any combination that has a node, the result is all nodes, not preferred.
    `prefer_closest`: whether distances decide between sets with as many nodes.
    """
    everything = numa.everything
    key: Key = numa.closeness if prefer_closest else narrowness
    if all(resources):
        preferred = _preferred(everything, resources)
        if preferred:
            return Hint(min(preferred, key=key), preferred=True)
        others = [Hint(mask, preferred=False) for mask in reachable(numa, resources)]
        if others:
            fewest = widest_minimum(resources)
            return min(others, key=lambda hint: order(hint, fewest, key))
    return Hint(everything, preferred=False)


def widest_minimum(resources: Sequence[Sequence[Hint]]) -> int:
    """Return the largest of the resources' smallest numbers of nodes, 0 without any mask."""
    counts = [
        min(hint.mask.bit_count() for hint in hints if hint.mask is not None)
        for hints in resources
        if any(hint.mask is not None for hint in hints)
    ]
    return max(counts, default=0)


def order(hint: Hint, fewest: int, key: Key = narrowness) -> tuple[int, int, Any]:
    """Return a sort key of hints with the better first.

    Preferred hints come first. Of the others, the best have as many nodes as the resource that
    needs most; then come smaller sets, of which the larger is better, and then larger sets, of
    which the smaller is better. Hints without a node come last. `fewest`: as `widest_minimum`
    returns it. `key`: the order of masks that are otherwise equal.
    """
    mask = hint.mask or 0
    count = mask.bit_count()
    if count == 0:
        return 4, 0, 0
    if hint.preferred:
        return 0, 0, key(mask)
    if count == fewest:
        return 1, 0, key(mask)
    return (2, -count, key(mask)) if count < fewest else (3, count, key(mask))


def _preferred(everything: int, resources: Sequence[Sequence[Hint]]) -> set[int]:
    """Return the masks of all preferred combinations, without the empty one."""
    preferred = [{hint.mask for hint in hints if hint.preferred} for hints in resources]
    common = {
        mask & everything
        for mask in set().union(*preferred)
        if mask is not None and all(mask in masks or None in masks for masks in preferred)
    }
    if all(None in masks for masks in preferred):
        common.add(everything)
    return common - {0}


def reachable(numa: NumaInfo, resources: Sequence[Sequence[Hint]]) -> list[int]:
    """Return the masks of all combinations, without the empty one."""
    everything = numa.everything
    choices = [
        {everything if hint.mask is None else hint.mask & everything for hint in hints}
        for hints in resources
    ]
    narrow = [masks for masks in choices if masks != {everything}]
    if not narrow:
        return [everything]
    nodes = tuple(sorted(numa.nodes))
    if len(nodes) > _MOST_TABLE_NODES:
        return sorted(reduce(lambda one, other: {a & b for a in one for b in other}, narrow) - {0})
    reached = all_ands([_table(masks, nodes) for masks in narrow], len(nodes))
    dense = [int(mask) for mask in np.flatnonzero(reached)]
    return [_spread(mask, nodes) for mask in dense if mask]


def _table(masks: Iterable[int], nodes: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return a table over all subsets of `nodes`, true at each of `masks`."""
    table = np.zeros(1 << len(nodes), dtype=np.bool_)
    table[[_packed(mask, nodes) for mask in masks]] = True
    return table


@lru_cache(maxsize=8192)
def _packed(mask: int, nodes: tuple[int, ...]) -> int:
    """Return `mask` with the bits of `nodes` moved together."""
    return sum(1 << place for place, node in enumerate(nodes) if mask >> node & 1)


@lru_cache(maxsize=8192)
def _spread(dense: int, nodes: tuple[int, ...]) -> int:
    """Return the mask of which `dense` is the packed form."""
    return sum(1 << node for place, node in enumerate(nodes) if dense >> place & 1)
