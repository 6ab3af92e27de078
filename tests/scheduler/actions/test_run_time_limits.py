"""Gangs are evicted at the end of their time, also by a scheduler that has just started."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bindery.api.times import timestamp
from bindery.kube.objects import podgroups
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import PodGroupStatus
from bindery.kube.objects.queues import Queue, QueueSpec
from bindery.scheduler.engine import Engine
from bindery.scheduler.insight.shares import cluster_shares
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.planning.reports import RefusedPlan
from tests.inlinescenarios import scenario_of, source_of
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    NOW,
    Clock,
    engine_with,
    group,
    node,
    plan,
    pod,
    report_of,
)

LIMIT_S = 100.0


def bound(at: float) -> kube.Condition:
    return kube.Condition(type="PodScheduled", status="True", last_transition_time=timestamp(at))


def gang(state: str = "", since: float | None = None, ran: float = 0.0) -> podgroups.PodGroup:
    made = group("g", 2, run_time_limit_seconds=LIMIT_S)
    said = timestamp(since) if since is not None else None
    return replace(made, status=PodGroupStatus(state=state, since=said, ran_seconds=ran))


def members(at: float) -> list[kube.Pod]:
    return [pod(f"g-{i}", group="g", on="n", conditions=[bound(at)]) for i in range(2)]


def evicted(engine: Engine) -> list[str]:
    plan(engine)
    return sorted(each.task.name for each in engine.report.evictions)


@pytest.mark.parametrize(
    ("status", "bound_s_ago", "is_over"),
    [
        (gang(), 99, False),
        (gang(), 100, True),
        (gang("Running", since=NOW - 100), 5, True),
        (gang("Running", since=NOW - 50), 500, False),
        (gang("Running", since=NOW - 50, ran=50), 50, True),
        (gang("Waiting", since=NOW - 500, ran=60), 40, True),
        (gang("Waiting", since=NOW - 500, ran=60), 39, False),
    ],
    ids=str,
)
def test_the_run_time_is_read_from_the_status_or_else_from_the_bindings(
    status: podgroups.PodGroup, bound_s_ago: float, is_over: bool
) -> None:
    engine = engine_with(node("n"), status, *members(NOW - bound_s_ago))

    assert evicted(engine) == (["g-0", "g-1"] if is_over else [])


def test_replacements_wait_until_the_limit_is_raised_also_after_a_restart() -> None:
    spent = gang("Evicted", since=NOW - 10, ran=LIMIT_S)
    engine = engine_with(node("n"), spent, pod("r-0", group="g"), pod("r-1", group="g"))

    assert plan(engine) == {}
    report = report_of(engine, "g")
    assert report.reason == JobReason.RUN_TIME_EXCEEDED
    assert report.message == (
        "it has run for the limit of 100 s of its PodGroup; delete its workload, or raise the limit"
    )

    raised = replace(spent, spec=replace(spent.spec, run_time_limit_seconds=2 * LIMIT_S))
    engine = engine_with(node("n"), raised, pod("r-0", group="g"), pod("r-1", group="g"))
    assert set(plan(engine)) == {"r-0", "r-1"}


def test_a_refused_eviction_is_retried_later_and_not_at_once() -> None:
    clock = Clock()
    engine = engine_with(node("n"), gang(), *members(NOW - 200), clock=clock)
    plan(engine)
    evictions = tuple(engine.report.evictions)
    engine.dropped(RefusedPlan(evictions[0], evictions, "a budget", is_begun=False))

    assert evicted(engine) == []
    clock.now += 1000
    assert evicted(engine) == ["g-0", "g-1"]


def test_the_limit_of_a_queue_applies_to_each_pod_without_a_pod_group() -> None:
    queue = Queue(
        metadata=kube.Meta(name="q", uid="q"), spec=QueueSpec(max_run_time_seconds=LIMIT_S)
    )
    old = pod("old", queue="q", on="n", conditions=[bound(NOW - 200)])
    engine = engine_with(node("n"), queue, old, pod("new", queue="q"))

    assert evicted(engine) == ["old"]
    assert JobKey(NAMESPACE, "new", False) in engine.cluster.state.jobs
    assert report_of(engine, "new").satisfied


@given(
    own=st.none() | st.floats(1, 1000),
    of_queues=st.lists(st.none() | st.floats(1, 1000), min_size=1, max_size=3),
    age=st.floats(0, 1000),
)
def test_the_shortest_limit_of_the_gang_and_of_all_queues_above_it_applies(
    own: float | None, of_queues: list[float | None], age: float
) -> None:
    queues = [
        Queue(
            metadata=kube.Meta(name=f"q{i}", uid=f"q{i}"),
            spec=QueueSpec(parent=f"q{i - 1}" if i else None, max_run_time_seconds=limit),
        )
        for i, limit in enumerate(of_queues)
    ]
    made = group("g", 2, f"q{len(queues) - 1}", run_time_limit_seconds=own)
    engine = engine_with(node("n"), *queues, made, *members(NOW - round(age)))

    limits = [limit for limit in (own, *of_queues) if limit is not None]
    assert bool(evicted(engine)) == any(round(age) >= limit for limit in limits)


def test_a_gang_over_its_run_time_limit_requests_no_fair_share() -> None:
    """Its waiting pods never start, so other gangs may use the room that they request."""
    scenario = scenario_of(
        """
        nodes: [{name: node0, gpus: 8}]
        queues:
        - {name: a, gpu: {quota: 0, weight: 1}}
        - {name: b, gpu: {quota: 0, weight: 1}}
        jobs:
        - {name: spent, queue: a, runTimeLimit: 1h, ran: 1h, pods: [{count: 8, gpus: 1}]}
        - {name: more, queue: b, pods: [{count: 8, gpus: 1}]}
        """
    )

    with source_of(scenario).world().engine.session() as session:
        found = {each.name: each.resources["gpu"] for each in cluster_shares(session).queues}

    assert (found["a"].fair_share, found["a"].requested) == (0, 0)
    assert found["b"].fair_share == 8
