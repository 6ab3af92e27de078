"""The rules of Volcano's plugin numa-aware, which differ from those of today's kubelet.

Volcano merges hints as kubelets did before 1.24: a combination is preferred if all its hints are,
whether or not their masks are equal, and of those that are not the narrowest wins. Predictions use
the kubelet's rules (`merge`); these show what Volcano would have decided.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bindery.nodecore import masks
from bindery.nodecore.cpu.hints import generate as cpu_hints_of
from bindery.nodecore.cpu.packed import take_packed
from bindery.nodecore.cpu.static import StaticPolicy
from bindery.nodecore.cpu.topology import CpuTopology
from bindery.nodecore.cpusets import EMPTY, CpuSet
from bindery.nodecore.errors import AllocationError
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


def cpu_hints(
    topology: CpuTopology, available: CpuSet, count: int, reserved: CpuSet = EMPTY
) -> list[Hint] | None:
    """Return the hints for whole CPUs of a container; None, which is no preference, for none.

    Args:
        topology: the CPUs of the machine.
        available: the CPUs that no container has.
        count: how many the container requests; its QoS class does not matter.
        reserved: the CPUs that are kept for the system.
    """
    if count == 0:
        return None
    policy = StaticPolicy(topology, reserved)
    return cpu_hints_of(policy, available - reserved, EMPTY, count)


def take_cpus(
    topology: CpuTopology,
    available: CpuSet,
    count: int,
    mask: int | None = None,
    reserved: CpuSet = EMPTY,
) -> CpuSet:
    """Return the CPUs of a container: those near `mask` first; none if there are not so many.

    They are taken as the kubelet takes them (`cpu.packed`).

    Args:
        topology: the CPUs of the machine.
        available: the CPUs that no container has.
        count: how many are needed.
        mask: the NUMA nodes of the best hint, None for any.
        reserved: the CPUs that are kept for the system.
    """
    left = available - reserved
    near = left if mask is None else left & topology.cpus_in(masks.nodes_of(mask))
    try:
        taken = take_packed(topology, near, min(count, len(near)))
        return taken | take_packed(topology, left - taken, count - len(taken))
    except AllocationError:
        return EMPTY


def device_hints(free: Mapping[int, int], count: int) -> list[Hint] | None:
    """Return the hints for devices; the smallest sets of nodes that have so many are preferred.

    None, which is no preference, on machines with more than 16 NUMA nodes that have devices.

    Args:
        free: NUMA node -> free devices.
        count: how many are needed.
    """
    if len(free) > MOST_DEVICE_NODES:
        return None
    found = [mask for mask, devices in masks.sums(free).items() if devices >= count]
    fewest = min((mask.bit_count() for mask in found), default=0)
    return [Hint(mask, mask.bit_count() == fewest) for mask in found]


def scores(zones: Mapping[str, int]) -> dict[str, int]:
    """Return the score of each node, from 0 to 100: fewer zones are better.

    Args:
        zones: node -> how many zones the pod would get there.
    """
    most = max(zones.values(), default=0)
    if most == 0:
        return dict.fromkeys(zones, HIGHEST_SCORE)
    return {node: HIGHEST_SCORE - HIGHEST_SCORE * count // most for node, count in zones.items()}
