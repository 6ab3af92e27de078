"""PriorityClasses: values, the default class, the policy Never, and changes."""

from typing import Any

import pytest

from bindery.kube.objects import watched as kube
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import (
    add,
    delete,
    engine_with,
    gang,
    group,
    modify,
    node,
    plan,
    pod,
    report_of,
)


def priority_class(name: str, value: int, **fields: Any) -> kube.PriorityClass:
    return kube.PriorityClass(
        metadata=kube.Meta(name=name, uid=f"uid-{name}"), value=value, **fields
    )


def classed(name: str, of: str, **shape: Any) -> list[kube.KubeObject]:
    """Return a gang of one pod whose PodGroup names the class `of`, and the pod none."""
    return [group(name, 1, priority_class=of), pod(f"{name}-0", group=name, **shape)]


def evicted(engine: Engine) -> list[str]:
    plan(engine)
    return [eviction.task.name for eviction in engine.report.evictions]


HIGH, LOW = priority_class("high", 90), priority_class("low", 10)


def test_the_higher_class_is_served_first_in_any_order_of_arrival() -> None:
    jobs = [*classed("a", "low", cpu=8), *classed("b", "high", cpu=8)]

    assert set(plan(engine_with(node("n"), HIGH, LOW, *jobs))) == {"b-0"}
    assert set(plan(engine_with(*jobs[::-1], LOW, HIGH, node("n")))) == {"b-0"}


def test_the_older_of_two_gangs_of_equal_priority_is_first_and_none_preempts() -> None:
    tied = [priority_class("one", 50), priority_class("two", 50)]
    older = group("z", 1, priority_class="two", created="2025-06-15T10:00:00Z")
    newer = group("a", 1, priority_class="one", created="2025-06-15T11:00:00Z")
    pods = [pod("z-0", group="z", cpu=8), pod("a-0", group="a", cpu=8)]
    engine = engine_with(node("n"), *tied, older, newer, *pods)

    assert set(plan(engine)) == {"z-0"}
    assert evicted(engine) == []


def test_a_higher_class_preempts_a_lower_one() -> None:
    jobs = [*classed("runs", "low", cpu=8, on="n"), *classed("wants", "high", cpu=8)]

    assert evicted(engine_with(node("n"), HIGH, LOW, *jobs)) == ["runs-0"]


def test_a_class_that_never_preempts_is_served_before_lower_classes() -> None:
    polite = priority_class("polite", 90, preemption_policy="Never")
    wants = classed("wants", "polite", cpu=8)
    runs = classed("runs", "low", cpu=8, on="n")
    engine = engine_with(node("n"), polite, LOW, *runs, *wants, *classed("late", "low", cpu=8))
    assert evicted(engine) == []

    delete(engine.cluster, runs[1])

    assert set(plan(engine)) == {"wants-0"}


def test_a_pod_that_never_preempts_waits_even_if_its_class_preempts() -> None:
    wants = classed("wants", "high", cpu=8, preemption_policy="Never")
    jobs = [*classed("runs", "low", cpu=8, on="n"), *wants]

    assert evicted(engine_with(node("n"), HIGH, LOW, *jobs)) == []


def test_a_class_that_is_recreated_with_another_policy_takes_effect() -> None:
    polite = priority_class("level", 90, preemption_policy="Never")
    jobs = [*classed("runs", "low", cpu=8, on="n"), *classed("wants", "level", cpu=8)]
    engine = engine_with(node("n"), polite, LOW, *jobs)
    assert evicted(engine) == []

    delete(engine.cluster, polite)
    assert evicted(engine) == []
    assert report_of(engine, "wants").reason == "PriorityClassDoesNotExist"

    add(engine.cluster, priority_class("level", 90))
    assert evicted(engine) == ["runs-0"]


def test_a_changed_value_of_a_class_decides_whether_its_gangs_are_preempted() -> None:
    jobs = [*classed("runs", "level", cpu=8, on="n"), *classed("wants", "top", cpu=8)]
    top = priority_class("top", 200)
    engine = engine_with(node("n"), top, priority_class("level", 150), *jobs)
    assert evicted(engine) == []

    modify(engine.cluster, priority_class("level", 50))

    assert evicted(engine) == ["runs-0"]


@pytest.mark.parametrize("of", ["nobody", "system-unknown"])
def test_a_gang_of_an_unknown_class_waits_and_others_are_planned(of: str) -> None:
    engine = engine_with(node("n"), *classed("a", of), *gang("b", 2))

    assert set(plan(engine)) == {"b-0", "b-1"}
    report = report_of(engine, "a")
    assert (report.reason, report.message) == (
        "PriorityClassDoesNotExist",
        f"PriorityClass {of} does not exist",
    )


def test_pods_without_a_priority_have_the_priority_of_the_default_class() -> None:
    standard = priority_class("standard", 60, global_default=True)
    runs = [pod("runs", cpu=8, on="n", priority=50)]
    engine = engine_with(node("n"), *runs, pod("wants", cpu=8))
    assert evicted(engine) == []

    add(engine.cluster, standard)

    assert evicted(engine) == ["runs"]


def test_the_default_class_applies_from_its_creation_to_its_deletion() -> None:
    standard = priority_class("standard", 150, global_default=True)
    runs, wants = pod("runs", cpu=8, on="n"), pod("wants", cpu=8, priority=200)
    for items in ([standard, runs, wants], [wants, runs, standard]):
        engine = engine_with(node("n"), *items)
        assert evicted(engine) == [], "from 100 on nobody is preempted"

        modify(engine.cluster, priority_class("standard", 150))

        assert evicted(engine) == ["runs"]


def test_the_smallest_value_of_several_default_classes_is_used() -> None:
    classes = [priority_class(f"c{v}", v, global_default=True) for v in (70, 30, 90)]
    runs, wants = pod("runs", cpu=8, on="n", priority=30), pod("wants", cpu=8)

    assert evicted(engine_with(node("n"), *classes, runs, wants)) == []
    assert evicted(engine_with(node("n"), classes[0], classes[2], runs, wants)) == ["runs"]


def test_the_default_class_does_not_change_a_pods_own_priority() -> None:
    standard = priority_class("standard", 60, global_default=True)
    runs, wants = pod("runs", cpu=8, on="n", priority=50), pod("wants", cpu=8, priority=0)

    assert evicted(engine_with(node("n"), standard, runs, wants)) == []
