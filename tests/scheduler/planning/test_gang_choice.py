"""A gang is filled with the first of its pods that can be placed, not with its first pods."""

import pytest

from bindery.kube.objects import podspec
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import SubGroup
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import (
    Clock,
    engine_with,
    gang,
    group,
    node,
    plan,
    pod,
    queue,
    report_of,
)

HUGE = 99
"""More cores than any node has."""


def leaf(name: str, minimum: int) -> SubGroup:
    return SubGroup(name=name, min_member=minimum)


def test_a_pod_that_fits_replaces_an_earlier_pod_that_does_not() -> None:
    items = [group("g", 1), pod("g-0", cpu=HUGE, group="g"), pod("g-1", group="g")]

    assert plan(engine_with(node("n"), *items)) == {"g-1": "n"}


def test_a_gang_is_completed_by_the_pods_that_fit() -> None:
    items = [
        group("g", 2),
        pod("g-0", group="g", on="n"),
        pod("g-1", cpu=HUGE, group="g"),
        pod("g-2", group="g"),
    ]

    assert plan(engine_with(node("n"), *items)) == {"g-2": "n"}


def test_a_role_is_filled_by_the_pods_that_fit() -> None:
    items = [
        group("g", 2, roles={"leader": 1}),
        pod("g-0", cpu=HUGE, group="g", role="leader"),
        pod("g-1", group="g"),
        pod("g-2", group="g", role="leader"),
    ]

    assert plan(engine_with(node("n"), *items)) == {"g-1": "n", "g-2": "n"}


def test_a_role_without_a_pod_that_fits_keeps_its_gang_waiting() -> None:
    items = [
        group("g", 1, roles={"leader": 1}),
        pod("g-0", cpu=HUGE, group="g", role="leader"),
        pod("g-1", group="g"),
    ]
    engine = engine_with(node("n"), *items)

    assert plan(engine) == {}
    assert report_of(engine, "g").message == (
        "0/1 nodes are available: 1 have less cpu in all than requested"
    )


def test_sub_groups_are_filled_by_the_pods_that_fit() -> None:
    items = [
        group("g", 0, sub_groups=[leaf("a", 1), leaf("b", 1)]),
        pod("g-0", cpu=HUGE, group="g", sub_group="a"),
        pod("g-1", group="g", sub_group="a"),
        pod("g-2", cpu=HUGE, group="g", sub_group="b"),
        pod("g-3", group="g", sub_group="b"),
    ]

    assert plan(engine_with(node("n"), *items)) == {"g-1": "n", "g-3": "n"}


def test_the_first_pods_that_fit_beside_each_other_are_chosen() -> None:
    items = [
        group("g", 2),
        pod("g-0", cpu=3, group="g"),
        pod("g-1", cpu=3, group="g"),
        pod("g-2", cpu=1, group="g"),
    ]

    assert plan(engine_with(node("n", 4), *items)) == {"g-0": "n", "g-2": "n"}


def test_a_pod_that_no_plugin_admits_is_skipped() -> None:
    claims = [podspec.PodResourceClaim(name="c", resource_claim_name="is-not-there")]
    items = [
        group("g", 1),
        pod("g-0", group="g", resource_claims=claims),
        pod("g-1", group="g"),
    ]

    assert plan(engine_with(node("n"), *items)) == {"g-1": "n"}


def test_pods_that_exceed_the_queues_limit_are_skipped() -> None:
    items = [
        queue("q", cpu=4),
        group("g", 2, "q"),
        pod("g-0", cpu=5, group="g"),
        pod("g-1", cpu=3, group="g"),
        pod("g-2", cpu=3, group="g"),
        pod("g-3", cpu=1, group="g"),
    ]

    assert plan(engine_with(node("n"), *items)) == {"g-1": "n", "g-3": "n"}


def test_a_gang_over_its_queues_limit_waits_with_that_reason() -> None:
    engine = engine_with(node("n"), queue("q", cpu=4), *gang("g", 6, 5, queue="q"))

    assert plan(engine) == {}
    assert report_of(engine, "g").message == (
        "queue q holds 0 of its limit of 4 cpu, and the job requests 5 more, so that it alone is "
        "above the limit and can never run there"
    )


def test_a_gang_that_can_be_completed_is_not_stale() -> None:
    clock = Clock()
    items = [
        group("g", 2),
        pod("g-0", group="g", on="n"),
        pod("g-1", cpu=HUGE, group="g"),
        pod("g-2", group="g"),
    ]
    engine = engine_with(node("n"), *items, clock=clock)
    plan(engine)
    clock.now += 1000
    plan(engine)

    assert engine.report.evictions == []


def test_room_tried_for_one_sub_group_is_free_for_other_gangs() -> None:
    items = [
        group("a", 0, sub_groups=[leaf("x", 2), leaf("y", 2)], created="2025-01-01T00:00:00Z"),
        *(pod(f"a-{i}", group="a", sub_group="xxyy"[i]) for i in range(4)),
        group("b", 3, created="2025-01-02T00:00:00Z"),
        *(pod(f"b-{i}", group="b") for i in range(3)),
    ]

    assert plan(engine_with(node("n", 3), *items)) == {f"b-{i}": "n" for i in range(3)}


# ---- claims -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        pod("g-0", cpu=HUGE, group="g", priority=90),
        pod(
            "g-0",
            group="g",
            priority=90,
            resource_claims=[podspec.PodResourceClaim(name="c", resource_claim_name="none")],
        ),
    ],
    ids=["fits nowhere", "is not admitted"],
)
def test_victims_are_evicted_for_the_pod_that_fits_into_their_room(first: kube.Pod) -> None:
    engine = engine_with(
        node("n", 4),
        pod("low", cpu=4, on="n"),
        group("g", 1),
        first,
        pod("g-1", cpu=3, group="g", priority=90),
    )

    plan(engine)

    assert [each.task.name for each in engine.report.evictions] == ["low"]
    assert states(engine) == {"g-0": "Pending", "g-1": "Pipelined"}


def test_pods_move_for_the_pod_that_fits_into_their_room() -> None:
    engine = engine_with(
        *(node(name, 4) for name in ("n0", "n1")),
        pod("a", cpu=2, on="n0"),
        pod("b", cpu=2, on="n1"),
        group("g", 1),
        pod("g-0", cpu=5, group="g"),
        pod("g-1", cpu=4, group="g"),
    )

    plan(engine)

    assert [(each.action, each.moves_to) for each in engine.report.evictions] == [
        ("consolidation", "n0")
    ]
    assert states(engine) == {"g-0": "Pending", "g-1": "Pipelined"}


def test_nothing_is_evicted_for_a_gang_if_one_of_its_pods_can_never_fit() -> None:
    engine = engine_with(
        node("n", 4),
        pod("low", cpu=4, on="n"),
        group("g", 2),
        pod("g-0", cpu=HUGE, group="g", priority=90),
        pod("g-1", cpu=3, group="g", priority=90),
    )

    plan(engine)

    assert engine.report.evictions == []


def states(engine: Engine) -> dict[str, str]:
    """Return the state of each pod of the gang `g`."""
    report = report_of(engine, "g")
    return {each.name: each.state for each in report.pods.values()}
