"""The memory manager: keeps the state of a policy and writes it."""

from collections.abc import Mapping, Sequence
from typing import Final

from bindery.api import quantity
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.containers import ContainerIds, ContainerMap, stale
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.machine import Machine
from bindery.nodecore.memory import restore, static
from bindery.nodecore.memory.state import MemoryState
from bindery.nodecore.memory.static import ReusableMemory, StaticMemoryPolicy
from bindery.nodecore.memory.tables import Reserved
from bindery.nodecore.node import Node, NumaAffinity
from bindery.nodecore.numamemory import Block, Blocks
from bindery.nodecore.pods import HUGE_PAGES_PREFIX, MEMORY, Container, Pod
from bindery.nodecore.topology.hints import ProviderHints

NONE: Final = "None"
BEST_EFFORT: Final = "BestEffort"

Reservations = Sequence[tuple[int, Mapping[str, int]]]
"""NUMA node and resource -> bytes, as `reservedMemory` of the kubelet's configuration has them."""


def configure(
    policy: str,
    machine: Machine,
    node_reserved: Mapping[str, int],
    reservations: Reservations,
    features: Features = DEFAULT,
) -> StaticMemoryPolicy | None:
    """Return the policy of a configuration; None is the policy without reserved memory.

    `node_reserved`: what is reserved on the node in all, for kube and the system, and for memory
    the hard eviction threshold. `reservations`: how this is spread over the NUMA nodes.

    Raises:
        ConfigurationError: the settings contradict themselves or the machine.
    """
    if policy == NONE:
        return None
    if policy == BEST_EFFORT:
        raise ConfigurationError(f'policy "{policy}" is not available for platform "linux"')
    if policy != static.NAME:
        raise ConfigurationError(f'unknown policy: "{policy}"')
    return StaticMemoryPolicy(
        machine, system_reserved(machine, node_reserved, reservations), features
    )


def system_reserved(
    machine: Machine, node_reserved: Mapping[str, int], reservations: Reservations
) -> Reserved:
    """Return what is reserved on each NUMA node.

    Raises:
        ConfigurationError: a NUMA node does not exist, or the sums are not what the node reserves.
    """
    totals: dict[str, int] = {}
    reserved: dict[int, dict[str, int]] = {node.id: {} for node in machine.nodes}
    for node, amounts in reservations:
        if node not in reserved:
            raise ConfigurationError(
                f"the reserved memory configuration references a NUMA node {node} that does not "
                "exist on this machine"
            )
        for resource, size in amounts.items():
            totals[resource] = totals.get(resource, 0) + size
            reserved[node][resource] = size
    counted = {
        name for name in node_reserved if name == MEMORY or name.startswith(HUGE_PAGES_PREFIX)
    }
    for resource in sorted(counted | totals.keys()):
        wanted, found = node_reserved.get(resource, 0), totals.get(resource, 0)
        if wanted != found:
            raise ConfigurationError(
                f'the total amount "{quantity.canonical(found, resource)}" of type "{resource}" is '
                f'not equal to the value "{quantity.canonical(wanted, resource)}" determined by '
                "Node Allocatable feature"
            )
    return reserved


class MemoryManager:
    """The state of the memory manager; a hint provider of the topology manager."""

    def __init__(
        self,
        policy: StaticMemoryPolicy | None,
        node: Node,
        affinity: NumaAffinity,
        checkpoints: CheckpointManager,
        features: Features = DEFAULT,
    ) -> None:
        self._policy = policy
        self._node = node
        self._affinity = affinity
        self._checkpoints = checkpoints
        self._features = features
        self._state = MemoryState()
        self._reusable = ReusableMemory()
        self._containers = ContainerMap()

    @property
    def state(self) -> MemoryState:
        """What is recorded now."""
        return self._state

    @property
    def policy_name(self) -> str:
        """The name of the policy."""
        return NONE if self._policy is None else static.NAME

    def start(self, containers: ContainerIds) -> None:
        """Restore the state from the checkpoint; `containers` run already.

        Raises:
            RestoreError: the checkpoint cannot be used.
            StateError: it contradicts the machine.
        """
        self._containers = ContainerMap(dict(containers))
        self._state = restore.load(self._checkpoints, self.policy_name, features=self._features)
        if self._policy is not None:
            self._change(static.start(self._policy, self._state))

    def observe(self) -> None:
        """Take the state from the checkpoint of a kubelet that runs, whatever its sums are.

        A kubelet that runs may have a state with which it would not start again.

        Raises:
            RestoreError: the checkpoint cannot be used.
        """
        loaded = restore.load(self._checkpoints, self.policy_name, features=self._features)
        if self._policy is not None and not loaded.machine:
            loaded = static.start(self._policy, loaded)
        self._state = loaded

    def allocate(self, pod: Pod, container: Container) -> None:
        """Give the container its memory; raises AllocationError if it cannot have it."""
        if self._policy is None:
            return
        self.remove_stale_state()
        hint = self._affinity.affinity(pod.uid, container.name)
        done = static.allocate(self._policy, self._state, self._reusable, pod, container, hint)
        self._reusable = done.reusable
        self._change(done.state)

    def allocate_pod(self, pod: Pod) -> None:
        """Give a pod with pod-level resources its memory; raises AllocationError if it cannot."""
        if self._policy is None:
            return
        self.remove_stale_state()
        hint = self._affinity.affinity(pod.uid, next(pod.all_containers).name)
        self._change(static.allocate_pod(self._policy, self._state, pod, hint))

    def container_hints(self, pod: Pod, container: Container) -> ProviderHints:
        """Return on which NUMA nodes the container can have its memory."""
        if self._policy is None:
            return None
        self.remove_stale_state()
        return static.container_hints(self._policy, self._state, self._reusable, pod, container)

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """Return on which NUMA nodes the pod can have its memory."""
        if self._policy is None:
            return None
        self.remove_stale_state()
        return static.pod_hints(self._policy, self._state, self._reusable, pod)

    def add_container(self, pod: Pod, container: Container, container_id: str) -> None:
        """Record that the runtime has created the container.

        The init containers before it are finished, and their memory is released.
        """
        self._containers.add(pod.uid, container.name, container_id)
        for init in pod.init_containers:
            if init.name == container.name:
                break
            if not init.is_sidecar:
                self._release(pod.uid, init.name)

    def remove_container(self, container_id: str) -> None:
        """Release the memory of the container with an id; an unknown one is no error."""
        ref = self._containers.ref(container_id)
        if ref is not None:
            self._release(*ref)

    def memory_numa_nodes(self, pod: Pod, container: Container) -> frozenset[int]:
        """Return the NUMA nodes that the container's memory is on, none if it has no blocks."""
        blocks = self._state.blocks(pod.uid, container.name) or ()
        return frozenset(node for block in blocks for node in block.numa_nodes)

    def memory(self, pod_uid: str, container: str) -> Blocks:
        """Return the container's blocks."""
        return self._state.blocks(pod_uid, container) or ()

    def allocatable_memory(self) -> list[Block]:
        """Return the allocatable memory, one block for each NUMA node and resource."""
        return [] if self._policy is None else static.allocatable(self._state)

    def remove_stale_state(self) -> None:
        """Release the memory of all containers that belong to no active pod."""
        if not self._node.sources_ready():
            return
        pods = self._node.active_pods()
        for pod_uid, container in stale(self._state.containers, self._containers, pods):
            self._release(pod_uid, container)

    def release(self, pod: Pod) -> None:
        """Release the memory of a pod that has no container yet, to plan its admission again."""
        for container in pod.all_containers:
            self._release(pod.uid, container.name)
        self._reusable = ReusableMemory()

    def _release(self, pod_uid: str, container: str) -> None:
        if self._policy is not None:
            self._change(static.release(self._policy, self._state, pod_uid, container))
        self._containers.remove_ref((pod_uid, container))

    def _change(self, state: MemoryState) -> None:
        if state != self._state:
            restore.save(self._checkpoints, self.policy_name, state, features=self._features)
            self._state = state
