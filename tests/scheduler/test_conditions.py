"""What objects should say about themselves, and that it is written only when it changes."""

from msgspec.structs import replace
from schedulerworld import (
    NOW,
    Clock,
    engine_with,
    gang,
    group,
    modify,
    node,
    plan,
    pod,
)

from bindery.kube.objects import Condition
from bindery.scheduler.conditions import ConditionWrite, Subject, overdue_writes, pending_writes
from bindery.scheduler.engine import Engine

EARLIER = "2025-06-15T10:00:00Z"
THEN = "2025-06-15T15:06:40Z"
"""The clock's time."""


def writes_of(engine: Engine) -> dict[str, ConditionWrite]:
    plan(engine)
    writes = list(pending_writes(engine.cluster, engine.report, NOW))
    names = [write.meta.name for write in writes]
    assert len(names) == len(set(names))
    return dict(zip(names, writes, strict=True))


def says(write: ConditionWrite) -> tuple[Subject, str, str, str]:
    condition = write.condition
    return write.subject, condition.type, condition.status, condition.reason


def test_a_waiting_gang_and_its_pods_say_why() -> None:
    writes = writes_of(engine_with(node("n"), *gang("g", 9)))

    assert says(writes["g"]) == (Subject.POD_GROUP, "Scheduled", "False", "Unschedulable")
    assert says(writes["g-0"]) == (Subject.POD, "PodScheduled", "False", "Unschedulable")
    assert writes["g"].condition.message == writes["g-0"].condition.message
    assert writes["g"].condition.last_transition_time == THEN
    assert all(write.is_urgent for write in writes.values())


def test_a_planned_gang_says_so_and_its_pods_leave_it_to_the_binding() -> None:
    writes = writes_of(engine_with(node("n"), *gang("g", 2)))

    assert set(writes) == {"g"}
    assert says(writes["g"]) == (Subject.POD_GROUP, "Scheduled", "True", "Scheduled")
    assert not writes["g"].is_urgent


def test_extra_pods_that_wait_say_so_though_their_gang_is_scheduled() -> None:
    writes = writes_of(engine_with(node("n", 2), *gang("g", 3, 2)))

    assert says(writes["g"])[2] == "True"
    assert writes["g"].condition.message.startswith("1 more pods wait: ")
    assert says(writes["g-2"])[2] == "False"


def test_gated_pods_are_left_to_the_api_server() -> None:
    assert writes_of(engine_with(node("n"), pod("p", gated=True))) == {}


def test_what_an_object_says_already_is_not_written() -> None:
    engine = engine_with(node("n"), *gang("g", 9))
    writes = writes_of(engine)
    modify(
        engine.cluster,
        group("g", 9, conditions=writes["g"].all_conditions),
        *(pod(f"g-{i}", group="g", conditions=writes[f"g-{i}"].all_conditions) for i in range(9)),
    )

    assert writes_of(engine) == {}


def test_new_words_keep_the_time_of_the_last_turn() -> None:
    old = Condition(
        type="PodScheduled", status="False", reason="Unschedulable", message="old words",
        last_transition_time=EARLIER,
    )  # fmt: skip
    writes = writes_of(engine_with(node("n"), pod("p", cpu=9, conditions=[old])))

    assert writes["p"].condition.message.startswith("0/1 nodes are available")
    assert writes["p"].condition.last_transition_time == EARLIER


def test_a_turn_has_its_own_time_and_leaves_other_conditions_alone() -> None:
    other = Condition(type="Quota", status="True")
    old = Condition(type="Scheduled", status="False", last_transition_time=EARLIER)
    engine = engine_with(node("n"), group("g", 1, conditions=[old, other]), pod("a", group="g"))

    write = writes_of(engine)["g"]

    assert write.condition.last_transition_time == THEN
    assert write.all_conditions == (other, write.condition)


def test_a_long_message_is_cut() -> None:
    selector = {f"key-{i}": "x" * 60 for i in range(40)}
    nodes = [node(f"n{i}", labels=dict(list(selector.items())[:i])) for i in range(len(selector))]
    writes = writes_of(engine_with(*nodes, pod("p", node_selector=selector)))

    assert len(writes["p"].condition.message) == 1024


def test_a_gang_that_cannot_be_used_is_not_called_scheduled() -> None:
    writes = writes_of(engine_with(node("n"), *gang("g", 2, -1)))

    assert says(writes["g"]) == (Subject.POD_GROUP, "Scheduled", "False", "Invalid")


def test_words_change_with_the_reason_and_not_with_time() -> None:
    clock = Clock()
    engine = engine_with(node("n"), pod("p", cpu=9), clock=clock)
    first = writes_of(engine)["p"]
    modify(engine.cluster, pod("p", cpu=9, conditions=[first.condition]))
    clock.now += 1000

    assert writes_of(engine) == {}
    modify(engine.cluster, node("n", unschedulable=True))
    assert "cordoned" in writes_of(engine)["p"].condition.message


def test_good_news_that_an_earlier_leader_did_not_write_are_written() -> None:
    engine = engine_with(node("n"), *gang("g", 2))
    plan(engine)  # its pods are Binding now, so no later cycle reports it
    waits = Condition(type="Scheduled", status="False", reason="Unschedulable")
    known = engine.cluster.groups[next(iter(engine.cluster.groups))]
    modify(engine.cluster, replace(known, status=replace(known.status, conditions=[waits])))

    assert plan(engine) == {}
    overdue = list(overdue_writes(engine.cluster, engine.report, NOW))

    assert [says(write) for write in overdue] == [
        (Subject.POD_GROUP, "Scheduled", "True", "Scheduled")
    ]
