"""The CPU manager: allocation, hints, reuse, release, options, restarts and reconciliation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.cpu import hints, static
from bindery.nodecore.cpu.manager import (
    ContainerStatus,
    CpuManager,
    Reconciled,
    RunState,
    configure,
)
from bindery.nodecore.cpu.options import CpuOptions, parse
from bindery.nodecore.cpu.state import CpuState
from bindery.nodecore.cpu.static import ReusableCpus, SmtAlignmentError, StaticPolicy, new_policy
from bindery.nodecore.cpu.topology import discover
from bindery.nodecore.cpusets import CpuSet, format_cpus
from bindery.nodecore.errors import (
    AllocationError,
    ConfigurationError,
    EmptyPodSharedPoolError,
    RestoreError,
    StateError,
)
from bindery.nodecore.features import Features
from bindery.nodecore.machine import uniform
from bindery.nodecore.masks import mask_of, nodes_of
from bindery.nodecore.pods import Container, Pod, QosClass
from bindery.nodecore.topology.hints import Hint
from tests.nodecore.nodes import CountingStore, FakeNode, container, cpus, pod, whole_pod

TOPOLOGY = discover(uniform(sockets=2, cores_per_numa=4, threads_per_core=2))
"""Node 0: cores 0-3 with threads 8-11; node 1: cores 4-7 with threads 12-15."""
ALPHA = Features(cpu_policy_alpha_options=True)
WHOLE_PODS = Features(pod_level_resource_managers=True)


def policy(reserved: int = 1, features: Features = WHOLE_PODS, **options: bool) -> StaticPolicy:
    return new_policy(TOPOLOGY, reserved, options=CpuOptions(**options), features=features)


def started(of: StaticPolicy) -> CpuState:
    return static.start(of, CpuState())


def given_to(
    of: StaticPolicy, state: CpuState, asking: Pod, mask: int | None = None
) -> static.Allocation:
    """Allocate all containers of a pod."""
    done = static.Allocation(state, ReusableCpus())
    for one in asking.all_containers:
        done = static.allocate(of, done.state, done.reusable, asking, one, mask)
    return done


def of_pod(state: CpuState, uid: str = "pod") -> dict[str, str]:
    return {name: format_cpus(found) for name, found in state.containers.get(uid, {}).items()}


@pytest.mark.parametrize(
    ("asking", "expected"),
    [
        (pod(container(cpu=2)), {"app": "4,12"}),
        (pod(container(cpu=1.5)), {}),
        (pod(Container("app", {"cpu": 2000}, {"cpu": 2000, "memory": 1})), {}),
        (pod(Container("app", {"cpu": 2000, "memory": 1}, {"cpu": 3000, "memory": 1})), {}),
        (pod(container("a", 2), container("b", 1.5), container("c", 1)), {"a": "4,12", "c": "5"}),
    ],
)
def test_guaranteed_containers_with_whole_cpus_get_exclusive_cpus(
    asking: Pod, expected: dict[str, str]
) -> None:
    of = StaticPolicy(TOPOLOGY, cpus("7,15"))  # so that the second node has fewer free CPUs

    after = given_to(of, started(of), asking).state

    assert of_pod(after) == expected
    held = frozenset().union(*after.containers.get("pod", {}).values())
    assert after.default == cpus("0-15") - held


def test_the_reserved_cpus_are_the_lowest_and_are_never_allocated() -> None:
    of = policy(reserved=2)

    assert format_cpus(of.reserved) == "0,8"
    after = given_to(of, started(of), pod(container(cpu=14))).state
    assert format_cpus(after.default) == "0,8"
    with pytest.raises(AllocationError, match="requested=15, available=14"):
        given_to(of, started(of), pod(container(cpu=15)))


def test_no_container_runs_on_reserved_cpus_with_strict_reservation() -> None:
    of = policy(reserved=2, strict_reservation=True)

    assert format_cpus(started(of).default) == "1-7,9-15"


def test_cpus_of_the_hint_are_allocated_first_and_then_any_others() -> None:
    of = policy()

    there = given_to(of, started(of), pod(container(cpu=2)), mask_of([1])).state
    both = given_to(of, started(of), pod(container(cpu=10)), mask_of([1])).state

    assert of_pod(there) == {"app": "4,12"}
    assert cpus("4-7,12-15") <= both.containers["pod"]["app"]


def test_align_by_socket_widens_the_hint_to_the_socket() -> None:
    four = discover(uniform(sockets=2, numa_per_socket=2, cores_per_numa=2))
    of = new_policy(four, 1, options=CpuOptions(align_by_socket=True))

    after = given_to(of, started(of), pod(container(cpu=4)), mask_of([2])).state
    found = hints.generate(of, cpus("0-7"), frozenset(), 2)

    assert of_pod(after) == {"app": "4-7"}
    preferred = {nodes_of(hint.mask) for hint in found if hint.preferred and hint.mask}
    assert preferred == {(0,), (1,), (2,), (3,), (0, 1), (2, 3)}


def test_full_pcpus_only_allocates_whole_cores() -> None:
    of = policy(reserved=1, full_pcpus_only=True)

    with pytest.raises(SmtAlignmentError) as odd:
        given_to(of, started(of), pod(container(cpu=3)))
    assert str(odd.value) == (
        "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    )
    with pytest.raises(SmtAlignmentError) as large:  # the sibling of the reserved CPU counts too
        given_to(of, started(of), pod(container(cpu=16)))
    assert str(large.value) == (
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 14, "
        "requested CPUs = 16, CPUs per core = 2"
    )


def test_init_containers_leave_their_cpus_and_sidecars_keep_them() -> None:
    of = policy()
    asking = pod(
        container("app", 2),
        init=[container("init", 4), container("sidecar", 2, is_sidecar=True)],
    )

    after = given_to(of, started(of), asking).state.containers["pod"]

    assert after["sidecar"] < after["init"]
    assert after["app"] < after["init"]
    assert not after["app"] & after["sidecar"]


def test_releasing_keeps_the_cpus_that_sibling_containers_reuse() -> None:
    of = policy()
    asking = pod(container("app", 2), init=[container("init", 4)])
    state = given_to(of, started(of), asking).state

    without_init = static.release(of, state, "pod", "init")

    assert of_pod(without_init) == of_pod(state.without("pod", "init"))
    assert static.release(of, without_init, "pod", "app") == started(of)


def test_a_container_keeps_its_allocation() -> None:
    of = policy()
    state = given_to(of, started(of), pod(container(cpu=2))).state

    assert given_to(of, state, pod(container(cpu=2))).state == state


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (2, [Hint(0b01, preferred=True), Hint(0b10, preferred=True), Hint(0b11, preferred=False)]),
        (8, [Hint(0b10, preferred=True), Hint(0b11, preferred=False)]),
        (12, [Hint(0b11, preferred=True)]),
        (16, []),
    ],
)
def test_hints_list_the_numa_nodes_with_free_cpus(count: int, expected: list[Hint]) -> None:
    of = policy()
    asking = pod(container(cpu=count))

    found = hints.container_hints(of, started(of), ReusableCpus(), asking, asking.containers[0])

    assert found == {"cpu": expected}
    assert hints.pod_hints(of, started(of), ReusableCpus(), asking) == {"cpu": expected}


def test_containers_without_exclusive_cpus_have_no_preference() -> None:
    of = policy()
    asking = pod(container(cpu=0.5))

    assert hints.pod_hints(of, started(of), ReusableCpus(), asking) is None


def test_hints_of_an_allocated_container_point_to_its_cpus() -> None:
    of = policy()
    asking = pod(container(cpu=2))
    state = given_to(of, started(of), asking, mask_of([1])).state

    again = hints.container_hints(of, state, ReusableCpus(), asking, asking.containers[0])
    changed = pod(container(cpu=3))

    assert again == {"cpu": [Hint(0b10, preferred=True), Hint(0b11, preferred=False)]}
    found = hints.container_hints(of, state, ReusableCpus(), changed, changed.containers[0])
    assert found == {"cpu": []}


def test_the_pod_needs_the_larger_of_init_and_app_containers() -> None:
    of = policy()
    asking = pod(
        container("app", 3), init=[container("side", 2, is_sidecar=True), container("init", 4)]
    )

    found = hints.pod_hints(of, started(of), ReusableCpus(), asking)

    assert found == {"cpu": [Hint(0b01, True), Hint(0b10, True), Hint(0b11, False)]}  # 6 CPUs


def test_pod_level_resources_are_ignored_without_the_feature() -> None:
    of = policy(features=Features())
    asking = whole_pod(container(cpu=2), cpu=4)

    assert given_to(of, started(of), asking).state == started(of)
    assert hints.pod_hints(of, started(of), ReusableCpus(), asking) is None


def test_a_pod_divides_its_cpus_among_its_containers_with_the_feature() -> None:
    of = policy()
    asking = whole_pod(container("own", 2), Container("a"), Container("b"), cpu=6)

    state = static.allocate_pod(of, started(of), asking, mask_of([1]))

    assert format_cpus(state.pods["pod"]) == "4-6,12-14"
    assert of_pod(state) == {"own": "4,12", "a": "5-6,13-14", "b": "5-6,13-14"}
    for name in ("own", "a", "b"):
        state = static.release(of, state, "pod", name)
    assert state == started(of)


def test_a_pod_without_remaining_shared_cpus_is_refused() -> None:
    of = policy()

    with pytest.raises(EmptyPodSharedPoolError, match="leaving no cpus for shared containers"):
        static.allocate_pod(of, started(of), whole_pod(container("own", 4), Container("a"), cpu=4))


@pytest.mark.parametrize(
    ("state", "strict", "message"),
    [
        (CpuState(containers={"pod": {"app": cpus("1")}}), False, "default cpuset cannot be empty"),
        (CpuState(cpus("1-15")), False, 'not all reserved cpus: "0" are present in defaultCpuSet'),
        (CpuState(cpus("0-15")), True, 'some of strictly reserved cpus: "0" are present'),
        (
            CpuState(cpus("0-15"), {"pod": {"app": cpus("1")}}),
            False,
            'pod: pod, container: app cpuset: "1" overlaps with default cpuset "0-15"',
        ),
        (
            CpuState(cpus("0-14")),
            False,
            'current set of available CPUs "0-15" doesn\'t match with CPUs in state "0-14"',
        ),
    ],
)
def test_a_state_that_contradicts_the_machine_prevents_the_start(
    state: CpuState, strict: bool, message: str
) -> None:
    with pytest.raises(StateError) as error:
        static.start(policy(strict_reservation=strict), state)

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "features", "message"),
    [
        ({"other": "true"}, ALPHA, 'unknown CPU Manager Policy option: "other"'),
        ({"align-by-socket": "true"}, Features(), "Alpha-level Options not enabled"),
        ({"full-pcpus-only": "maybe"}, ALPHA, 'bad value for option "full-pcpus-only"'),
        (
            {"full-pcpus-only": "true", "distribute-cpus-across-cores": "true"},
            ALPHA,
            "can not be used at the same time",
        ),
        (
            {"prefer-align-cpus-by-uncorecache": "1", "distribute-cpus-across-numa": "1"},
            ALPHA,
            "can not be used at the same time",
        ),
    ],
)
def test_invalid_options_are_refused(
    options: dict[str, str], features: Features, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse(options, features)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "other"}, 'unknown policy: "other"'),
        (
            {"policy": "none", "options": {"full-pcpus-only": "true"}},
            "received unsupported options",
        ),
        ({"reserved_milli": None}, "unable to determine reserved CPU resources"),
        ({"reserved_milli": 0}, "to be greater than zero"),
        ({"reserved_milli": 17000}, "unable to reserve the required amount of CPUs"),
        ({"reserved": cpus("1-3")}, r"\(size of 1-3 did not equal 1\)"),
        ({"reserved": cpus("99")}, "unknown CPU ID: 99"),
        (
            {"options": {"align-by-socket": "true"}, "topology_policy": "single-numa-node"},
            "is incompatible with CPUManager align-by-socket",
        ),
    ],
)
def test_settings_that_contradict_the_machine_are_refused(
    arguments: dict[str, Any], message: str
) -> None:
    settings: dict[str, Any] = {"policy": "static", "options": {}, "reserved_milli": 500}

    with pytest.raises(ConfigurationError, match=message):
        configure(**{**settings, **arguments}, topology=TOPOLOGY, features=ALPHA)


def manager(node: FakeNode, store: CountingStore, of: StaticPolicy | None) -> CpuManager:
    made = CpuManager(of, node, node, CheckpointManager(store))
    made.start({})
    return made


def test_the_manager_writes_each_change_once_and_restores_it() -> None:
    node, store = FakeNode([pod(container(cpu=2))]), CountingStore()
    first = manager(node, store, policy())
    before = store.writes

    first.allocate(node.pods[0], node.pods[0].containers[0])

    assert store.writes == before + 1
    assert manager(node, store, policy()).state == first.state
    assert format_cpus(first.cpu_affinity("pod", "app")) == "1,9"
    assert first.exclusive_cpus("pod", "other") == frozenset()


def test_a_policy_other_than_the_files_prevents_the_start() -> None:
    node, store = FakeNode(), CountingStore()
    manager(node, store, policy())

    with pytest.raises(RestoreError, match='policy "none" differs from state checkpoint policy'):
        manager(node, store, None)


def test_nothing_is_allocated_without_a_policy() -> None:
    node = FakeNode([pod(container(cpu=2))])
    none = manager(node, CountingStore(), None)

    none.allocate(node.pods[0], node.pods[0].containers[0])

    assert none.state == CpuState()
    assert none.container_hints(node.pods[0], node.pods[0].containers[0]) is None
    assert none.allocatable_cpus() == frozenset()


def test_cpus_of_deleted_pods_are_released_once_all_pods_are_known() -> None:
    node = FakeNode([pod(container(cpu=2))])
    of = manager(node, CountingStore(), policy())
    of.allocate(node.pods[0], node.pods[0].containers[0])
    node.pods, node.ready = [], False

    of.remove_stale_state()
    assert of_pod(of.state) == {"app": "1,9"}
    node.ready = True
    of.remove_stale_state()
    assert of.state == started(policy())


def test_containers_are_updated_when_their_cpus_change() -> None:
    node = FakeNode([pod(container(cpu=2), uid="own"), pod(container(cpu=0.5), uid="shared")])
    of = manager(node, CountingStore(), policy())
    of.allocate(node.pods[0], node.pods[0].containers[0])
    of.add_container(node.pods[0], node.pods[0].containers[0], "id-own")
    statuses = {
        "own": {"app": ContainerStatus("id-own", RunState.RUNNING)},
        "shared": {"app": ContainerStatus("id-shared", RunState.RUNNING)},
    }
    updates: dict[str, CpuSet] = {}

    done = of.reconcile(statuses, updates.__setitem__)

    assert updates == {"id-shared": of.state.default}  # the other one was created with its CPUs
    assert done.success == [("own", "app", "id-own"), ("shared", "app", "id-shared")]
    updates.clear()
    of.remove_container("id-own")
    of.reconcile({"shared": statuses["shared"]}, updates.__setitem__)
    assert updates == {"id-shared": cpus("0-15")}


def test_a_container_that_cannot_be_updated_is_retried_in_the_next_round() -> None:
    node = FakeNode([pod(container("a", 0.5), container("b", 0.5), container("c", 0.5))])
    of = manager(node, CountingStore(), policy())
    statuses = {
        "pod": {
            "a": ContainerStatus("id-a", RunState.RUNNING),
            "b": ContainerStatus("id-b", RunState.TERMINATED),
            "c": ContainerStatus("", RunState.WAITING),
        }
    }

    def fail(container_id: str, cpus: CpuSet) -> None:
        raise OSError

    assert of.reconcile(statuses, fail) == Reconciled([], [("pod", "a", "id-a"), ("pod", "c", "")])
    assert of.reconcile({}, fail).failure == [("pod", "", "")]


def test_the_class_of_a_pod_follows_from_its_requests_and_limits() -> None:
    assert pod(container()).qos == QosClass.GUARANTEED
    assert pod(Container("app")).qos == QosClass.BEST_EFFORT
    assert pod(Container("app", {"cpu": 1})).qos == QosClass.BURSTABLE
    assert pod(container("a"), Container("b")).qos == QosClass.BURSTABLE
    assert whole_pod(Container("a"), cpu=1).qos == QosClass.GUARANTEED


amounts = st.lists(st.integers(1, 6), min_size=1, max_size=8)


@given(amounts, st.randoms(use_true_random=False))
def test_allocations_are_disjoint_and_released_exactly(counts: list[int], order: Any) -> None:
    of = policy()
    state = start = started(of)
    for number, count in enumerate(counts):
        try:
            state = given_to(of, state, pod(container(cpu=count), uid=f"pod{number}")).state
        except AllocationError:
            assert len(of.available(state)) < count
    held = [found["app"] for found in state.containers.values()]

    assert sum(map(len, held)) == len(frozenset().union(*held))
    assert state.default | frozenset().union(*held) == start.default
    uids = list(state.containers)
    order.shuffle(uids)
    for uid in uids:
        state = static.release(of, state, uid, "app")
    assert state == start
