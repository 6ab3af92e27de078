"""The static CPU policy: Guaranteed containers with whole CPUs have these for themselves.

All other containers run on the shared pool. CPUs that are reserved for the system stay in the
shared pool (or outside of it with strict reservation) and are never given to a container.
"""

from dataclasses import dataclass, replace
from typing import Final

from bindery.nodecore.cpu.distributed import take_distributed
from bindery.nodecore.cpu.options import NO_OPTIONS, CpuOptions
from bindery.nodecore.cpu.packed import take_packed
from bindery.nodecore.cpu.requests import (
    check_shared_pool,
    exclusive_cpus,
    exclusive_cpus_of_pod,
)
from bindery.nodecore.cpu.state import CpuState
from bindery.nodecore.cpu.topology import CpuTopology
from bindery.nodecore.cpusets import EMPTY, CpuSet, format_cpus
from bindery.nodecore.errors import AllocationError, ConfigurationError, StateError
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.masks import nodes_of
from bindery.nodecore.pods import Container, Pod

NAME: Final = "static"


class SmtAlignmentError(AllocationError):
    """Only whole cores are given, and the request asks for other CPUs."""

    reason = "SMTAlignmentError"


@dataclass(frozen=True)
class StaticPolicy:
    """The settings of the static policy; no container has the `reserved` CPUs for itself."""

    topology: CpuTopology
    reserved: CpuSet
    options: CpuOptions = NO_OPTIONS
    features: Features = DEFAULT

    @property
    def reserved_cores(self) -> CpuSet:
        """The CPUs of all cores that have a reserved CPU."""
        details, cores = self.topology.details, self.topology.cores
        return EMPTY.union(*(cores[details[cpu].core] for cpu in self.reserved))

    @property
    def allocatable(self) -> CpuSet:
        """The CPUs that containers can have for themselves."""
        return self.topology.cpus - self.reserved

    def available(self, state: CpuState) -> CpuSet:
        """Return the CPUs that no container has for itself and that are not reserved."""
        return state.default - self.reserved

    def take(self, available: CpuSet, count: int) -> CpuSet:
        """Return `count` of the `available` CPUs by the options; raises AllocationError."""
        options = self.options
        spread = options.distribute_across_cores
        if options.distribute_across_numa:
            group = self.topology.cpus_per_core if options.full_pcpus_only else 1
            return take_distributed(
                self.topology, available, count, group, spread_over_cores=spread
            )
        return take_packed(
            self.topology,
            available,
            count,
            spread_over_cores=spread,
            align_by_uncore=options.align_by_uncore,
        )


@dataclass(frozen=True)
class ReusableCpus:
    """The CPUs of a pod's init containers, which its later containers take first.

    Attributes:
        pod_uid: the pod that was served last; no other pod has reusable CPUs.
    """

    pod_uid: str = ""
    cpus: CpuSet = EMPTY

    def of(self, pod: Pod) -> CpuSet:
        """Return the CPUs that containers of `pod` can reuse."""
        return self.cpus if pod.uid == self.pod_uid else EMPTY

    def after(self, pod: Pod, container: Container, cpus: CpuSet) -> "ReusableCpus":
        """Return what is reusable once `container` has `cpus`."""
        before = self.of(pod)
        reusable = before | cpus if pod.is_regular_init(container) else before - cpus
        return ReusableCpus(pod.uid, reusable)


@dataclass(frozen=True)
class Allocation:
    """What an allocation leaves behind."""

    state: CpuState
    reusable: ReusableCpus


def new_policy(
    topology: CpuTopology,
    reserved_count: int,
    reserved: CpuSet = EMPTY,
    options: CpuOptions = NO_OPTIONS,
    features: Features = DEFAULT,
) -> StaticPolicy:
    """Return the policy; the reserved CPUs are taken from the lowest cores if none are named.

    Raises:
        ConfigurationError: the named CPUs are not as many as `reserved_count`, or not there.
    """
    policy = StaticPolicy(topology, EMPTY, options, features)
    chosen = reserved
    if not reserved:
        try:
            chosen = policy.take(topology.cpus, reserved_count)
        except AllocationError:
            chosen = EMPTY
    if len(chosen) != reserved_count:
        raise ConfigurationError(
            "[cpumanager] unable to reserve the required amount of CPUs "
            f"(size of {format_cpus(chosen)} did not equal {reserved_count})"
        )
    for cpu in sorted(chosen - topology.cpus):
        raise ConfigurationError(
            "[cpumanager] unable to build the reserved physical CPUs from the reserved set: "
            f"unknown CPU ID: {cpu}"
        )
    return replace(policy, reserved=chosen)


def start(policy: StaticPolicy, state: CpuState) -> CpuState:
    """Return the state to start from: `state` if it suits the machine, initialised if empty.

    Raises:
        StateError: the state contradicts the policy or the machine.
    """
    everything = policy.topology.cpus
    if policy.options.strict_reservation:
        everything -= policy.reserved
    if not state.default:
        if state.containers:
            raise StateError("default cpuset cannot be empty")
        return state.with_default(everything)
    _check_reserved(policy, state)
    _check_overlaps(state)
    held = [cpus for each in state.containers.values() for cpus in each.values()]
    known = state.default.union(*held)
    if policy.features.pod_level_resource_managers:
        known = known.union(*state.pods.values())
    if known != everything:
        raise StateError(
            f'current set of available CPUs "{format_cpus(everything)}" doesn\'t match with CPUs '
            f'in state "{format_cpus(known)}"'
        )
    return state


def allocate(
    policy: StaticPolicy,
    state: CpuState,
    reusable: ReusableCpus,
    pod: Pod,
    container: Container,
    mask: int | None = None,
) -> Allocation:
    """Give the container its CPUs and return the new state.

    A container that has CPUs already keeps them. One that is to have none changes nothing. `mask`:
    the NUMA nodes that the topology manager chose, None for any.

    Raises:
        SmtAlignmentError: the request cannot be met with whole cores only.
        AllocationError: there are not enough CPUs.
    """
    count = exclusive_cpus(pod, container, policy.features)
    if count == 0 or is_unmanaged(policy, pod):
        return Allocation(state, reusable)
    _check_whole_cores(policy, state, count)
    present = state.cpus(pod.uid, container.name)
    if present is not None:
        return Allocation(state, reusable.after(pod, container, present))
    cpus = _choose(policy, policy.available(state) | reusable.of(pod), count, mask)
    after = state.with_default(state.default - cpus).with_container(pod.uid, container.name, cpus)
    return Allocation(after, reusable.after(pod, container, cpus))


def allocate_pod(
    policy: StaticPolicy, state: CpuState, pod: Pod, mask: int | None = None
) -> CpuState:
    """Give a pod with pod-level resources its CPUs, share them out, and return the new state.

    Containers that are to have CPUs for themselves get them out of the pod's. The others share
    what is left; an init container has all that no sidecar before it has.

    Raises:
        EmptyPodSharedPoolError: nothing would be left to share.
        SmtAlignmentError: the request cannot be met with whole cores only.
        AllocationError: there are not enough CPUs.
    """
    total = exclusive_cpus_of_pod(pod, policy.features)
    if total == 0:
        return state
    check_shared_pool(pod, policy.features)
    _check_whole_cores(policy, state, total)
    bubble = _choose(policy, policy.available(state), total, mask)
    own: dict[str, CpuSet] = {}
    sidecars = EMPTY
    for container in pod.init_containers:
        count = exclusive_cpus(pod, container, policy.features)
        if count == 0 and container.is_sidecar:
            continue
        cpus = policy.take(bubble - sidecars, count) if count else bubble - sidecars
        own[container.name] = cpus
        if container.is_sidecar:
            sidecars |= cpus
    shared = bubble - sidecars
    for container in pod.containers:
        count = exclusive_cpus(pod, container, policy.features)
        if count:
            own[container.name] = policy.take(shared, count)
            shared -= own[container.name]
    containers = {one.name: own.get(one.name, shared) for one in pod.all_containers}
    return CpuState(
        state.default - bubble,
        {**state.containers, pod.uid: containers},
        {**state.pods, pod.uid: bubble},
    )


def release(policy: StaticPolicy, state: CpuState, pod_uid: str, container: str) -> CpuState:
    """Take the container out of the state and return its CPUs to the shared pool.

    CPUs that another container of the pod has too stay with that one. The CPUs of a pod with
    pod-level resources return with its last container.
    """
    cpus = state.cpus(pod_uid, container)
    if cpus is None:
        return state
    after = state.without(pod_uid, container)
    siblings = after.containers.get(pod_uid, {})
    if policy.features.pod_level_resource_managers and pod_uid in state.pods:
        if siblings:
            return after
        pods = {uid: found for uid, found in after.pods.items() if uid != pod_uid}
        return CpuState(after.default | state.pods[pod_uid], after.containers, pods)
    return after.with_default(after.default | (cpus - EMPTY.union(*siblings.values())))


def is_unmanaged(policy: StaticPolicy, pod: Pod) -> bool:
    """Return whether the pod has pod-level resources that the manager does not serve."""
    return pod.has_pod_level_resources and not policy.features.pod_level_resource_managers


def _choose(policy: StaticPolicy, available: CpuSet, count: int, mask: int | None) -> CpuSet:
    """Return CPUs on the NUMA nodes of `mask` first, and the rest from anywhere."""
    chosen = EMPTY
    if mask is not None:
        aligned = _aligned(policy, available, mask)
        chosen = policy.take(aligned, min(count, len(aligned)))
    return chosen | policy.take(available - chosen, count - len(chosen))


def _aligned(policy: StaticPolicy, available: CpuSet, mask: int) -> CpuSet:
    topology = policy.topology
    nodes = nodes_of(mask)
    if not policy.options.align_by_socket:
        return available & topology.cpus_in(nodes)
    sockets = topology.sockets_of(nodes)
    return available & EMPTY.union(*(topology.sockets[socket] for socket in sockets))


def _check_whole_cores(policy: StaticPolicy, state: CpuState, count: int) -> None:
    if not policy.options.full_pcpus_only:
        return
    threads = policy.topology.cpus_per_core
    if count % threads:
        raise SmtAlignmentError(
            f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {threads}"
        )
    available = len(state.default - policy.reserved_cores)
    if count > available:
        raise SmtAlignmentError(
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = "
            f"{available}, requested CPUs = {count}, CPUs per core = {threads}"
        )


def _check_reserved(policy: StaticPolicy, state: CpuState) -> None:
    both = policy.reserved & state.default
    if policy.options.strict_reservation:
        if both:
            raise StateError(
                f'some of strictly reserved cpus: "{format_cpus(both)}" are present in '
                f'defaultCpuSet: "{format_cpus(state.default)}"'
            )
    elif both != policy.reserved:
        raise StateError(
            f'not all reserved cpus: "{format_cpus(policy.reserved)}" are present in '
            f'defaultCpuSet: "{format_cpus(state.default)}"'
        )


def _check_overlaps(state: CpuState) -> None:
    for pod_uid, containers in state.containers.items():
        for name, cpus in containers.items():
            if cpus & state.default:
                raise StateError(
                    f'pod: {pod_uid}, container: {name} cpuset: "{format_cpus(cpus)}" overlaps '
                    f'with default cpuset "{format_cpus(state.default)}"'
                )
