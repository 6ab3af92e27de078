"""The static memory policy: Guaranteed pods have their memory on as few NUMA nodes as possible."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bindery.nodecore import masks
from bindery.nodecore.errors import AllocationError, ConfigurationError, StateError
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.machine import Machine
from bindery.nodecore.memory import hints, requests, tables
from bindery.nodecore.memory.state import MemoryState
from bindery.nodecore.numamemory import Block, Blocks
from bindery.nodecore.pods import MEMORY, Container, Pod, QosClass
from bindery.nodecore.topology.hints import Hint, ProviderHints

NAME: Final = "Static"

_ANYWHERE: Final = Hint(None, preferred=False)
_OTHER_MACHINE: Final = "[memorymanager] the expected machine state is different from the real one"


@dataclass(frozen=True)
class StaticMemoryPolicy:
    """The settings of the static memory policy on a machine.

    Attributes:
        reserved: NUMA node -> resource -> bytes that are kept for the system.

    Raises:
        ConfigurationError: no memory is reserved.
    """

    machine: Machine
    reserved: tables.Reserved
    features: Features = DEFAULT

    def __post_init__(self) -> None:
        if sum(amounts.get(MEMORY, 0) for amounts in self.reserved.values()) <= 0:
            raise ConfigurationError(
                "[memorymanager] you should specify the system reserved memory"
            )


@dataclass(frozen=True)
class ReusableMemory:
    """The memory of a pod's init containers, which its later containers take first.

    Attributes:
        pod_uid: the pod that was served last; no other pod has reusable memory.
        sizes: mask of NUMA nodes and resource -> bytes.
    """

    pod_uid: str = ""
    sizes: Mapping[tuple[int, str], int] = field(default_factory=dict)

    def of(self, pod: Pod) -> Mapping[tuple[int, str], int]:
        """Return what containers of `pod` can reuse."""
        return self.sizes if pod.uid == self.pod_uid else {}

    def after(self, pod: Pod, container: Container, blocks: Blocks) -> "ReusableMemory":
        """Return what is reusable once `container` has `blocks`."""
        sizes = dict(self.of(pod))
        is_init = pod.is_regular_init(container)
        for block in blocks:
            key = (masks.mask_of(block.numa_nodes), block.resource)
            if is_init:
                sizes[key] = max(sizes.get(key, 0), block.size)
            elif key in sizes:
                sizes[key] = max(0, sizes[key] - block.size)
        return ReusableMemory(pod.uid, sizes)


@dataclass(frozen=True)
class Allocation:
    """What an allocation leaves behind."""

    state: MemoryState
    reusable: ReusableMemory


def start(policy: StaticMemoryPolicy, state: MemoryState) -> MemoryState:
    """Return the state to start from: `state` if it suits the machine, initialised if empty.

    Raises:
        StateError: the state contradicts the machine or itself.
    """
    if not state.machine:
        if state.containers:
            raise StateError(
                "[memorymanager] machine state can not be empty when it has memory assignments"
            )
        return replace(state, machine=tables.initial(policy.machine, policy.reserved))
    try:
        wanted: tables.NodeStates = tables.initial(policy.machine, policy.reserved)
    except ConfigurationError as error:
        raise StateError(_OTHER_MACHINE) from error
    blocks = list(_recorded(policy, state))
    wanted = tables.expected(wanted, blocks)
    if not tables.is_same(state.machine, wanted, [block.numa_nodes for _, block in blocks]):
        raise StateError(_OTHER_MACHINE)
    return state


def _recorded(policy: StaticMemoryPolicy, state: MemoryState) -> Iterator[tuple[str, Block]]:
    """Yield each block that the state charges, with the owner as errors name it."""
    for pod_uid, containers in state.containers.items():
        whole = state.pods.get(pod_uid)
        is_whole = policy.features.pod_level_resource_managers and whole
        for name, blocks in ({"": whole or ()} if is_whole else containers).items():
            yield from ((f"pod: {pod_uid}, container: {name}", block) for block in blocks)


def container_hints(
    policy: StaticMemoryPolicy,
    state: MemoryState,
    reusable: ReusableMemory,
    pod: Pod,
    container: Container,
) -> ProviderHints:
    """Return the hints for a container, None if its pod is not Guaranteed."""
    if not is_managed(policy, pod):
        return None
    wanted = requests.of_container(pod, container, policy.features)
    blocks = state.blocks(pod.uid, container.name)
    if blocks is not None:
        return hints.regenerate(blocks, wanted)
    return hints.calculate(state.machine, wanted, reusable.of(pod))


def pod_hints(
    policy: StaticMemoryPolicy, state: MemoryState, reusable: ReusableMemory, pod: Pod
) -> ProviderHints:
    """Return the hints for a pod as a whole, None if it is not Guaranteed."""
    if not is_managed(policy, pod):
        return None
    wanted = requests.of_pod(pod, policy.features)
    if policy.features.pod_level_resource_managers and pod.has_pod_level_resources:
        try:
            requests.check_shared_pool(pod, policy.features)
        except AllocationError:
            return {resource: [] for resource in wanted}
    if not wanted:
        return None
    for container in pod.all_containers:
        blocks = state.blocks(pod.uid, container.name)
        if blocks is not None:
            return hints.regenerate(blocks, wanted)
    return hints.calculate(state.machine, wanted, reusable.of(pod))


def allocate(
    policy: StaticMemoryPolicy,
    state: MemoryState,
    reusable: ReusableMemory,
    pod: Pod,
    container: Container,
    hint: Hint = _ANYWHERE,
) -> Allocation:
    """Give the container its memory and return the new state.

    A container that has blocks already keeps them.

    Raises:
        AllocationError: no NUMA nodes have the memory, or only nodes that others use.
    """
    if not is_managed(policy, pod):
        return Allocation(state, reusable)
    present = state.blocks(pod.uid, container.name)
    if present is not None:
        return Allocation(state, reusable.after(pod, container, present))
    wanted = requests.of_container(pod, container, policy.features)
    group = choose_group(state.machine, wanted, reusable.of(pod), hint)
    blocks = tuple(Block(group, resource, size) for resource, size in wanted.items())
    mask = masks.mask_of(group)
    states: tables.NodeStates = state.machine
    for resource, size in wanted.items():
        charged = max(0, size - reusable.of(pod).get((mask, resource), 0))
        states = tables.charge(states, group, resource, charged)
    after = replace(state, machine=states).with_blocks(pod.uid, container.name, blocks)
    return Allocation(
        _shrink_init_blocks(after, pod, container, blocks), reusable.after(pod, container, blocks)
    )


def allocate_pod(
    policy: StaticMemoryPolicy, state: MemoryState, pod: Pod, hint: Hint = _ANYWHERE
) -> MemoryState:
    """Give a pod with pod-level resources its memory, share it out, and return the new state.

    Raises:
        EmptyPodSharedPoolError: nothing would be left to share.
        AllocationError: no NUMA nodes have the memory, or only nodes that others use.
    """
    if pod.qos != QosClass.GUARANTEED:
        return state
    wanted = requests.of_pod(pod, policy.features)
    requests.check_shared_pool(pod, policy.features)
    group = choose_group(state.machine, wanted, {}, hint)
    states: tables.NodeStates = state.machine
    for resource, size in wanted.items():
        states = tables.charge(states, group, resource, size)
    return MemoryState(
        states,
        {**state.containers, pod.uid: _shared_out(policy, pod, wanted, group)},
        {**state.pods, pod.uid: _blocks(group, wanted)},
    )


def release(
    policy: StaticMemoryPolicy, state: MemoryState, pod_uid: str, container: str
) -> MemoryState:
    """Take the container out of the state and give its memory back.

    The memory of a pod with pod-level resources returns with its last container.
    """
    blocks = state.blocks(pod_uid, container)
    whole = state.pods.get(pod_uid)
    if policy.features.pod_level_resource_managers and whole is not None:
        after = state.without(pod_uid, container)
        if after.containers.get(pod_uid):
            return after
        pods = {uid: found for uid, found in after.pods.items() if uid != pod_uid}
        return MemoryState(tables.release(after.machine, whole), after.containers, pods)
    if blocks is None:
        return state
    after = state.without(pod_uid, container)
    return replace(after, machine=tables.release(after.machine, blocks))


def allocatable(state: MemoryState) -> list[Block]:
    """Return the allocatable memory, one block for each NUMA node and resource."""
    return [
        Block((node,), resource, table.allocatable)
        for node, found in sorted(state.machine.items())
        for resource, table in sorted(found.memory.items())
        if table.allocatable
    ]


def is_managed(policy: StaticMemoryPolicy, pod: Pod) -> bool:
    """Return whether the policy gives the pod's containers memory."""
    if pod.qos != QosClass.GUARANTEED:
        return False
    return policy.features.pod_level_resource_managers or not pod.has_pod_level_resources


def choose_group(
    machine: hints.Machine,
    wanted: hints.Requests,
    reusable: hints.Reusable,
    hint: Hint,
) -> tuple[int, ...]:
    """Return the NUMA nodes to take memory from: those of the hint, extended if they are full.

    Raises:
        AllocationError: there are none.
    """
    chosen = hint
    if chosen.mask is None:
        found = hints.best(_possible(machine, wanted, reusable))
        if found is None:
            raise AllocationError(
                "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with "
                "enough memory is available"
            )
        chosen = _at_least(found, hint, "default")
    group = masks.nodes_of(chosen.mask or 0)
    if not hints.has_room(machine, group, wanted):
        mask = chosen.mask or 0
        possible = _possible(machine, wanted, reusable)
        found = hints.best([one for one in possible if (one.mask or 0) & mask == mask])
        if found is None:
            raise AllocationError(
                "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
            )
        chosen = _at_least(found, chosen, "extended")
        group = masks.nodes_of(chosen.mask or 0)
    if hints.violates(machine, group):
        raise AllocationError("[memorymanager] preferred hint violates NUMA node allocation")
    return group


def _possible(
    machine: hints.Machine, wanted: hints.Requests, reusable: hints.Reusable
) -> Sequence[Hint]:
    return hints.calculate(machine, wanted, reusable).get(MEMORY, [])


def _at_least(found: Hint, asked: Hint, kind: str) -> Hint:
    if asked.preferred and not found.preferred:
        raise AllocationError(f"[memorymanager] failed to find the {kind} preferred hint")
    return found


def _shrink_init_blocks(
    state: MemoryState, pod: Pod, container: Container, blocks: Blocks
) -> MemoryState:
    """Take what the container reuses out of the blocks of the init containers before it."""
    for block in blocks:
        left = block.size
        for init in pod.init_containers:
            if init.name == container.name or left == 0:
                break
            present = state.blocks(pod.uid, init.name)
            if init.is_sidecar or not present:
                continue
            shrunk: list[Block] = []
            for one in present:
                is_same = (one.resource, one.numa_nodes) == (block.resource, block.numa_nodes)
                reused = min(one.size, left) if is_same else 0
                left -= reused
                shrunk.append(replace(one, size=one.size - reused))
            state = state.with_blocks(pod.uid, init.name, tuple(shrunk))
    return state


def _shared_out(
    policy: StaticMemoryPolicy, pod: Pod, wanted: hints.Requests, group: Sequence[int]
) -> dict[str, Blocks]:
    """Return the blocks of each container out of the pod's memory."""
    own: dict[str, Blocks] = {}
    sidecars: dict[str, int] = {}
    for container in pod.init_containers:
        sizes = requests.of_container(pod, container, policy.features)
        if not sizes and container.is_sidecar:
            continue
        left = {name: size - sidecars.get(name, 0) for name, size in wanted.items()}
        own[container.name] = _blocks(group, sizes or left)
        if container.is_sidecar:
            for name, size in sizes.items():
                sidecars[name] = sidecars.get(name, 0) + size
    shared = {name: size - sidecars.get(name, 0) for name, size in wanted.items()}
    for container in pod.containers:
        sizes = requests.of_container(pod, container, policy.features)
        if sizes:
            own[container.name] = _blocks(group, sizes)
            shared = {name: size - sizes.get(name, 0) for name, size in shared.items()}
    rest = _blocks(group, shared)
    return {one.name: own.get(one.name, rest) for one in pod.all_containers}


def _blocks(group: Sequence[int], sizes: hints.Requests) -> Blocks:
    return tuple(
        Block(tuple(group), resource, size) for resource, size in sorted(sizes.items()) if size > 0
    )
