"""The plugin numa: the nodes that admit a pod, its zones, and the messages."""

from collections.abc import Mapping
from typing import Any

import pytest

from bindery.kube.objects import watched as kube
from bindery.kube.objects.nodetopologies import NodeResourceTopology
from tests.scheduler.numaworld import (
    BEST_EFFORT,
    RESTRICTED,
    SINGLE,
    NumaWorld,
    aligned_pod,
    container,
    numa_node,
    report,
)
from tests.scheduler.schedulerworld import GPU, gang, group, node, pod, report_of

# The zones have 4 CPUs and 8 GiB each.
MASKS: list[tuple[str, str, Mapping[str, Any], list[int], list[int] | None]] = [
    (SINGLE, "container", {"cpu": 4}, [4, 4], [0]),
    (SINGLE, "container", {"cpu": 5}, [4, 4], None),
    (SINGLE, "container", {"cpu": 3}, [2, 4], [1]),
    (SINGLE, "container", {"cpu": 3}, [2, 2], None),
    (RESTRICTED, "container", {"cpu": 5}, [4, 4], None),  # its memory fits one zone
    (RESTRICTED, "container", {"cpu": 5, "memory": "9Gi"}, [4, 4], [0, 1]),
    (RESTRICTED, "container", {"cpu": 3}, [2, 2], None),
    (RESTRICTED, "container", {"cpu": 3}, [2, 3], [1]),
    (BEST_EFFORT, "container", {"cpu": 3}, [2, 2], [0, 1]),
    ("none", "container", {"cpu": 3}, [2, 2], [0, 1]),
    (SINGLE, "pod", {"cpu": 3}, [2, 4], [1]),
]


@pytest.mark.parametrize(("policy", "scope", "asked", "free", "expected"), MASKS)
def test_a_node_gets_only_pods_that_its_topology_manager_admits(
    policy: str, scope: str, asked: Mapping[str, Any], free: list[int], expected: list[int] | None
) -> None:
    world = NumaWorld(
        numa_node("n"),
        report("n", policy=policy, scope=scope, free={"cpu": free}),
        aligned_pod("p", **asked),
    )

    assert world.zones() == ({"p": ("n", expected)} if expected is not None else {})


def test_a_pod_that_no_node_can_align_waits_with_the_reason() -> None:
    world = NumaWorld(
        numa_node("a"),
        numa_node("b"),
        report("a", free={"cpu": [2, 2]}),
        report("b"),
        aligned_pod("p", cpu=3),
        aligned_pod("q", cpu=5),
    )

    assert world.zones() == {"p": ("b", [0])}
    text = "2 have too small NUMA zones"
    assert text in report_of(world.engine, "q").message


def test_a_gang_that_no_node_can_align_waits_with_the_reason() -> None:
    items = [group("g", 2), *(aligned_pod(f"g-{i}", cpu=3, group="g") for i in range(2))]
    world = NumaWorld(numa_node("n"), report("n", free={"cpu": [4, 2]}), *items)

    assert world.zones() == {}
    message = report_of(world.engine, "g").message
    assert "1 cannot align it to their NUMA zones" in message, message


def test_pods_of_a_gang_are_predicted_one_after_another() -> None:
    items = [group("g", 4), *(aligned_pod(f"g-{i}", cpu=2, group="g") for i in range(4))]
    world = NumaWorld(numa_node("n"), report("n"), *items)

    planned = world.zones()

    assert sorted(zones[0] for _, zones in planned.values() if zones) == [0, 0, 1, 1]
    assert world.zones() == {}


def test_a_gang_is_bound_whole_or_not_at_all() -> None:
    items = [group("g", 3), *(aligned_pod(f"g-{i}", cpu=3, group="g") for i in range(3))]
    world = NumaWorld(numa_node("n"), report("n"), *items, aligned_pod("single", cpu=4))

    assert world.zones() == {"single": ("n", [0])}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"cpu": 1, "gpu": 2, "guaranteed": False}, [1]),  # devices of other pods are aligned
        ({"cpu": "2500m", "gpu": 2}, [1]),  # parts of CPUs do not count
        ({"cpu": "2500m"}, [0]),  # its memory does
        ({"cpu": 6, "guaranteed": False}, None),  # neither CPUs nor memory
    ],
)
def test_only_resources_that_the_kubelet_aligns_count(
    asked: Mapping[str, Any], expected: list[int] | None
) -> None:
    of_zone = {"cpu": 4, "memory": 8, GPU: 2}
    world = NumaWorld(
        numa_node("n", gpu=2),
        report("n", of_zone, free={"cpu": [4, 2], GPU: [1, 2]}),
        aligned_pod("p", **asked),
    )

    assert world.zones() == {"p": ("n", expected)}


def test_init_containers_leave_their_cpus_to_later_containers() -> None:
    def with_init(sidecar: bool) -> kube.Pod:
        init = container(3, name="init", restart_policy="Always" if sidecar else None)
        return pod("p", containers=[container(3, name="app")], init_containers=[init])

    for sidecar, expected in ((False, {"p": ("n", [0])}), (True, {})):
        world = NumaWorld(numa_node("n"), report("n", scope="pod"), with_init(sidecar))
        assert world.zones() == expected


def test_fewer_zones_are_preferred_to_a_fuller_node() -> None:
    world = NumaWorld(
        numa_node("a", cpu=8),
        numa_node("b", cpu=8),
        report("a", {"cpu": 8}, policy=BEST_EFFORT, free={"cpu": [2, 2]}),
        report("b", {"cpu": 8}, policy=BEST_EFFORT),
        pod("filler", cpu=8, on="a"),
        aligned_pod("p", cpu=4),
    )

    assert world.zones() == {"p": ("b", [0])}


def test_nearer_zones_are_preferred() -> None:
    far, near = [[10, 40], [40, 10]], [[10, 12], [12, 10]]
    world = NumaWorld(
        numa_node("a"),
        numa_node("b"),
        report("a", {"cpu": 4}, policy=RESTRICTED, costs=far),
        report("b", {"cpu": 4}, policy=RESTRICTED, costs=near),
        aligned_pod("p", cpu=6),
    )

    assert world.zones() == {"p": ("b", [0, 1])}


def test_nodes_without_a_report_and_unaligned_pods_are_not_affected() -> None:
    world = NumaWorld(node("n", cpu=8), aligned_pod("p", cpu=5), pod("q", cpu=3))

    assert world.zones() == {"p": ("n", None), "q": ("n", None)}


def test_a_new_report_counts_and_a_deleted_report_does_not() -> None:
    world = NumaWorld(numa_node("n"))
    world.put(report("n"), aligned_pod("p", cpu=5))
    assert world.zones() == {}

    world.remove(report("n"))
    assert world.zones() == {"p": ("n", None)}


CONTRADICTIONS: list[tuple[NodeResourceTopology, str]] = [
    (report("n", {"cpu": 5}), "its zones have a capacity of 10 cpu, and the node 8"),
    (report("n", {"cpu": 1}, zones=9), "it has 9 zones; a kubelet supports 8"),
    (report("n", {"cpu": -1}), "zone node-0, cpu: an amount is negative"),
    (report("n", free={"cpu": [5, 1]}), "must not decrease in this order"),
    (report("n", policy="strict"), "unknown topology manager policy 'strict'"),
    (report("n", scope="cgroup"), "unknown topology manager scope 'cgroup'"),
    (report("n", costs=[[10, 20, 30], [20, 10, 30]]), "has a distance to node-2, not a zone"),
    (report("n", annotations={"scheduling.bindery.dev/numa-detail": "{"}), "numa-detail"),
]


@pytest.mark.parametrize(("stored", "text"), CONTRADICTIONS, ids=[t for _, t in CONTRADICTIONS])
def test_a_report_that_contradicts_its_node_is_reported_once_and_not_used(
    stored: NodeResourceTopology, text: str
) -> None:
    world = NumaWorld(
        numa_node("n"), stored, numa_node("o"), report("o", free={"cpu": [2, 2]}),
        aligned_pod("p", cpu=3),
    )  # fmt: skip

    assert world.zones() == {"p": ("n", None)}  # the other node would refuse it
    (problem,) = world.engine.cluster.problems
    assert (problem.kind, problem.meta.name) == ("Node", "n")
    assert problem.reason == "InvalidNodeResourceTopology"
    assert text in problem.message
    world.put(stored)
    world.drafts()
    assert len(world.engine.cluster.problems) == 1


def test_a_problem_is_reported_on_a_report_of_a_missing_node() -> None:
    world = NumaWorld(report("ghost"), numa_node("n"), report("n"), aligned_pod("p"))

    assert world.zones() == {"p": ("n", [0])}
    (problem,) = world.engine.cluster.problems
    assert (problem.kind, problem.message) == ("NodeResourceTopology", "there is no node ghost")


def test_the_order_of_nodes_and_reports_does_not_matter() -> None:
    world = NumaWorld(report("n"), numa_node("n"), aligned_pod("p", cpu=5))

    assert world.zones() == {}
    assert not world.engine.cluster.problems


def test_pods_that_the_kubelet_does_not_align_fit_any_zone() -> None:
    world = NumaWorld(numa_node("n"), report("n"), *gang("g", 4, cpu=2))

    assert world.zones() == {f"g-{i}": ("n", None) for i in range(4)}
