"""Gangs, elastic extras, promises and the order in which jobs are served."""

import pytest

from bindery.kube.objects.podgroups import SubGroup
from bindery.kube.objects.watched import KubeObject, Meta, PriorityClass
from tests.scheduler.schedulerworld import (
    add,
    as_created,
    delete,
    engine_with,
    gang,
    group,
    modify,
    node,
    plan,
    pod,
    queue,
    report_of,
)

LEAVING = "2025-06-15T15:06:41Z"
"""Shortly before the clock's time."""


def test_a_gang_that_lacks_one_place_binds_no_pod() -> None:
    engine = engine_with(node("n1", 2), node("n2", 1), *gang("g", 4))

    assert plan(engine) == {}
    report = report_of(engine, "g")
    assert (report.reason, report.satisfied) == ("Unschedulable", False)
    assert report.message == (
        "3 of 4 pods fit; for the next one 0/2 nodes are available: 2 insufficient cpu"
    )


def test_extra_pods_are_bound_one_by_one_while_there_is_room() -> None:
    engine = engine_with(node("n", 3), *gang("g", 5, 2))

    assert plan(engine) == {"g-0": "n", "g-1": "n", "g-2": "n"}
    report = report_of(engine, "g")
    assert (report.reason, report.satisfied) == ("Scheduled", True)
    assert report.message.startswith("2 more pods wait: 0/1 nodes are available")


def test_extra_pods_of_another_shape_do_not_wait_for_one_that_does_not_fit() -> None:
    items = [
        group("g", 1),
        pod("g-0", group="g"),
        pod("g-1", cpu=9, group="g"),
        pod("g-2", group="g"),
    ]

    assert plan(engine_with(node("n"), *items)) == {"g-0": "n", "g-2": "n"}


def test_a_minimum_of_zero_makes_every_pod_independent() -> None:
    engine = engine_with(node("n", 2), *gang("g", 3, 0))

    assert plan(engine) == {"g-0": "n", "g-1": "n"}


def test_pods_that_run_or_have_succeeded_count_towards_the_minimum() -> None:
    engine = engine_with(
        node("n"),
        group("g", 3),
        pod("g-0", group="g", on="n"),
        pod("g-1", group="g", on="n", phase="Succeeded"),
        pod("g-2", group="g"),
        pod("g-3", group="g", on="n", phase="Failed"),
    )

    assert plan(engine) == {"g-2": "n"}


def test_a_gang_waits_for_pods_that_do_not_exist_yet() -> None:
    engine = engine_with(node("n"), *gang("g", 2, 3), pod("g-x", group="g", gated=True))

    assert plan(engine) == {}
    report = report_of(engine, "g")
    assert report.reason == "NotEnoughPods"
    assert report.message == "2 of 3 required pods exist, 1 more is gated"


def test_a_gang_reports_the_roles_and_sub_groups_that_lack_pods() -> None:
    parts = [SubGroup(name=name, min_member=2) for name in ("left", "right")]
    engine = engine_with(
        node("n"),
        group("by-role", 2, roles={"leader": 1, "worker": 1}),
        *(pod(f"r-{i}", group="by-role", role="worker") for i in range(2)),
        group("by-part", 3, sub_groups=parts),
        *(pod(f"p-{i}", group="by-part", sub_group="left") for i in range(3)),
    )

    assert plan(engine) == {}
    assert report_of(engine, "by-role").message == (
        "2 pods exist, but too few of role leader (0 of 1)"
    )
    assert report_of(engine, "by-part").message == (
        "3 pods exist, but too few of sub-group right (0 of 2)"
    )


def test_a_negative_minimum_affects_only_its_gang() -> None:
    engine = engine_with(node("n"), *gang("bad", 2, -1), pod("fine"))

    assert plan(engine) == {"fine": "n"}
    assert report_of(engine, "bad").reason == "Invalid"
    assert "spec.minMember is -1" in report_of(engine, "bad").message


# ---- promises -----------------------------------------------------------------------------------


def test_a_gang_with_one_pod_on_releasing_room_waits_whole() -> None:
    old = pod("old", cpu=2, on="n2", deleting=LEAVING)
    engine = engine_with(node("n1", 2), node("n2", 2), old, *gang("g", 2, cpu=2))

    assert plan(engine) == {}
    report = report_of(engine, "g")
    assert report.reason == "WaitsForRelease"
    assert {pod.state for pod in report.pods.values()} == {"Pipelined"}

    delete(engine.cluster, old)
    assert plan(engine) == {"g-0": "n1", "g-1": "n2"}


def test_an_extra_pod_with_promised_room_is_placed_in_the_next_cycle() -> None:
    old = pod("old", on="n", deleting=LEAVING)
    items = [group("g", 0), pod("g-0", group="g"), pod("g-1", group="g")]
    engine = engine_with(node("n", 2), old, *items)
    assert plan(engine) == {"g-0": "n"}

    delete(engine.cluster, old)

    assert plan(engine) == {"g-1": "n"}


def test_promised_room_is_given_to_no_other_job_in_the_cycle() -> None:
    old = pod("old", cpu=2, on="n2", deleting=LEAVING)
    engine = engine_with(node("n1", 2), node("n2", 2), old, *gang("a", 2, cpu=2), pod("b", cpu=2))

    assert plan(engine) == {}
    assert report_of(engine, "b").reason == "Unschedulable"


def test_extra_pods_do_not_take_the_promised_places_of_the_gang() -> None:
    old = pod("old", cpu=2, gpu=1, on="n", deleting=LEAVING)
    items = [
        group("g", 2),
        *(pod(f"g-{i}", gpu=1, group="g", priority=9) for i in range(2)),
        *(pod(f"g-{i}", group="g") for i in range(2, 6)),
    ]
    engine = engine_with(node("n", 8, gpu=2), old, *items)

    assert plan(engine) == {}
    assert report_of(engine, "g").reason == "WaitsForRelease"


def test_room_of_a_long_overdue_terminating_pod_is_not_promised() -> None:
    old = pod("old", cpu=2, on="n", deleting="2025-06-15T14:00:00Z")
    engine = engine_with(node("n", 2), old, pod("new", cpu=2))

    assert plan(engine) == {}
    assert report_of(engine, "new").reason == "Unschedulable"


# ---- order --------------------------------------------------------------------------------------


def first_served(*items: KubeObject) -> str:
    """Return whose pod gets the only place."""
    (winner,) = plan(engine_with(node("n", 1), *items))
    return winner.rpartition("-")[0]


def test_the_queue_with_the_higher_priority_is_served_first() -> None:
    items = [queue("low"), queue("top", priority=200)]

    assert first_served(*items, *gang("a", 1, queue="low"), *gang("z", 1, queue="top")) == "z"


def test_the_job_with_the_higher_priority_class_is_served_first() -> None:
    high = PriorityClass(metadata=Meta(name="high"), value=1000)
    urgent = [group("z", priority_class="high"), pod("z-0", group="z")]

    assert first_served(high, *gang("a", 1), *urgent) == "z"


def test_a_job_without_a_class_has_the_priority_of_its_highest_pod() -> None:
    assert first_served(*gang("a", 1), *gang("z", 1, priority=7)) == "z"


def test_the_queue_with_the_smallest_allocation_is_served_first() -> None:
    items = [queue("a"), queue("z"), node("m"), pod("r", on="m", queue="a")]

    engine = engine_with(*items, *gang("a", 1, cpu=5, queue="a"), *gang("z", 1, cpu=5, queue="z"))

    assert plan(engine) == {"z-0": "m"}


def test_a_job_below_its_minimum_is_served_before_a_satisfied_job() -> None:
    has = [group("a", 1), pod("a-0", group="a", on="m"), pod("a-1", group="a")]

    assert first_served(*has, *gang("z", 1)) == "z"


def test_jobs_are_served_by_age_and_then_by_name() -> None:
    old = [group("z", created="2025-01-01T00:00:00Z"), pod("z-0", group="z")]
    new = [group("a", created="2025-02-01T00:00:00Z"), pod("a-0", group="a")]

    assert first_served(*new, *old) == "z"
    assert first_served(*gang("b", 1), *gang("a", 1)) == "a"


def test_pods_are_placed_by_priority_then_in_the_order_of_their_numbers() -> None:
    names = ["w-10", "w-9", "w-1"]
    pods = [pod(name, group="w") for name in names]
    nodes = [node(f"n{i}", 1) for i in range(4)]

    engine = engine_with(*nodes, group("w", 4), *pods, pod("w-11", group="w", priority=1))

    assert plan(engine) == {"w-11": "n0", "w-1": "n1", "w-9": "n2", "w-10": "n3"}


# ---- limits -------------------------------------------------------------------------------------


def test_a_gang_over_the_limit_of_an_ancestor_queue_waits_and_names_the_queue() -> None:
    queues = [queue("org", cpu=3), queue("team", parent="org")]
    engine = engine_with(
        node("n"), *queues, pod("r", on="n", queue="org"), *gang("g", 3, queue="team")
    )

    assert plan(engine) == {}
    report = report_of(engine, "g")
    assert report.reason == "OverLimit"
    assert report.message == (
        "queue org holds 1 of its limit of 3 cpu, and the job requests 3 more"
    )


@pytest.mark.parametrize(
    ("queues", "reason", "text"),
    [
        ([], "QueueDoesNotExist", "queue q does not exist"),
        ([queue("q", state="Closed")], "QueueClosed", "queue q is closed"),
        ([queue("q", parent="up")], "QueueDoesNotExist", "queue up does not exist"),
        ([queue("q", parent="q")], "QueueInvalid", "queue q is its own ancestor"),
        ([queue("q", parent="p"), queue("p", parent="q")], "QueueInvalid", "its own ancestor"),
        ([queue("q", cpu="much")], "QueueInvalid", "spec.resources.cpu.limit: 'much'"),
        ([queue("q", cpu=-2)], "QueueInvalid", "spec.resources.cpu.limit: -2 is negative"),
    ],
)
def test_an_unusable_queue_blocks_only_its_own_jobs(
    queues: list[KubeObject], reason: str, text: str
) -> None:
    engine = engine_with(node("n"), *queues, *gang("g", 1, queue="q"), pod("fine"))

    assert plan(engine) == {"fine": "n"}
    report = report_of(engine, "g")
    assert report.reason == reason
    assert text in report.message


def test_a_limit_of_minus_one_is_no_limit() -> None:
    engine = engine_with(node("n"), queue("q", cpu=-1, gpu="-1"), *gang("g", 3, queue="q"))

    assert len(plan(engine)) == 3


# ---- what happens to a plan ---------------------------------------------------------------------


def test_pods_of_a_request_are_not_planned_again_and_hold_their_room() -> None:
    engine = engine_with(node("n", 3), *gang("g", 2))
    drafts = list(engine.cycle())
    assert plan(engine) == {}

    for draft in drafts:
        add(engine.cluster, as_created(draft))
    add(engine.cluster, *gang("h", 2))

    assert plan(engine) == {}
    assert "1 of 2 pods fit" in report_of(engine, "h").message


def test_a_gang_with_a_raised_minimum_is_completed_once_its_first_pods_are_bound() -> None:
    engine = engine_with(node("n", 4), *gang("g", 2), pod("g-2", group="g", gated=True))
    assert len(plan(engine)) == 2

    modify(engine.cluster, group("g", 3), pod("g-2", group="g"))

    assert plan(engine) == {}
    assert report_of(engine, "g").reason == "CommitUnderWay"
    modify(engine.cluster, *(pod(f"g-{i}", group="g", on="n") for i in range(2)))
    assert plan(engine) == {"g-2": "n"}
