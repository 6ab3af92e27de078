"""Moves that make room: only pods that would start again are moved."""

from collections.abc import Sequence

import pytest

from bindery.kube.objects.watched import KubeObject, Meta, PriorityClass
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import add, engine_with, group, modify, node, plan, pod

KNOWN = PriorityClass(metadata=Meta(name="known"), value=50)


def moving(engine: Engine) -> list[tuple[str, str]]:
    """Plan once; return which pods are moved, and where to."""
    assert plan(engine) == {}
    return [(each.task.name, each.moves_to) for each in engine.report.evictions]


def fragmented(*running: KubeObject) -> Sequence[KubeObject]:
    """Return two nodes with 4 cores, what runs there, and a job that fits if a pod moves to n0."""
    stays = pod("stays", cpu=2, on="n0", preemptible=False)
    return [node("n0", 4), node("n1", 4), stays, *running, pod("waits", cpu=4)]


def test_a_pod_with_a_controller_moves() -> None:
    engine = engine_with(*fragmented(pod("a", cpu=2, on="n1")))

    assert moving(engine) == [("a", "n0")]


@pytest.mark.parametrize(
    "running",
    [
        [pod("a", cpu=2, on="n1", controlled=False)],
        [pod("a", cpu=2, on="n1", queue="nowhere")],
        [group("g", 1, priority_class="nobody-knows"), pod("a", cpu=2, on="n1", group="g")],
        [group("g", -1), pod("a", cpu=2, on="n1", group="g")],
        [group("g", 2), pod("a", cpu=2, on="n1", group="g")],
        [pod("a", cpu=2, on="n1", group="deleted")],
    ],
    ids=[
        "no controller",
        "no queue",
        "no such PriorityClass",
        "invalid PodGroup",
        "below its minimum",
        "no PodGroup",
    ],
)
def test_a_pod_that_would_not_start_again_is_not_moved(running: Sequence[KubeObject]) -> None:
    engine = engine_with(KNOWN, *fragmented(*running))

    assert moving(engine) == []


def test_a_gang_does_not_move_if_one_of_its_pods_would_not_be_recreated() -> None:
    members = [
        pod("g-0", on="n1", group="g"),
        pod("g-1", on="n1", group="g", controlled=False),
    ]
    engine = engine_with(*fragmented(group("g", 2), *members))

    assert moving(engine) == []


def test_a_pod_no_longer_moves_after_it_is_orphaned() -> None:
    engine = engine_with(*fragmented())
    add(engine.cluster, pod("a", cpu=2, on="n1"))
    modify(engine.cluster, pod("a", cpu=2, on="n1", controlled=False))

    assert moving(engine) == []
