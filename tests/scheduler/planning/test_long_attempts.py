"""An attempt that takes too long affects only its gang; the other jobs are planned."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from bindery.kube.objects import watched as kube
from bindery.scheduler.cache.set_aside import SetAside
from bindery.scheduler.engine import Engine
from bindery.scheduler.insight.waiting import explain
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.status.conditions import pending_writes
from bindery.scheduler.world import World
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    add,
    configuration,
    engine_with,
    gang,
    group,
    modify,
    node,
    places,
    pod,
    queue,
    report_of,
)


class Ticks:
    """A stopwatch that moves on by `step_s` whenever it is read."""

    def __init__(self, step_s: float) -> None:
        self.step_s, self.now_s = step_s, 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def engine_of(
    *items: kube.KubeObject, clock: Clock | None = None, step_s: float = 0.1, **fields: Any
) -> Engine:
    """Return an engine in which an attempt may look at the time 20 times."""
    fields.setdefault("attempt_seconds", 2.0)
    engine = Engine(configuration(**fields), clock or Clock(), Ticks(step_s))
    add(engine.cluster, *items)
    return engine


def plan(engine: Engine) -> dict[str, str]:
    planned = places(engine.cycle())
    assert view(engine.cluster.state) == recount(engine.cluster.state)
    assert engine.cluster.defects.take() == []
    return planned


def test_a_gang_that_takes_too_long_is_set_aside_and_the_others_are_planned() -> None:
    engine = engine_of(node("n", 100, pods=300), *gang("large", 40), *gang("plain", 2))

    assert plan(engine) == {"plain-0": "n", "plain-1": "n"}

    report = report_of(engine, "large")
    assert report.reason == JobReason.PLANNING_TOOK_TOO_LONG
    assert report.message == (
        "planning it took longer than 2 s, so that other jobs go first: "
        "it is tried again at 2025-06-15T15:06:50Z"
    )
    assert [key.name for key in engine.report.took_too_long] == ["large"]
    writes = list(pending_writes(engine.cluster, engine.report, NOW))
    assert JobReason.PLANNING_TOOK_TOO_LONG in {write.condition.reason for write in writes}


def test_a_long_attempt_is_retried_later_with_more_time_until_it_completes() -> None:
    clock = Clock()
    engine = engine_of(node("n", 100, pods=300), *gang("large", 60), clock=clock)
    tried_at: list[float] = []

    for _ in range(100):
        if plan(engine):
            break
        tried_at += [clock.now - NOW] * bool(engine.report.took_too_long)
        clock.now += 1

    assert tried_at == [0, 10]
    assert clock.now - NOW == 30


def test_the_wait_before_a_retry_doubles_up_to_a_maximum() -> None:
    clock = Clock()
    engine = engine_of(node("n", 1000, pods=2000), *gang("huge", 400), clock=clock)
    tried_at: list[float] = []

    for _ in range(230):
        assert list(engine.cycle()) == []
        tried_at += [clock.now - NOW] * bool(engine.report.took_too_long)
        clock.now += 10

    waits = [late - early for early, late in pairwise(tried_at)]
    assert waits == [10, 20, 40, 80, 160, 320, 640, 900]


def test_a_gang_changed_by_its_user_is_retried_at_once() -> None:
    engine = engine_of(node("n", 100, pods=300), *gang("large", 40))
    assert plan(engine) == {}

    modify(engine.cluster, group("large", 3))

    assert len(plan(engine)) >= 3


def test_gangs_of_a_namespace_that_take_too_long_share_their_time() -> None:
    engine = engine_of(
        node("n", 1000, pods=3000),
        *(item for i in range(8) for item in gang(f"large{i}", 300)),
        step_s=0.03,
    )
    stopwatch = engine._stopwatch
    assert isinstance(stopwatch, Ticks)

    assert plan(engine) == {}

    assert len(engine.report.took_too_long) == 8
    assert stopwatch.now_s < 2 * 8 * 0.6


def reclaims() -> list[kube.KubeObject]:
    """Return a gang for which many pods have to go, in a cluster without free room."""
    return [
        queue("rich", quotas={"cpu": 0}),
        queue("poor", quotas={"cpu": 60}),
        *(node(f"n{i:02}", 2) for i in range(30)),
        *(pod(f"runs{i:02}", queue="rich", on=f"n{i // 2:02}") for i in range(60)),
        *gang("large", 40, queue="poor"),
    ]


def preempts() -> list[kube.KubeObject]:
    return [
        *(node(f"n{i:02}", 2) for i in range(30)),
        *(pod(f"runs{i:02}", on=f"n{i // 2:02}", priority=1) for i in range(60)),
        *gang("large", 40, priority=50),
    ]


def consolidates() -> list[kube.KubeObject]:
    return [
        *(node(f"n{i:02}", 4) for i in range(40)),
        *(pod(f"runs{i:02}", on=f"n{i:02}", cpu=2) for i in range(40)),
        *gang("large", 10, cpu=4),
    ]


@pytest.mark.parametrize("world", [reclaims, preempts, consolidates])
def test_making_room_for_a_gang_may_take_five_times_as_long_as_placing_it(
    world: Callable[[], list[kube.KubeObject]],
) -> None:
    engine = engine_of(*world(), step_s=0.03)

    plan(engine)

    assert engine.report.took_too_long == []
    assert engine.report.evictions


@pytest.mark.parametrize("world", [reclaims, preempts, consolidates])
def test_making_room_for_a_gang_ends_at_the_limit_without_evictions(
    world: Callable[[], list[kube.KubeObject]],
) -> None:
    engine = engine_of(*world(), step_s=0.3)
    add(engine.cluster, node("own", 2, labels={"own": "yes"}))
    add(engine.cluster, pod("plain", node_selector={"own": "yes"}, priority=0))

    plan(engine)

    report = report_of(engine, "large")
    assert report.reason == JobReason.PLANNING_TOOK_TOO_LONG
    assert report.message.startswith("planning it took longer than 10 s")
    assert not engine.report.evictions


def test_making_room_never_takes_longer_than_the_longest_attempt_of_any_kind() -> None:
    memory, job = SetAside(attempt_s=1.0), JobKey("team", "large", True)
    limits = []
    for _ in range(6):
        limits.append((memory.limit_s(job), memory.making_room_s(job)))
        memory.add(job, memory.limit_s(job), NOW)

    assert limits == [(1, 5), (2, 10), (4, 16), (8, 16), (16, 16), (16, 16)]


def test_room_is_freed_last_for_a_gang_that_took_too_long_before() -> None:
    clock = Clock()
    engine = engine_of(*reclaims(), clock=clock, step_s=0.3)
    plan(engine)
    assert [key.name for key in engine.report.took_too_long] == ["large"]
    add(engine.cluster, pod("small", queue="poor", priority=0))
    clock.now += 10
    assert isinstance(engine._stopwatch, Ticks)
    engine._stopwatch.step_s = 0.03

    plan(engine)

    claimants = list(dict.fromkeys(each.preemptor.name for each in engine.report.evictions))
    assert claimants == ["small", "large"]


def test_attempts_have_no_time_limit_without_a_stopwatch() -> None:
    engine = engine_with(node("n", 100, pods=300), *gang("large", 60))

    assert len(places(engine.cycle())) == 60


def test_explain_and_whatif_have_no_time_limit() -> None:
    explanation = explain(
        World(preempts(), configuration(attempt_seconds=1e-9), NOW).engine,
        JobKey("team", "large", True),
    )

    assert explanation is not None
    assert explanation.reason != JobReason.PLANNING_TOOK_TOO_LONG
