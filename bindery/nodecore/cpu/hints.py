"""On which NUMA nodes a container or pod can have its CPUs."""

from bindery.nodecore import masks
from bindery.nodecore.cpu.requests import (
    check_shared_pool,
    exclusive_cpus,
    exclusive_cpus_of_pod,
)
from bindery.nodecore.cpu.state import CpuState
from bindery.nodecore.cpu.static import ReusableCpus, StaticPolicy, is_unmanaged
from bindery.nodecore.cpusets import EMPTY, CpuSet
from bindery.nodecore.errors import EmptyPodSharedPoolError
from bindery.nodecore.pods import CPU, Container, Pod
from bindery.nodecore.topology.hints import Hint, ProviderHints, hint


def container_hints(
    policy: StaticPolicy,
    state: CpuState,
    reusable: ReusableCpus,
    pod: Pod,
    container: Container,
) -> ProviderHints:
    """Return the hints for a container, None if it is to have no CPUs for itself."""
    count = exclusive_cpus(pod, container, policy.features)
    if count == 0 or is_unmanaged(policy, pod):
        return None
    present = state.cpus(pod.uid, container.name)
    if present is None:
        return {CPU: generate(policy, policy.available(state), reusable.of(pod), count)}
    if len(present) != count:
        return {CPU: []}
    return {CPU: generate(policy, present, EMPTY, count)}


def pod_hints(
    policy: StaticPolicy, state: CpuState, reusable: ReusableCpus, pod: Pod
) -> ProviderHints:
    """Return the hints for a pod as a whole, None if it is to have no CPUs for itself."""
    features = policy.features
    count = exclusive_cpus_of_pod(pod, features)
    if count == 0 or is_unmanaged(policy, pod):
        return None
    if features.pod_level_resource_managers and pod.has_pod_level_resources:
        try:
            check_shared_pool(pod, features)
        except EmptyPodSharedPoolError:
            return {CPU: []}
    present = EMPTY
    for container in pod.all_containers:
        cpus = state.cpus(pod.uid, container.name)
        if cpus is None:
            continue
        if len(cpus) != exclusive_cpus(pod, container, features):
            return {CPU: []}
        present |= cpus
    if len(present) == count:
        return {CPU: generate(policy, present, EMPTY, count)}
    reused = reusable.of(pod) | present
    return {CPU: generate(policy, policy.available(state), reused, count)}


def generate(policy: StaticPolicy, available: CpuSet, reusable: CpuSet, count: int) -> list[Hint]:
    """Return a hint for each set of NUMA nodes that has room for `count` CPUs.

    All reusable CPUs must lie in the set. A hint is preferred if no smaller set could ever have
    room, counting all CPUs of the machine.
    """
    numa = policy.topology.numa
    details = policy.topology.details
    needed = masks.mask_of({details[cpu].numa for cpu in reusable})
    totals = masks.sums({node: len(cpus) for node, cpus in numa.items()})
    free = masks.sums({node: len(cpus & available) for node, cpus in numa.items()})
    fewest = next((mask.bit_count() for mask, cpus in totals.items() if cpus >= count), len(numa))
    room = count - len(reusable)
    found = [mask for mask, cpus in free.items() if cpus >= room and not needed & ~mask]
    return [hint(mask, _is_preferred(policy, mask, fewest)) for mask in found]


def _is_preferred(policy: StaticPolicy, mask: int, fewest: int) -> bool:
    if mask.bit_count() == fewest:
        return True
    if not policy.options.align_by_socket:
        return False
    per_socket = policy.topology.num_numa // policy.topology.num_sockets
    sockets = len(policy.topology.sockets_of(masks.nodes_of(mask)))
    return per_socket > 0 and sockets == -(-fewest // per_socket)
