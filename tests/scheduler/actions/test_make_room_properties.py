"""Making room over random clusters: it settles, evicts nothing in vain, and sums stay correct."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from bindery.scheduler.model.jobs import TaskStatus, Uid
from tests.scheduler.contestedworlds import play, scenarios
from tests.scheduler.recounting import recount, view
from tests.sizes import examples

CYCLES = 30
IDLE_CYCLES = 5
"""At the end of so many cycles nothing may happen any more."""
MAKES_ROOM = {"consolidation", "reclaim", "preempt"}

some_clusters = settings(max_examples=examples(14), deadline=None)


def planner_of(scenario: Scenario) -> Planner:
    return Planner(scenario, Faults(()))


@some_clusters
@given(scenarios())
def test_the_scheduler_settles_when_nothing_changes(scenario: Scenario) -> None:
    planner = planner_of(scenario)
    actions = [planner.observe().actions for _ in play(planner, CYCLES)]

    assert actions[-1] == actions[-1 - IDLE_CYCLES]


@some_clusters
@given(scenarios())
def test_pods_are_evicted_only_if_a_claimant_gets_the_room(scenario: Scenario) -> None:
    planner = planner_of(scenario)
    for _ in play(planner, 6):
        report = planner.engine.report
        for eviction in report.evictions:
            assert eviction.action in MAKES_ROOM
            states = [pod.state for pod in report.jobs[eviction.preemptor].pods.values()]
            placed = sum(state in ("Pipelined", "Binding", "Running") for state in states)
            job = planner.engine.cluster.state.jobs[eviction.preemptor]
            assert "Pipelined" in states
            assert placed >= job.min_member


@some_clusters
@given(scenarios())
def test_a_claimant_gets_its_places_once_its_victims_are_gone(scenario: Scenario) -> None:
    planner = planner_of(scenario)
    tasks, promised = planner.engine.cluster.state.tasks, list[Uid]()
    for _ in play(planner, 6):
        assert {tasks[uid].status for uid in promised} <= {TaskStatus.BINDING}
        report = planner.engine.report
        promised = [
            uid
            for claimant in {eviction.preemptor for eviction in report.evictions}
            for uid, pod in report.jobs[claimant].pods.items()
            if pod.state == TaskStatus.PIPELINED.value
        ]


@some_clusters
@given(scenarios(), st.integers(0, 3))
def test_a_cycle_that_ends_early_evicts_no_pod(scenario: Scenario, read: int) -> None:
    planner = planner_of(scenario)
    planner.cluster.populate()
    engine, state = planner.engine, planner.engine.cluster.state
    before = view(state)

    cycle = engine.cycle()
    drafts = list(itertools.islice(cycle, read))
    is_over = len(drafts) < read
    cycle.close()

    if not is_over:
        assert not any(task.status is TaskStatus.RELEASING for task in state.tasks.values())
        for draft in drafts:
            engine.refused(draft)
        assert view(state) == before
    assert view(state) == recount(state)


@some_clusters
@given(scenarios())
def test_nodes_and_queues_hold_exactly_the_sum_of_their_pods(scenario: Scenario) -> None:
    planner = planner_of(scenario)
    for _ in play(planner, 6):
        state = planner.engine.cluster.state
        assert view(state) == recount(state)
        assert (state.nodes.idle >= 0).all()
        assert (state.nodes.pipelined == 0).all()
        assert not any(task.status is TaskStatus.PIPELINED for task in state.tasks.values())
