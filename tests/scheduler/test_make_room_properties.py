"""Making room over random clusters: it comes to rest, takes nothing for nothing, and adds up."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bindery.scenario.binding import bind_requests
from bindery.scenario.faults import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from bindery.scheduler.model.jobs import TaskStatus

CYCLES = 30
IDLE_CYCLES = 5
"""At the end of so many cycles nothing may happen any more."""

queue_numbers = st.fixed_dictionaries({"quota": st.integers(0, 6), "weight": st.integers(0, 2)})


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a small cluster on which some jobs run and others wait; what is evicted comes back."""
    free = {f"node{i}": draw(st.integers(1, 6)) for i in range(draw(st.integers(1, 4)))}
    nodes = [{"name": name, "gpus": gpus} for name, gpus in free.items()]
    names = [f"q{i}" for i in range(draw(st.integers(1, 4)))]
    queues: list[dict[str, Any]] = []
    for index, name in enumerate(names):
        parents = [None, "org0"] if index else [None]
        queues.append(
            {"name": name, "parent": draw(st.sampled_from(parents)), "gpu": draw(queue_numbers)}
        )
    queues.append({"name": "org0", "gpu": draw(queue_numbers)})
    jobs = [_job(draw, f"j{i}", names, free) for i in range(draw(st.integers(1, 10)))]
    return Scenario.model_validate({"nodes": nodes, "queues": queues, "jobs": jobs})


def _job(draw: st.DrawFn, name: str, queues: list[str], free: dict[str, int]) -> dict[str, Any]:
    gpus, count = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    pods: list[dict[str, Any]] = []
    room = [node for node in free for _ in range(free[node] // gpus)]
    if len(room) >= count and draw(st.booleans()):
        for node in draw(st.permutations(room))[:count]:
            free[node] -= gpus
            pods.append({"gpus": gpus, "state": "Running", "node": node})
    return {
        "name": name,
        "queue": draw(st.sampled_from(queues)),
        "priority": draw(st.sampled_from([50, 60, 75, 100, 125])),
        "minMember": draw(st.sampled_from([0, 1, count])),
        "pods": pods or [{"gpus": gpus, "count": count}],
    }


def play(scenario: Scenario, cycles: int) -> Iterator[Planner]:
    """Yield the planner after each of `cycles` cycles."""
    faults = Faults(())
    planner = Planner(scenario, faults)
    planner.cluster.populate()
    for _ in range(cycles):
        planner.plan()
        yield planner
        planner.cluster.release_pods()
        bind_requests(planner.cluster, faults)
        planner.cluster.now += 1


some_clusters = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@some_clusters
@given(scenarios())
def test_with_nothing_new_the_scheduler_comes_to_rest(scenario: Scenario) -> None:
    actions = [planner.observe().actions for planner in play(scenario, CYCLES)]

    assert actions[-1] == actions[-1 - IDLE_CYCLES]


@some_clusters
@given(scenarios())
def test_nobody_is_evicted_unless_a_claimant_gets_the_room(scenario: Scenario) -> None:
    for planner in play(scenario, 6):
        report = planner.engine.report
        for eviction in report.evictions:
            states = [pod.state for pod in report.jobs[eviction.preemptor].pods.values()]
            placed = sum(state in ("Pipelined", "Binding", "Running") for state in states)
            job = planner.engine.cluster.state.jobs[eviction.preemptor]
            assert "Pipelined" in states
            assert placed >= job.min_member


@some_clusters
@given(scenarios())
def test_nodes_and_queues_hold_exactly_what_their_pods_hold(scenario: Scenario) -> None:
    for planner in play(scenario, 6):
        state = planner.engine.cluster.state
        nodes, queues = state.nodes, state.queues
        used, held = np.zeros_like(nodes.idle), np.zeros_like(queues.allocated)
        for task in state.tasks.values():
            request = task.shape.request
            if task.status.holds_room:
                used[list(request.indices), task.row] += request.amounts
            if task.status.is_active:
                held[list(request.indices), task.queue_row] += request.amounts
        assert (nodes.idle + used == nodes.allocatable).all()
        assert (nodes.idle >= 0).all()
        assert (nodes.pipelined == 0).all()
        assert (queues.allocated == held).all()
        assert not any(task.status is TaskStatus.PIPELINED for task in state.tasks.values())
