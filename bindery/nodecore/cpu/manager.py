"""The CPU manager: keeps the state of a policy, writes it, and brings it to running containers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.containers import ContainerIds, ContainerMap, stale
from bindery.nodecore.cpu import hints, restore, static
from bindery.nodecore.cpu import options as cpu_options
from bindery.nodecore.cpu.state import CpuState
from bindery.nodecore.cpu.static import ReusableCpus, StaticPolicy
from bindery.nodecore.cpu.topology import CpuTopology
from bindery.nodecore.cpusets import EMPTY, CpuSet
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.node import Node, NumaAffinity
from bindery.nodecore.pods import CPU, Container, Pod
from bindery.nodecore.topology.hints import ProviderHints

NONE: Final = "none"

_MILLI: Final = 1000


class RunState(StrEnum):
    """The state of a container in the runtime."""

    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"


class Isolation(StrEnum):
    """Whose the CPUs of a container are."""

    HOST = "host"
    """It is in the shared pool of the node."""
    POD = "pod"
    """It shares them with other containers of its pod."""
    CONTAINER = "container"
    """It has them for itself."""


@dataclass(frozen=True)
class ContainerStatus:
    """A container in the status of its pod."""

    container_id: str
    state: RunState


@dataclass(frozen=True)
class Reconciled:
    """Containers whose CPUs are as recorded, and containers that are left for the next time.

    An entry is the name of the pod, the name of the container and its id, as far as they are known.
    """

    success: list[tuple[str, str, str]] = field(default_factory=list)
    failure: list[tuple[str, str, str]] = field(default_factory=list)


Statuses = Mapping[str, Mapping[str, ContainerStatus]]
"""Pod UID -> container name -> its status."""

UpdateCpus = Callable[[str, CpuSet], None]
"""Sets the CPUs of the container with an id; raises OSError if that fails."""


def configure(
    policy: str,
    options: Mapping[str, str],
    topology: CpuTopology,
    reserved_milli: int | None,
    reserved: CpuSet = EMPTY,
    topology_policy: str = "none",
    features: Features = DEFAULT,
) -> StaticPolicy | None:
    """Return the policy of a configuration; None is the policy without exclusive CPUs.

    `reserved_milli`: millicores for the system, None if not known. `reserved`: the CPUs for the
    system, if they are named.

    Raises:
        ConfigurationError: the settings contradict themselves or the machine.
    """
    if policy == NONE:
        if options:
            raise ConfigurationError(f"None policy: received unsupported options={dict(options)}")
        return None
    if policy != static.NAME:
        raise ConfigurationError(f'unknown policy: "{policy}"')
    if reserved_milli is None:
        raise ConfigurationError(
            "[cpumanager] unable to determine reserved CPU resources for static policy"
        )
    if reserved_milli <= 0:
        raise ConfigurationError(
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be "
            "greater than zero"
        )
    count = -(-reserved_milli // _MILLI)
    try:
        parsed = cpu_options.parse(options, features)
        cpu_options.check_machine(parsed, topology, topology_policy)
        return static.new_policy(topology, count, reserved, parsed, features)
    except ConfigurationError as error:
        raise ConfigurationError(f"new static policy error: {error}") from error


class CpuManager:
    """The state of the CPU manager; a hint provider of the topology manager.

    Every change is written once, whole, before the call returns. (The kubelet writes the shared
    pool and the container one after the other, so that a crash between them stops its restart.)
    """

    def __init__(
        self,
        policy: StaticPolicy | None,
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
        self._state = CpuState()
        self._reusable = ReusableCpus()
        self._containers = ContainerMap()
        self._last_updated: dict[tuple[str, str], CpuSet] = {}

    @property
    def state(self) -> CpuState:
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
            StateError: it contradicts the policy or the machine.
        """
        self._containers = ContainerMap(dict(containers))
        name, features = self.policy_name, self._features
        loaded = restore.load(self._checkpoints, name, containers, features=features)
        self._state = loaded
        if self._policy is not None:
            self._change(static.start(self._policy, loaded))

    def allocate(self, pod: Pod, container: Container) -> None:
        """Give the container its CPUs; raises AllocationError if it cannot have them."""
        if self._policy is None:
            return
        self.remove_stale_state()
        mask = self._affinity.affinity(pod.uid, container.name).mask
        done = static.allocate(self._policy, self._state, self._reusable, pod, container, mask)
        self._reusable = done.reusable
        self._change(done.state)

    def allocate_pod(self, pod: Pod) -> None:
        """Give a pod with pod-level resources its CPUs; raises AllocationError if it cannot."""
        if self._policy is None:
            return
        self.remove_stale_state()
        first = next(pod.all_containers).name
        mask = self._affinity.affinity(pod.uid, first).mask
        self._change(static.allocate_pod(self._policy, self._state, pod, mask))

    def container_hints(self, pod: Pod, container: Container) -> ProviderHints:
        """Return on which NUMA nodes the container can have its CPUs."""
        if self._policy is None:
            return None
        self.remove_stale_state()
        return hints.container_hints(self._policy, self._state, self._reusable, pod, container)

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """Return on which NUMA nodes the pod can have its CPUs."""
        if self._policy is None:
            return None
        self.remove_stale_state()
        return hints.pod_hints(self._policy, self._state, self._reusable, pod)

    def add_container(self, pod: Pod, container: Container, container_id: str) -> None:
        """Record that the runtime has created the container with the CPUs of the state."""
        cpus = self._state.cpus(pod.uid, container.name)
        if cpus is not None:
            self._last_updated[pod.uid, container.name] = cpus
        self._containers.add(pod.uid, container.name, container_id)

    def remove_container(self, container_id: str) -> None:
        """Release the CPUs of the container with an id; an unknown one is no error."""
        ref = self._containers.ref(container_id)
        if ref is not None:
            self._release(*ref)

    def allocatable_cpus(self) -> CpuSet:
        """Return the CPUs that containers can have for themselves."""
        return EMPTY if self._policy is None else self._policy.allocatable

    def cpu_affinity(self, pod_uid: str, container: str) -> CpuSet:
        """Return the CPUs that a container runs on, its own or the shared pool."""
        return self._state.cpus_or_default(pod_uid, container)

    def exclusive_cpus(self, pod_uid: str, container: str) -> CpuSet:
        """Return the CPUs that a container has for itself."""
        return self._state.cpus(pod_uid, container) or EMPTY

    def isolation(self, pod: Pod, container: Container) -> Isolation:
        """Return which other containers may use the CPUs of a container."""
        if self._state.cpus(pod.uid, container.name) is None:
            return Isolation.HOST
        is_whole = self._features.pod_level_resource_managers and pod.has_pod_level_resources
        if is_whole and not (container.is_guaranteed and container.requests[CPU] % _MILLI == 0):
            return Isolation.POD
        return Isolation.CONTAINER

    def remove_stale_state(self) -> None:
        """Release the CPUs of all containers that belong to no active pod."""
        if not self._node.sources_ready():
            return
        pods = self._node.active_pods()
        for pod_uid, container in stale(self._state.containers, self._containers, pods):
            self._release(pod_uid, container)

    def reconcile(self, statuses: Statuses, update: UpdateCpus) -> Reconciled:
        """Set the CPUs of the running containers whose CPUs have changed."""
        self.remove_stale_state()
        result = Reconciled()
        for pod in self._node.active_pods():
            if pod.uid not in statuses:
                result.failure.append((pod.name, "", ""))
                continue
            for container in pod.all_containers:
                status = statuses[pod.uid].get(container.name)
                self._reconcile_one(pod, container, status, update, result)
        return result

    def _reconcile_one(
        self,
        pod: Pod,
        container: Container,
        status: ContainerStatus | None,
        update: UpdateCpus,
        result: Reconciled,
    ) -> None:
        container_id = "" if status is None else status.container_id
        if status is not None and container_id and status.state == RunState.TERMINATED:
            return  # it may be restarted with the CPUs that it has
        if status is None or not container_id or status.state == RunState.WAITING:
            result.failure.append((pod.name, container.name, ""))
            return
        self._containers.add(pod.uid, container.name, container_id)
        reference = (pod.name, container.name, container_id)
        cpus = self._state.cpus_or_default(pod.uid, container.name)
        if not cpus:
            result.failure.append(reference)
            return
        if cpus != self._last_updated.get((pod.uid, container.name), EMPTY):
            try:
                update(container_id, cpus)
            except OSError:
                result.failure.append(reference)
                return
            self._last_updated[pod.uid, container.name] = cpus
        result.success.append(reference)

    def release(self, pod: Pod) -> None:
        """Release the CPUs of a pod that has no container yet, to plan its admission again."""
        for container in pod.all_containers:
            self._release(pod.uid, container.name)
        self._reusable = ReusableCpus()

    def _release(self, pod_uid: str, container: str) -> None:
        if self._policy is not None:
            self._change(static.release(self._policy, self._state, pod_uid, container))
        self._last_updated.pop((pod_uid, container), None)
        self._containers.remove_ref((pod_uid, container))

    def _change(self, state: CpuState) -> None:
        if state != self._state:
            name, features = self.policy_name, self._features
            restore.save(self._checkpoints, name, state, features=features)
            self._state = state
