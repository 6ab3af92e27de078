"""The events of waiting gangs, their pods and their owners, and their number."""

from collections import Counter
from typing import Any

from msgspec.structs import replace

from bindery.api.times import timestamp
from bindery.kube.events.book import Occurrence
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Pod
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, Uid
from bindery.scheduler.status.job_events import (
    MOST_SHAPES,
    REPEATED_AFTER_S,
    JobEvents,
)
from tests.scheduler.schedulerworld import (
    CONTROLLER,
    NOW,
    add,
    engine_with,
    gang,
    group,
    group_of_job,
    modify,
    node,
    plan,
    pod,
    report_of,
)

G = JobKey("team", "g", True)


def owned(made: PodGroup) -> PodGroup:
    return replace(made, metadata=replace(made.metadata, owner_references=[CONTROLLER]))


def controlled(name: str, group_name: str) -> Pod:
    made = pod(name, group=group_name)
    return replace(made, metadata=replace(made.metadata, owner_references=[CONTROLLER]))


def events(engine: Engine, told: JobEvents, now: float = NOW) -> list[Occurrence]:
    plan(engine)
    return list(told.of_cycle(engine.report, now))


def at(occurrences: list[Occurrence]) -> Counter[tuple[str, str, str]]:
    return Counter((o.regarding.kind, o.regarding.name, o.reason) for o in occurrences)


def test_a_waiting_gang_has_events_on_itself_its_owner_and_a_pod_of_each_shape() -> None:
    small = [pod(f"s-{i}", group="g", cpu=9) for i in range(3)]
    large = [pod(f"l-{i}", group="g", cpu=10) for i in range(2)]
    engine = engine_with(node("n"), owned(group("g", 5)), *small, *large)

    found = events(engine, JobEvents(engine.cluster))

    assert at(found) == {
        ("PodGroup", "g", "Unschedulable"): 1,
        ("Job", "work", "Unschedulable"): 1,
        ("Pod", "s-0", "Unschedulable"): 1,
        ("Pod", "l-0", "Unschedulable"): 1,
    }
    assert {o.message for o in found} == {report_of(engine, "g").message}
    assert all(o.is_minor == (o.regarding.kind == "Pod") for o in found)


def test_a_missing_podgroup_has_events_on_the_owner_and_one_pod() -> None:
    engine = engine_with(node("n"), *(controlled(f"p-{i}", "nosuch") for i in range(3)))
    told = JobEvents(engine.cluster)

    found = events(engine, told)

    assert at(found) == {
        ("Job", "work", "PodGroupDoesNotExist"): 1,
        ("Pod", "p-0", "PodGroupDoesNotExist"): 1,
    }
    assert {o.message for o in found} == {"PodGroup nosuch does not exist"}
    told.keep(set(engine.cluster.state.tasks))
    assert events(engine, told) == []
    assert at(events(engine, told, NOW + REPEATED_AFTER_S)) == at(found)


def test_a_podgroup_created_after_its_pods_ends_the_event_about_its_absence() -> None:
    engine = engine_with(node("n"), controlled("p", "late"))
    told = JobEvents(engine.cluster)
    events(engine, told)

    add(engine.cluster, group("late", 1))

    assert at(events(engine, told)) == {("PodGroup", "late", "Scheduled"): 1}


def test_the_events_of_a_gang_cost_the_same_with_ten_thousand_pods() -> None:
    engine = engine_with(node("n"), *gang("g", 10_000))
    told = JobEvents(engine.cluster)

    assert at(events(engine, told)).total() == 3, "the gang, its owner, one pod"
    assert events(engine, told) == []


def test_a_gang_of_many_shapes_has_events_on_some_of_its_pods() -> None:
    pods = [pod(f"p-{i}", group="g", cpu=10 + i) for i in range(MOST_SHAPES + 5)]
    engine = engine_with(node("n"), group("g", len(pods)), *pods)

    assert len(events(engine, JobEvents(engine.cluster))) == MOST_SHAPES + 2


def test_an_event_is_repeated_while_the_gang_waits() -> None:
    engine = engine_with(node("n"), owned(group("g", 1)), pod("p", group="g", cpu=9))
    told = JobEvents(engine.cluster)
    first = events(engine, told)

    assert events(engine, told, NOW + 600) == []
    again = events(engine, told, NOW + REPEATED_AFTER_S)
    assert at(again) == at(first)
    assert all(o.is_minor for o in again), "new problems come first"
    assert events(engine, told, NOW + REPEATED_AFTER_S + 1) == []


def test_a_deployment_without_room_has_events_on_its_pods_and_itself() -> None:
    engine = engine_with(node("n"), owned(group("g", 0)), pod("p", group="g", cpu=9))

    assert at(events(engine, JobEvents(engine.cluster))) == {
        ("PodGroup", "g", "Unschedulable"): 1,
        ("Job", "work", "Unschedulable"): 1,
        ("Pod", "p", "Unschedulable"): 1,
    }


def test_extra_pods_without_room_have_an_event_beside_the_scheduled_gang() -> None:
    engine = engine_with(node("n", 2), *gang("g", 3, 2))
    told = JobEvents(engine.cluster)
    first = events(engine, told)

    assert at(first + events(engine, told)) == {
        ("PodGroup", "g", "Scheduled"): 1,
        ("Pod", "g-2", "Unschedulable"): 1,
    }


def test_pods_selected_by_no_podgroup_for_long_have_events_on_them_and_the_owner() -> None:
    waits: dict[str, Any] = {"grouper": {"waitForGroups": True}}
    engine = engine_with(node("n"), **waits)
    young = replace(pod("p").metadata, creation_timestamp=timestamp(NOW))
    add(engine.cluster, replace(pod("p"), metadata=young))
    told = JobEvents(engine.cluster)

    assert events(engine, told, NOW + 5) == []
    assert at(events(engine, told, NOW + 20)) == {
        ("Pod", "p", "WaitingForGroup"): 1,
        ("Job", "work", "WaitingForGroup"): 1,
    }


def test_an_eviction_has_events_on_the_gang_its_owner_and_the_preemptor() -> None:
    engine = engine_with(node("n"), owned(group("g", 2)), pod("claims", namespace="other", cpu=9))
    add(engine.cluster, *(pod(f"g-{i}", group="g", on="n") for i in range(2)))
    modify(engine.cluster, owned(group("g", 2)))
    claimant = JobKey("other", "claims", False)
    tasks = [engine.cluster.state.tasks[Uid(f"uid-g-{i}")] for i in range(2)]
    evictions = [
        Eviction(task, "reclaim for queue q", claimant, action="reclaim") for task in tasks
    ]

    found = list(JobEvents(engine.cluster).of_evictions(evictions))

    assert at(found) == {
        ("PodGroup", "g", "Evicted"): 2,
        ("Job", "work", "Evicted"): 2,
        ("Pod", "claims", "RoomMade"): 1,
    }
    assert len(set(found)) == 3, "equal events are one event with a count"
    text = "reclaim: 2 pods were evicted for it, charged to queue default: 2 lost their places"
    assert text in found[-1].message


def test_moved_victims_are_counted_apart_and_gangs_of_the_namespace_are_named() -> None:
    engine = engine_with(node("n"), group("g", 2), pod("claims", cpu=9))
    add(engine.cluster, *(pod(f"g-{i}", group="g", on="n") for i in range(3)))
    claimant = JobKey("team", "claims", False)
    tasks = [engine.cluster.state.tasks[Uid(f"uid-g-{i}")] for i in range(3)]
    evictions = [
        Eviction(task, "reclaim for claims", claimant, moves_to, "reclaim")
        for task, moves_to in zip(tasks, ["n2", "", ""], strict=True)
    ]

    *_, room = JobEvents(engine.cluster).of_evictions(evictions)

    assert room.message == (
        "reclaim: 3 pods were evicted for it, charged to queue default (g): "
        "1 moved to other nodes, 2 lost their places"
    )


def test_victims_of_the_same_namespace_are_named_as_the_workloads_of_the_grouper() -> None:
    engine = engine_with(node("n"), group_of_job("train"), pod("claims", cpu=9))
    add(engine.cluster, pod("p", group="job-train-f3ba2458", on="n"))
    claimant = JobKey("team", "claims", False)
    task = engine.cluster.state.tasks[Uid("uid-p")]

    *_, room = JobEvents(engine.cluster).of_evictions(
        [Eviction(task, "reclaim for claims", claimant, action="reclaim")]
    )

    assert "queue default (Job train): 1 lost" in room.message
