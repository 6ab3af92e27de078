"""The memory manager: groups of NUMA nodes, extension, reuse, release, restarts."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.errors import (
    AllocationError,
    ConfigurationError,
    EmptyPodSharedPoolError,
    StateError,
)
from bindery.nodecore.features import Features
from bindery.nodecore.machine import HugePages, Machine, uniform
from bindery.nodecore.masks import mask_of
from bindery.nodecore.memory import hints, static
from bindery.nodecore.memory.manager import MemoryManager, configure
from bindery.nodecore.memory.state import MemoryState
from bindery.nodecore.memory.static import ReusableMemory, StaticMemoryPolicy
from bindery.nodecore.memory.tables import huge_pages_resource, initial, is_same
from bindery.nodecore.numamemory import Block, MemoryTable, NumaNodeState
from bindery.nodecore.pods import Container, Pod
from bindery.nodecore.topology.hints import Hint
from tests.nodecore.nodes import MIB, CountingStore, FakeNode, container, pod, whole_pod

TWO = uniform(sockets=2, memory_bytes_per_numa=1000 * MIB)
RESERVED = {0: {"memory": 100 * MIB}, 1: {"memory": 100 * MIB}}
WHOLE_PODS = Features(pod_level_resource_managers=True)
POLICY = StaticMemoryPolicy(TWO, RESERVED, WHOLE_PODS)
PAGES = uniform(
    sockets=2, memory_bytes_per_numa=1000 * MIB, huge_pages_per_numa=(HugePages(2048, 100),)
)


def started(policy: StaticMemoryPolicy = POLICY) -> MemoryState:
    return static.start(policy, MemoryState())


def asking(memory_mib: int, uid: str = "pod") -> Pod:
    return pod(container(memory_mib=memory_mib), uid=uid)


def given_to(
    state: MemoryState, wanted: Pod, *nodes: int, policy: StaticMemoryPolicy = POLICY
) -> MemoryState:
    """Allocate all containers of a pod on the NUMA nodes, or anywhere."""
    hint = Hint(mask_of(nodes) if nodes else None, preferred=False)
    done = static.Allocation(state, ReusableMemory())
    for one in wanted.all_containers:
        done = static.allocate(policy, done.state, done.reusable, wanted, one, hint)
    return done.state


def found_hints(state: MemoryState, wanted: Pod) -> list[tuple[int | None, bool]]:
    found = static.pod_hints(POLICY, state, ReusableMemory(), wanted)
    assert found is not None
    return [(hint.mask, hint.preferred) for hint in found.get("memory") or ()]


def free_mib(state: MemoryState) -> list[int]:
    return [node.memory["memory"].free // MIB for _, node in sorted(state.machine.items())]


def test_huge_pages_and_reserved_memory_are_not_allocatable_to_containers() -> None:
    states = initial(PAGES, RESERVED)

    assert states[0].memory == {
        "hugepages-2Mi": MemoryTable(200 * MIB, 0, 200 * MIB, 0, 200 * MIB),
        "memory": MemoryTable(1000 * MIB, 100 * MIB, 700 * MIB, 0, 700 * MIB),
    }
    assert [huge_pages_resource(size) for size in (64, 2048, 1 << 20)] == [
        "hugepages-64Ki",
        "hugepages-2Mi",
        "hugepages-1Gi",
    ]


def test_a_pod_that_fits_one_node_prefers_it() -> None:
    assert found_hints(started(), asking(500)) == [(0b01, True), (0b10, True), (0b11, False)]


def test_a_pod_that_fits_no_node_prefers_both() -> None:
    assert found_hints(started(), asking(1000)) == [(0b11, True)]


def test_a_node_that_is_used_alone_joins_no_group() -> None:
    state = given_to(started(), asking(100, "first"), 0)

    assert found_hints(state, asking(1000)) == []
    with pytest.raises(AllocationError, match="preferred hint violates NUMA node allocation"):
        given_to(state, asking(1000), 0, 1)


def test_a_group_of_numa_nodes_is_used_only_as_a_group() -> None:
    state = given_to(started(), asking(1000, "first"), 0, 1)

    assert free_mib(state) == [0, 800]
    assert state.machine[1] == NumaNodeState(
        1, {"memory": MemoryTable(1000 * MIB, 100 * MIB, 900 * MIB, 100 * MIB, 800 * MIB)}, (0, 1)
    )
    assert found_hints(state, asking(500)) == [(0b11, False)]  # not alone, though one has room


def test_without_a_hint_the_best_group_is_taken() -> None:
    state = given_to(started(), asking(500))

    assert state.blocks("pod", "app") == (Block((0,), "memory", 500 * MIB),)


def test_a_hint_without_room_is_extended() -> None:
    state = given_to(started(), asking(1000), 1)

    assert state.blocks("pod", "app") == (Block((0, 1), "memory", 1000 * MIB),)


def test_a_preferred_hint_is_not_extended_to_one_that_is_not() -> None:
    used = given_to(started(), asking(1000, "first"), 0, 1)
    hint = Hint(0b01, preferred=True)

    with pytest.raises(AllocationError, match="failed to find the extended preferred hint"):
        static.allocate(
            POLICY, used, ReusableMemory(), asking(500), asking(500).containers[0], hint
        )


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((), "failed to get the default NUMA affinity, no NUMA nodes with enough memory"),
        ((0, 1), "failed to find NUMA nodes to extend the current topology hint"),
    ],
)
def test_too_much_memory_is_refused(nodes: tuple[int, ...], message: str) -> None:
    with pytest.raises(AllocationError, match=message):
        given_to(started(), asking(2000), *nodes)


def test_huge_pages_of_a_missing_size_are_refused() -> None:
    wanted = pod(container(hugepages_2Mi=20 * MIB))

    with pytest.raises(AllocationError, match="no NUMA nodes with enough memory"):
        given_to(started(), wanted)


def test_each_resource_has_its_block() -> None:
    policy = StaticMemoryPolicy(PAGES, RESERVED)
    wanted = pod(container(hugepages_2Mi=20 * MIB))

    state = given_to(started(policy), wanted, 1, policy=policy)

    assert state.blocks("pod", "app") == (
        Block((1,), "hugepages-2Mi", 20 * MIB),
        Block((1,), "memory", 100 * MIB),
    )
    assert state.machine[1].assignments == 2


def test_app_containers_reuse_the_memory_of_init_containers() -> None:
    wanted = pod(container("app", memory_mib=200), init=[container("init", memory_mib=500)])

    state = given_to(started(), wanted, 0)

    assert free_mib(state) == [400, 900]
    assert state.blocks("pod", "init") == (Block((0,), "memory", 300 * MIB),)


def test_sidecars_keep_their_memory() -> None:
    side = container("side", memory_mib=200, is_sidecar=True)

    state = given_to(started(), pod(container("app", memory_mib=200), init=[side]), 0)

    assert free_mib(state) == [500, 900]


def test_hints_of_an_allocated_container_point_to_its_numa_nodes() -> None:
    state = given_to(started(), asking(500), 1)

    assert found_hints(state, asking(500)) == [(0b10, True)]
    assert static.pod_hints(POLICY, state, ReusableMemory(), asking(501)) is None
    assert hints.regenerate((), {"memory": 1}) is None


def test_pods_of_other_qos_classes_have_no_preference_and_no_blocks() -> None:
    burstable = pod(Container("app", {"memory": MIB}))

    assert static.pod_hints(POLICY, started(), ReusableMemory(), burstable) is None
    assert given_to(started(), burstable) == started()


def test_a_pod_divides_its_memory_among_its_containers_with_the_feature() -> None:
    wanted = whole_pod(container("own", memory_mib=100), Container("a"), cpu=4, memory_mib=400)

    state = static.allocate_pod(POLICY, started(), wanted, Hint(0b10, preferred=True))

    assert state.pods == {"pod": (Block((1,), "memory", 400 * MIB),)}
    assert state.blocks("pod", "own") == (Block((1,), "memory", 100 * MIB),)
    assert state.blocks("pod", "a") == (Block((1,), "memory", 300 * MIB),)
    assert static.start(POLICY, state) == state
    for name in ("own", "a"):
        state = static.release(POLICY, state, "pod", name)
    assert state == started()


def test_a_pod_without_remaining_shared_memory_is_refused() -> None:
    wanted = whole_pod(container("own", memory_mib=400), Container("a"), cpu=4, memory_mib=400)

    with pytest.raises(EmptyPodSharedPoolError, match="leaving no memory for shared containers"):
        static.allocate_pod(POLICY, started(), wanted)
    assert static.pod_hints(POLICY, started(), ReusableMemory(), wanted) == {"memory": []}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (MemoryState(containers={"pod": {"app": ()}}), "machine state can not be empty"),
        (
            MemoryState(initial(TWO, RESERVED), {"pod": {"app": (Block((0,), "memory", 1),)}}),
            "the expected machine state is different from the real one",
        ),
        (
            MemoryState(initial(TWO, RESERVED), {"pod": {"app": (Block((7,), "memory", 1),)}}),
            "the memory assignment uses the NUMA that does not exist",
        ),
        (
            MemoryState(
                initial(TWO, RESERVED), {"pod": {"app": (Block((0,), "hugepages-1Gi", 1),)}}
            ),
            "the memory assignment uses memory resource that does not exist",
        ),
        (MemoryState(initial(PAGES, RESERVED)), "the expected machine state is different"),
    ],
)
def test_a_state_that_contradicts_the_machine_prevents_the_start(
    state: MemoryState, message: str
) -> None:
    with pytest.raises(StateError, match=message):
        static.start(POLICY, state)


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_overlapping_groups_do_not_prevent_the_start_in_any_order(order: tuple[str, ...]) -> None:
    """The topology manager may leave one node of a group: a container then joins it alone."""
    state = given_to(started(), asking(1000, "first"), 0, 1)
    state = given_to(state, asking(300, "second"), 1)
    reordered = replace(state, containers={uid: state.containers[uid] for uid in order})

    assert state.machine[1].cells == (1,)
    assert static.start(POLICY, reordered) == reordered


def test_an_unused_group_in_the_state_prevents_the_start_as_in_the_kubelet() -> None:
    """A pod that is refused halfway leaves its group behind on a node that others use."""
    before = given_to(started(), asking(1000, "first"), 0, 1)
    state = static.release(POLICY, given_to(before, asking(300, "second"), 1), "second", "app")

    assert state.containers == before.containers
    assert state.machine[1].cells == (1,)
    with pytest.raises(StateError, match="expected machine state is different"):
        static.start(POLICY, state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "BestEffort"}, 'is not available for platform "linux"'),
        ({"policy": "other"}, 'unknown policy: "other"'),
        ({"reservations": [(9, {"memory": 1})]}, "NUMA node 9 that does not exist"),
        ({"reservations": [(0, {"memory": 1})]}, "is not equal to the value"),
        ({"node_reserved": {}, "reservations": []}, "should specify the system reserved memory"),
    ],
)
def test_settings_that_contradict_the_machine_are_refused(
    arguments: dict[str, Any], message: str
) -> None:
    settings: dict[str, Any] = {
        "policy": "Static",
        "node_reserved": {"memory": 200 * MIB},
        "reservations": [(0, {"memory": 100 * MIB}), (1, {"memory": 100 * MIB})],
    }
    assert configure(machine=TWO, **settings) is not None

    with pytest.raises(ConfigurationError, match=message):
        configure(machine=TWO, **{**settings, **arguments})


def test_a_node_with_less_memory_than_is_reserved_is_refused() -> None:
    small = uniform(sockets=2, memory_bytes_per_numa=50 * MIB)

    with pytest.raises(ConfigurationError, match="NUMA node 0 has"):
        static.start(StaticMemoryPolicy(small, RESERVED), MemoryState())


def manager(node: FakeNode, store: CountingStore, machine: Machine = TWO) -> MemoryManager:
    policy = StaticMemoryPolicy(machine, RESERVED)
    made = MemoryManager(policy, node, node, CheckpointManager(store))
    made.start({})
    return made


def test_the_manager_writes_each_change_once_and_restores_it() -> None:
    wanted = pod(container("app", memory_mib=200), init=[container("init", memory_mib=500)])
    node, store = FakeNode([wanted]), CountingStore()
    first = manager(node, store)
    before = store.writes

    for one in wanted.all_containers:
        first.allocate(wanted, one)

    assert store.writes == before + 2
    assert manager(node, store).state == first.state
    assert first.memory_numa_nodes(wanted, wanted.containers[0]) == {0}
    assert [block.size for block in first.allocatable_memory()] == [900 * MIB, 900 * MIB]


def test_a_created_container_frees_the_init_containers_before_it() -> None:
    wanted = pod(container("app", memory_mib=200), init=[container("init", memory_mib=500)])
    node = FakeNode([wanted])
    of = manager(node, CountingStore())
    for one in wanted.all_containers:
        of.allocate(wanted, one)

    of.add_container(wanted, wanted.containers[0], "id")

    assert free_mib(of.state) == [700, 900]
    of.remove_container("id")
    assert free_mib(of.state) == [900, 900]


def test_memory_of_deleted_pods_is_released() -> None:
    node = FakeNode([asking(500)])
    of = manager(node, CountingStore())
    of.allocate(node.pods[0], node.pods[0].containers[0])
    node.pods = []

    of.remove_stale_state()

    assert of.state == static.start(StaticMemoryPolicy(TWO, RESERVED), MemoryState())


@given(st.lists(st.integers(1, 1200), max_size=8), st.randoms(use_true_random=False))
def test_the_sum_of_free_and_allocated_memory_is_constant(sizes: list[int], order: Any) -> None:
    state = started()
    placed = []
    for number, size in enumerate(sizes):
        try:
            state = given_to(state, asking(size, f"pod{number}"))
        except AllocationError:
            continue
        placed.append(number)
        held = sum(sizes[one] for one in placed)
        assert sum(free_mib(state)) == 1800 - held
        assert static.start(POLICY, state) == state
    order.shuffle(placed)
    for number in placed:
        state = static.release(POLICY, state, f"pod{number}", "app")
    assert is_same(state.machine, started().machine)
