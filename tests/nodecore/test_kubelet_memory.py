"""The memory manager answers as the kubelet's, case by case."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from bindery.nodecore.errors import AllocationError, ConfigurationError, StateError
from bindery.nodecore.features import Features
from bindery.nodecore.machine import HugePages, Machine, NumaNode
from bindery.nodecore.masks import nodes_of
from bindery.nodecore.memory import hints as memory_hints
from bindery.nodecore.memory import manager, requests, static, tables
from bindery.nodecore.memory.state import MemoryState
from bindery.nodecore.memory.static import ReusableMemory, StaticMemoryPolicy
from bindery.nodecore.numamemory import Block, MemoryTable, NumaNodeState
from bindery.nodecore.pods import resources
from bindery.nodecore.topology.hints import Hint, ProviderHints
from tests.nodecore.kubelettables import Json, by_container, cases, hint, hints, mask, pod


def policy(case: Json) -> StaticMemoryPolicy:
    reserved = {int(node): amounts for node, amounts in (case.get("reserved") or {}).items()}
    return StaticMemoryPolicy(machine(case), reserved, features(case))


def features(case: Json) -> Features:
    on = case.get("features", [])
    return Features(
        pod_level_resource_managers=case.get("pod_level", "PodLevelResourceManagers" in on)
    )


def machine(case: Json) -> Machine:
    return Machine(
        tuple(
            NumaNode(
                node["id"],
                memory_bytes=node["memory"],
                huge_pages=tuple(HugePages(*pages) for pages in node["pages"]),
            )
            for node in case.get("nodes") or ()
        )
    )


def states(found: Json | None) -> dict[int, NumaNodeState]:
    return {
        int(node): NumaNodeState(
            of["assignments"],
            {name: MemoryTable(*amounts) for name, amounts in of["memory"].items()},
            tuple(of["cells"]),
        )
        for node, of in (found or {}).items()
    }


def blocks(found: Iterable[tuple[list[int], str, int]]) -> tuple[Block, ...]:
    return tuple(Block(tuple(nodes), resource, size) for nodes, resource, size in found)


def state(case: Json) -> MemoryState:
    return MemoryState(states(case.get("machine")), by_container(case["held"], blocks))


def check_after(case: Json, found: MemoryState) -> None:
    assert by_container(found.containers, set) == by_container(
        by_container(case["held_after"], blocks), set
    )
    assert tables.is_same(found.machine, states(case["machine_after"]))


def refusal(
    case: Json, kind: type[Exception] | tuple[type[Exception], ...]
) -> AbstractContextManager[Any]:
    """Return the check that the error of the case is raised, if it has one."""
    return pytest.raises(kind) if case["error"] else nullcontext()


def check_refusal(case: Json, run: Callable[[], MemoryState]) -> None:
    """Check the error of the case, or what is held afterwards."""
    with refusal(case, (AllocationError, StateError)) as error:
        check_after(case, run())
    if error is not None:
        assert str(error.value) == case["error"]


@cases("memory", "new")
def test_the_policy_needs_reserved_memory(case: Json) -> None:
    with refusal(case, ConfigurationError) as error:
        policy(case)
    if error is not None:
        assert str(error.value) == case["error"]


@cases("memory", "start")
def test_the_policy_starts_from_a_valid_state(case: Json) -> None:
    check_refusal(case, lambda: static.start(policy(case), state(case)))


def place(case: Json) -> Hint:
    return hint(case["hint"]) if case.get("hint") else Hint(None, preferred=False)


@cases("memory", "allocate")
def test_a_container_gets_its_memory(case: Json) -> None:
    asking = pod(case["pod"])
    check_refusal(
        case,
        lambda: (
            static.allocate(
                policy(case),
                state(case),
                ReusableMemory(),
                asking,
                asking.containers[0],
                place(case),
            ).state
        ),
    )


@cases("memory", "allocate_all")
def test_each_container_of_a_pod_gets_its_memory(case: Json) -> None:
    asking = pod(case["pod"])

    def allocate() -> MemoryState:
        found, reusable = state(case), ReusableMemory()
        for container in asking.all_containers:
            done = static.allocate(policy(case), found, reusable, asking, container, place(case))
            found, reusable = done.state, done.reusable
        return found

    check_refusal(case, allocate)


@cases("memory", "allocate_pod")
def test_a_pod_with_pod_level_resources_gets_its_memory(case: Json) -> None:
    check_refusal(
        case,
        lambda: static.allocate_pod(policy(case), state(case), pod(case["pod"]), place(case)),
    )


@cases("memory", "release")
def test_memory_returns_to_its_nodes(case: Json) -> None:
    check_after(case, static.release(policy(case), state(case), "pod1", "container1"))


def by_resource(found: ProviderHints) -> dict[str, set[Hint] | None]:
    return {name: None if one is None else set(one) for name, one in (found or {}).items()}


def expected(case: Json) -> dict[str, set[Hint] | None]:
    return {
        name: None if one is None else hints(one) for name, one in (case["hints"] or {}).items()
    }


@cases("memory", "hints")
def test_a_container_has_hints(case: Json) -> None:
    asking = pod(case["pod"])
    found = static.container_hints(
        policy(case), state(case), ReusableMemory(), asking, asking.containers[0]
    )

    assert by_resource(found) == expected(case)
    assert (found is None) == (case["hints"] is None)


@cases("memory", "pod_hints")
def test_a_pod_has_hints(case: Json) -> None:
    found = static.pod_hints(policy(case), state(case), ReusableMemory(), pod(case["pod"]))

    assert by_resource(found) == expected(case)
    assert (found is None) == (case["hints"] is None)


@cases("memory", "pod_memory")
def test_the_memory_of_a_pod_at_one_time_is_counted(case: Json) -> None:
    assert requests.of_pod(pod(case["pod"]), Features()) == case["sizes"]


@cases("memory", "violations")
def test_nodes_in_use_join_no_other_group(case: Json) -> None:
    group = nodes_of(mask(case["nodes"]) or 0)

    assert memory_hints.violates(states(case["machine"]), group) == case["violates"]


@cases("memory", "shared_pool")
def test_containers_without_pinned_memory_need_shared_memory_of_the_pod(case: Json) -> None:
    asking = pod(case["pod"])
    with refusal(case, AllocationError) as error:
        requests.check_shared_pool(asking, features(case))
    if error is not None:
        assert str(error.value) == case["error"]


def reservations(case: Json) -> manager.Reservations:
    return [(node, resources(limits)) for node, limits in case["reservations"]]


@cases("memory", "reserved")
def test_reserved_memory_is_spread_over_the_nodes(case: Json) -> None:
    with refusal(case, ConfigurationError) as error:
        found = manager.system_reserved(
            machine(case), resources(case["node_reserved"]), reservations(case)
        )
        if "reserved" in case:
            assert {str(node): of for node, of in found.items()} == case["reserved"]
    if error is not None:
        assert str(error.value) == case["error"]


@cases("memory", "managers")
def test_the_manager_starts_only_with_settings_valid_for_the_machine(case: Json) -> None:
    with refusal(case, ConfigurationError) as error:
        manager.configure(
            case["policy"], machine(case), resources(case["node_reserved"]), reservations(case)
        )
    if error is not None:
        assert str(error.value) == case["error"]
