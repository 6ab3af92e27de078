"""Moves that make room: only pods that would start again are moved."""

from collections.abc import Sequence

import pytest

from bindery.kube.objects.watched import KubeObject, Meta, PriorityClass
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import add, engine_with, group, modify, node, plan, pod
from tests.scheduler.volumeworld import claim, storage_class, user

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


def test_nothing_moves_if_the_claim_fits_without_that_at_the_places_that_were_found() -> None:
    """The first pod goes to n1, where the volume then is and the second does not fit."""
    engine = engine_with(
        storage_class("late", "csi.example"),
        claim("data", of="late"),
        node("n0", 8),
        node("n1", 4),
        node("n2", 2),
        pod("stays", cpu=4, on="n0", preemptible=False),
        pod("a", cpu=1, on="n1"),
        pod("b", cpu=1, on="n2"),
        group("g", 2),
        user("g-0", "data", cpu=2, group="g"),
        user("g-1", "data", cpu=2, group="g"),
    )

    assert moving(engine) == []
    assert plan(engine) == {"g-0": "n0", "g-1": "n0"}
