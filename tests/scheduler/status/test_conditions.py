"""Conditions of objects, and that they are written only when they change."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Condition, Meta, Namespace, PodStatus
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, Uid
from bindery.scheduler.status.conditions import ConditionWrite, ReportedKind, pending_writes
from bindery.scheduler.status.gangs import eviction_text
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    add,
    delete,
    engine_with,
    gang,
    group,
    modify,
    node,
    plan,
    pod,
    queue,
)
from tests.sizes import examples

URGENT = JobKey("vision", "urgent", True)
EARLIER = "2025-06-15T10:00:00Z"
THEN = "2025-06-15T15:06:40Z"
"""The clock's time."""


def writes_of(engine: Engine) -> dict[str, ConditionWrite]:
    plan(engine)
    writes = list(pending_writes(engine.cluster, engine.report, NOW))
    engine.cluster.changed_jobs.clear()
    names = [write.meta.name for write in writes]
    assert len(names) == len(set(names))
    return dict(zip(names, writes, strict=True))


def says(write: ConditionWrite) -> tuple[ReportedKind, str, str, str]:
    condition = write.condition
    return write.subject, condition.type, condition.status, condition.reason


def test_a_waiting_gang_and_its_pods_report_the_reason() -> None:
    writes = writes_of(engine_with(node("n"), *gang("g", 9)))

    assert says(writes["g"]) == (ReportedKind.POD_GROUP, "Scheduled", "False", "Unschedulable")
    assert says(writes["g-0"]) == (ReportedKind.POD, "PodScheduled", "False", "Unschedulable")
    text = writes["g"].condition.message
    assert writes["g-8"].condition.message == text
    assert writes["g-0"].condition.message == f"it had a place, but its gang was given up: {text}"
    assert writes["g"].condition.last_transition_time == THEN
    assert all(write.is_urgent for write in writes.values())


def test_a_planned_gang_is_scheduled_and_its_pods_get_no_condition() -> None:
    writes = writes_of(engine_with(node("n"), *gang("g", 2)))

    assert set(writes) == {"g"}
    assert says(writes["g"]) == (ReportedKind.POD_GROUP, "Scheduled", "True", "Scheduled")
    assert not writes["g"].is_urgent


def test_waiting_extra_pods_of_a_scheduled_gang_report_the_reason() -> None:
    writes = writes_of(engine_with(node("n", 2), *gang("g", 3, 2)))

    assert says(writes["g"])[2] == "True"
    assert writes["g"].condition.message.startswith("1 more pod waits: ")
    assert says(writes["g-2"])[2] == "False"


def test_a_gang_that_needs_no_pods_waits_while_none_of_its_pods_has_a_place() -> None:
    engine = engine_with(node("n"), *gang("g", 2, 0, cpu=9))

    writes = writes_of(engine)

    assert says(writes["g"])[2:] == ("False", "Unschedulable")
    assert writes["g"].state == "Waiting"
    assert writes["g"].condition.message.startswith("0/1 nodes are available")
    assert says(writes["g-0"])[2:] == ("False", "Unschedulable")


def test_a_gang_that_needs_no_pods_is_scheduled_with_the_first_of_them() -> None:
    engine = engine_with(node("n"), *gang("g", 2, 0, cpu=5))
    plan(engine)
    modify(engine.cluster, pod("g-0", group="g", cpu=5, on="n"))

    write = writes_of(engine)["g"]

    assert (says(write)[2:], write.state) == (("True", "Scheduled"), "Running")
    assert write.condition.message.startswith("1 more pod waits: 0/1 nodes are available")


def test_a_gang_that_needs_no_pods_reports_that_all_of_them_are_gated() -> None:
    write = writes_of(engine_with(node("n"), group("g", 0), pod("p", group="g", gated=True)))["g"]

    assert says(write)[2:] == ("False", "SchedulingGated")
    assert (write.condition.message, write.state) == ("1 pod is gated", "Waiting")


def test_gated_pods_get_no_condition() -> None:
    assert writes_of(engine_with(node("n"), pod("p", gated=True))) == {}


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([pod("p", cpu=9)], "Unschedulable"),
        ([queue("q", cpu=1), pod("p", cpu=2, queue="q")], "OverLimit"),
        ([pod("p", queue="missing")], "QueueDoesNotExist"),
        ([queue("q", state="Closed"), pod("p", queue="q")], "QueueClosed"),
        ([pod("p", group="missing")], "PodGroupDoesNotExist"),
        ([group("g", 3), pod("p", group="g")], "NotEnoughPods"),
        (
            [group("g", 1), pod("a", group="g", on="n", cpu=8), pod("p", group="g", cpu=8)],
            "Unschedulable",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_pod_looks_unschedulable_to_autoscalers_only_for_lack_of_room(
    items: list[Any], reason: str
) -> None:
    write = writes_of(engine_with(node("n"), *items))["p"]

    assert says(write) == (ReportedKind.POD, "PodScheduled", "False", reason)


def test_a_gang_without_pods_that_needs_none_is_idle_and_waits_for_nothing() -> None:
    engine = engine_with(node("n"), group("none", 0), group("some", 1))

    writes = writes_of(engine)

    assert (says(writes["none"])[2:], writes["none"].state) == (("True", "Idle"), "Idle")
    assert (says(writes["some"])[2:], writes["some"].state) == (
        ("False", "NotEnoughPods"),
        "Waiting",
    )


def test_an_unchanged_condition_is_not_written() -> None:
    engine = engine_with(node("n"), *gang("g", 9))
    writes = writes_of(engine)
    modify(
        engine.cluster,
        told(engine, writes["g"]),
        *(pod(f"g-{i}", group="g", conditions=writes[f"g-{i}"].all_conditions) for i in range(9)),
    )

    assert writes_of(engine) == {}


def test_a_new_message_keeps_the_transition_time() -> None:
    old = Condition(
        type="PodScheduled", status="False", reason="Unschedulable", message="old words",
        last_transition_time=EARLIER,
    )  # fmt: skip
    writes = writes_of(engine_with(node("n"), pod("p", cpu=9, conditions=[old])))

    assert writes["p"].condition.message.startswith("0/1 nodes are available")
    assert writes["p"].condition.last_transition_time == EARLIER


def test_a_transition_sets_its_time_and_keeps_other_conditions() -> None:
    other = Condition(type="Quota", status="True")
    old = Condition(type="Scheduled", status="False", last_transition_time=EARLIER)
    engine = engine_with(node("n"), group("g", 1, conditions=[old, other]), pod("a", group="g"))

    write = writes_of(engine)["g"]

    assert write.condition.last_transition_time == THEN
    assert write.all_conditions == (other, write.condition)


def test_a_long_message_is_truncated() -> None:
    selector = {f"key-{i}": "x" * 60 for i in range(40)}
    nodes = [node(f"n{i}", labels=dict(list(selector.items())[:i])) for i in range(len(selector))]
    writes = writes_of(engine_with(*nodes, pod("p", node_selector=selector)))

    assert len(writes["p"].condition.message) == 1024


def test_an_invalid_gang_is_not_scheduled() -> None:
    writes = writes_of(engine_with(node("n"), *gang("g", 2, -1)))

    assert says(writes["g"]) == (ReportedKind.POD_GROUP, "Scheduled", "False", "Invalid")


def test_a_message_changes_with_the_reason_and_not_with_time() -> None:
    clock = Clock()
    engine = engine_with(node("n"), pod("p", cpu=9), clock=clock)
    first = writes_of(engine)["p"]
    modify(engine.cluster, pod("p", cpu=9, conditions=[first.condition]))
    clock.now += 1000

    assert writes_of(engine) == {}
    modify(engine.cluster, node("n", unschedulable=True))
    assert "cordoned" in writes_of(engine)["p"].condition.message


def test_conditions_follow_from_the_current_objects_and_not_from_past_events() -> None:
    waits = Condition(type="Scheduled", status="False", reason="Unschedulable")
    engine = engine_with(
        node("n"),
        group("g", 2, conditions=[waits]),
        pod("a", group="g", on="n"),
        pod("b", group="g", on="n"),
    )

    write = writes_of(engine)["g"]

    assert (says(write)[2:], write.state) == (("True", "Scheduled"), "Running")


def test_the_state_binding_is_written_only_if_binding_takes_long() -> None:
    engine = engine_with(node("n"), *gang("g", 2))
    write = writes_of(engine)["g"]

    assert (write.state, write.is_urgent) == ("Binding", False)
    assert write.patience_s > 0

    modify(engine.cluster, *(pod(f"g-{i}", group="g", on="n") for i in range(2)))
    write = writes_of(engine)["g"]
    assert (write.state, write.patience_s) == ("Running", 0.0)


def test_a_gang_with_ended_pods_is_finished_also_after_their_deletion() -> None:
    ends = {"g-0": "Succeeded", "g-1": "Failed"}
    pods = [pod(name, group="g", on="n", phase=phase) for name, phase in ends.items()]
    engine = engine_with(node("n"), group("g", 2), *pods)

    write = writes_of(engine)["g"]
    assert (says(write)[2:], write.state) == (("True", "Finished"), "Finished")
    assert write.condition.message == "1 pod succeeded, 1 failed"

    delete(engine.cluster, *pods)
    modify(engine.cluster, told(engine, write))
    assert writes_of(engine) == {}


def test_the_count_of_pods_is_current_after_deletions() -> None:
    engine = engine_with(node("n"), group("g", 3), *(pod(f"g-{i}", group="g") for i in range(2)))
    write = writes_of(engine)["g"]
    assert write.condition.message == "2 of 3 required pods exist"
    assert not write.is_urgent

    modify(engine.cluster, told(engine, write))
    delete(engine.cluster, pod("g-0", group="g"), pod("g-1", group="g"))
    write = writes_of(engine)["g"]
    assert says(write)[2:] == ("False", "NotEnoughPods")
    assert write.condition.message == "0 of 3 required pods exist"


def test_an_evicted_gang_keeps_its_eviction_condition_when_it_runs_again() -> None:
    clock = Clock()
    engine = engine_with(node("n"), group("g", 2), clock=clock)
    bound = [pod(f"g-{i}", group="g", on="n") for i in range(2)]
    add(engine.cluster, *bound)
    modify(engine.cluster, told(engine, writes_of(engine)["g"]))

    for task in list(engine.cluster.state.tasks.values()):
        preemptor = JobKey("vision", "urgent", True)
        engine.evicted(Eviction(task, "reclaim for vision/urgent", preemptor, action="reclaim"))
    delete(engine.cluster, *bound)
    write = writes_of(engine)["g"]
    scheduled, evicted = write.all_conditions

    assert (says(write)[2:], write.state) == (("False", "Evicted"), "Evicted")
    assert (evicted.type, evicted.status, evicted.reason) == ("Evicted", "True", "Reclaim")
    assert evicted.message == (
        f"2 pods were evicted, the last at {THEN}: reclaim for vision/urgent"
    )
    assert evicted.message in scheduled.message

    modify(engine.cluster, told(engine, write))
    add(engine.cluster, pod("g-2", group="g"), pod("g-3", group="g"))
    write = writes_of(engine)["g"]
    evicted = next(each for each in write.all_conditions if each.type == "Evicted")
    assert (says(write)[2], write.state) == ("True", "Binding")
    assert (evicted.status, evicted.reason) == ("False", "Reclaim")


DISRUPTED = Condition(
    type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI", message="by bindery"
)


def test_an_evicted_gang_is_not_finished_while_its_job_keeps_the_failed_pods() -> None:
    engine = engine_with(node("n"), group("g", 2))
    bound = [pod(f"g-{i}", group="g", on="n") for i in range(2)]
    add(engine.cluster, *bound)
    modify(engine.cluster, told(engine, writes_of(engine)["g"]))
    for task in list(engine.cluster.state.tasks.values()):
        engine.evicted(Eviction(task, "reclaim for queue q", URGENT, action="reclaim"))
    modify(
        engine.cluster,
        *(
            pod(f"g-{i}", group="g", on="n", phase="Failed", deleting=THEN, conditions=[DISRUPTED])
            for i in range(2)
        ),
    )

    write = writes_of(engine)["g"]

    assert (says(write)[2:], write.state) == (("False", "Evicted"), "Evicted")
    assert write.all_conditions[1].status == "True"
    modify(engine.cluster, told(engine, write))
    add(engine.cluster, *(pod(f"new-{i}", group="g", cpu=9) for i in range(2)))
    write = writes_of(engine)["g"]
    assert (says(write)[2:], write.state) == (("False", "Unschedulable"), "Waiting")
    assert write.all_conditions[1].status == "True"
    assert says(write)[1] == "Scheduled"


def test_a_gang_with_refused_pods_waits_and_reports_the_refusal() -> None:
    pods = [pod(f"g-{i}", group="g", on="n") for i in range(2)]
    refused = replace(
        pods[0], status=PodStatus(phase="Failed", reason="OutOfcpu", message="no cpu is left")
    )
    failed = [replace(pods[1], status=PodStatus(phase="Failed", conditions=[DISRUPTED]))]
    engine = engine_with(node("n"), group("g", 2), refused, *failed)

    write = writes_of(engine)["g"]

    assert (says(write)[2:], write.state) == (("False", "BelowMinimum"), "Waiting")
    assert write.condition.message == (
        "0 of 2 required pods have a node; 2 pods were lost: node n refused g-0 "
        "(OutOfcpu: no cpu is left); g-1 was disrupted (EvictionByEvictionAPI: by bindery)"
    )


def test_the_pods_of_a_namespace_that_is_being_deleted_do_not_count_as_lost() -> None:
    deleted = pod("g-0", group="g", on="n", phase="Failed", deleting=THEN)
    ending = Namespace(metadata=Meta(name="team", deletion_timestamp=THEN))
    engine = engine_with(node("n"), Namespace(metadata=Meta(name="team")), group("g", 1), deleted)
    assert "1 pod was lost" in writes_of(engine)["g"].condition.message

    modify(engine.cluster, ending, deleted)
    write = writes_of(engine)["g"]

    assert write.condition.message == "namespace team is being deleted"
    assert "lost" not in write.condition.message


def test_a_gang_with_ended_replacements_is_finished_beside_lost_pods() -> None:
    lost = replace(
        pod("g-0", group="g", on="n"), status=PodStatus(phase="Failed", reason="OutOfcpu")
    )
    ended = [pod(f"g-{i}", group="g", on="n", phase="Succeeded") for i in (1, 2)]

    write = writes_of(engine_with(node("n"), group("g", 2), lost, *ended))["g"]

    assert (write.state, write.condition.message) == ("Finished", "2 pods succeeded, 1 failed")


def test_evicted_pods_are_counted_over_all_plans_until_the_gang_is_whole_again() -> None:
    clock = Clock()
    engine = engine_with(node("n"), group("g", 4), clock=clock)
    bound = [pod(f"g-{i}", group="g", on="n") for i in range(4)]
    add(engine.cluster, *bound)
    plan(engine)

    def evict(*numbers: int, by: str) -> str:
        preemptor, cluster = JobKey("team", by, True), engine.cluster
        for number in numbers:
            cluster.evicting(cluster.state.tasks[Uid(f"uid-g-{number}")], preemptor)
        for number in numbers:
            task = cluster.state.tasks[Uid(f"uid-g-{number}")]
            engine.evicted(Eviction(task, f"reclaim for {by}", preemptor, action="reclaim"))
        delete(cluster, *(bound[number] for number in numbers))
        (record,) = (cluster.eviction_history.of(key) for key in cluster.groups)
        assert record is not None
        return eviction_text(record).partition(",")[0].partition(" at ")[0]

    assert evict(0, 1, by="a") == "2 pods were evicted"
    clock.now += 1000
    assert evict(2, by="b") == "3 pods were evicted"
    assert evict(3, by="b") == "4 pods were evicted"
    add(engine.cluster, *bound)
    assert evict(0, by="a") == "1 pod was evicted"


def test_a_new_scheduler_keeps_the_conditions_of_earlier_evictions() -> None:
    told = Condition(
        type="Evicted", status="True", reason="Reclaim", message="8 pods were evicted",
        last_transition_time=EARLIER,
    )  # fmt: skip
    engine = engine_with(node("n"), group("g", 2, conditions=[told]))

    write = writes_of(engine)["g"]

    assert write.state == "Evicted"
    assert told in write.all_conditions


def test_a_gang_gets_no_new_condition_while_its_evictions_are_requested() -> None:
    engine = engine_with(node("n"), group("g", 1), pod("a", group="g", on="n"))
    modify(engine.cluster, told(engine, writes_of(engine)["g"]))
    (task,) = engine.cluster.state.tasks.values()

    engine.cluster.evicting(task, JobKey("vision", "urgent", True))
    engine.cluster.changed_jobs.add(task.job)

    assert writes_of(engine) == {}


@settings(max_examples=examples(21))
@given(
    minimum=st.integers(0, 3),
    pods=st.lists(
        st.sampled_from(["pending", "bound", "Succeeded", "Failed", "gated"]), max_size=4
    ),
)
def test_a_condition_is_written_once_and_a_new_scheduler_writes_the_same(
    minimum: int, pods: list[str]
) -> None:
    made = [
        pod(
            f"g-{i}",
            group="g",
            cpu=9 if kind == "pending" else 1,
            on="" if kind in ("pending", "gated") else "n",
            phase=kind if kind in ("Succeeded", "Failed") else "",
            gated=kind == "gated",
        )
        for i, kind in enumerate(pods)
    ]
    engine = engine_with(node("n"), group("g", minimum), *made)
    first = writes_of(engine).get("g")
    assert first is not None
    is_met = first.state in ("Running", "Finished")
    assert first.condition.status == "True" or not is_met

    after = told(engine, first)
    modify(engine.cluster, after)
    assert "g" not in writes_of(engine)
    assert "g" not in writes_of(engine_with(node("n"), after, *made))


def told(engine: Engine, write: ConditionWrite) -> PodGroup:
    """Return the PodGroup of `write` as it is once that has been written."""
    (known,) = [each for each in engine.cluster.groups.values() if each.metadata == write.meta]
    status = replace(known.status, conditions=list(write.all_conditions), state=str(write.state))
    if write.figures is not None:
        figures = write.figures
        status = replace(
            status,
            pods=figures.pods,
            assigned_queue=figures.assigned_queue,
            since=figures.since,
            ran_seconds=figures.ran_seconds,
        )
    return replace(known, status=status)
