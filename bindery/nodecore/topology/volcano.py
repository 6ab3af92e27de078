"""The rules of Volcano's plugin numa-aware, which differ from those of today's kubelet.

Volcano merges hints as kubelets did before 1.24: a combination is preferred if all its hints are,
whether or not their masks are equal. Of the other combinations, the narrowest wins. Predictions use
the kubelet's rules (`merge`); the rules here return Volcano's decision.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bindery.nodecore import masks
from bindery.nodecore.masks import narrowness
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.hints import Hint, ProviderHints
from bindery.nodecore.topology.merge import filtered, reachable
from bindery.nodecore.topology.numa import NumaInfo
from bindery.nodecore.topology.policies import Merged

HIGHEST_SCORE: Final = 100
MOST_DEVICE_NODES: Final = 16


def merge_hints(policy: str, numa: NumaInfo, providers: Iterable[ProviderHints]) -> Merged:
    """Return the best hint by Volcano's policy of this name, and whether the node is possible.

    Raises:
        ConfigurationError: there is no such policy.
    """
    policies.check_name(policy)
    if policy == policies.NONE:
        return Merged(Hint(None, preferred=False), admit=True)
    resources = filtered(providers)
    if policy == policies.SINGLE_NUMA_NODE:
        resources = policies.single_node_only(resources)
    best = merge(numa, resources)
    return Merged(best, admit=policy == policies.BEST_EFFORT or best.preferred)


def merge(numa: NumaInfo, resources: Sequence[Sequence[Hint]]) -> Hint:
    """Return the narrowest preferred combination of one hint of each resource, else the narrowest.

    Without any combination that has a node, the result is all nodes, not preferred.
    """
    for preferred in (True, False):
        choices = [
            [hint for hint in hints if hint.preferred or not preferred] for hints in resources
        ]
        found = reachable(numa, choices) if all(choices) else []
        if found:
            return Hint(min(found, key=narrowness), preferred)
    return Hint(numa.everything, preferred=False)


def device_hints(free: Mapping[int, int], count: int) -> list[Hint] | None:
    """Return the hints for devices; the smallest sets of nodes that have so many are preferred.

    None, which is no preference, on machines with more than 16 NUMA nodes that have devices.
    """
    if len(free) > MOST_DEVICE_NODES:
        return None
    found = [mask for mask, devices in masks.sums(free).items() if devices >= count]
    fewest = min((mask.bit_count() for mask in found), default=0)
    return [Hint(mask, mask.bit_count() == fewest) for mask in found]


def scores(zones: Mapping[str, int]) -> dict[str, int]:
    """Return the score of each node, from 0 to 100: fewer `zones` are better."""
    most = max(zones.values(), default=0)
    if most == 0:
        return dict.fromkeys(zones, HIGHEST_SCORE)
    return {node: HIGHEST_SCORE - HIGHEST_SCORE * count // most for node, count in zones.items()}
