"""Exclusive domains and kept room over random clusters: they are kept, claimed and given back."""

from hypothesis import given, settings

from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from bindery.scheduler.model.jobs import TaskStatus, Uid
from tests.scheduler.contestedworlds import play
from tests.scheduler.heldworlds import scenarios
from tests.scheduler.recounting import recount, view
from tests.sizes import IS_LONG, examples

CYCLES, IDLE_CYCLES = 24, 5
PRESENT = {TaskStatus.RUNNING, TaskStatus.BINDING, TaskStatus.ALLOCATED, TaskStatus.RELEASING}

some_clusters = settings(max_examples=examples(21), deadline=None)
same_clusters = settings(some_clusters, derandomize=not IS_LONG)
"""In a short run the same each time: a world in a thousand may still not settle (decision 067)."""


def planner_of(scenario: Scenario) -> Planner:
    return Planner(scenario, Faults(()))


@some_clusters
@given(scenarios())
def test_an_exclusive_rack_never_has_pods_of_two_gangs(scenario: Scenario) -> None:
    planner = planner_of(scenario)
    jobs = scenario.model_dump(by_alias=True)["jobs"]
    exclusive = {job["name"] for job in jobs if (job["topology"] or {}).get("exclusive")}
    racks = {node.name: node.labels["rack"] for node in scenario.nodes}
    for _ in play(planner, 12):
        gangs: dict[str, set[str]] = {}
        for task in planner.engine.cluster.state.tasks.values():
            if task.status in PRESENT and task.node_name:
                gangs.setdefault(racks[task.node_name], set()).add(task.job.name)
        for names in gangs.values():
            assert len(names) == 1 or names.isdisjoint(exclusive)


@same_clusters
@given(scenarios())
def test_the_scheduler_settles_when_nothing_changes(scenario: Scenario) -> None:
    planner = planner_of(scenario)
    actions = [planner.observe().actions for _ in play(planner, CYCLES)]

    assert actions[-1] == actions[-1 - IDLE_CYCLES]


@some_clusters
@given(scenarios())
def test_a_claimant_gets_its_places_once_its_victims_are_gone(scenario: Scenario) -> None:
    planner = planner_of(scenario)
    tasks, promised = planner.engine.cluster.state.tasks, list[Uid]()
    for _ in play(planner, 8):
        assert {tasks[uid].status for uid in promised} <= {TaskStatus.BINDING}
        report = planner.engine.report
        promised = [
            uid
            for claimant in {eviction.preemptor for eviction in report.evictions}
            for uid, pod in report.jobs[claimant].pods.items()
            if pod.state == TaskStatus.PIPELINED.value
        ]


@some_clusters
@given(scenarios())
def test_nodes_and_queues_hold_exactly_the_sum_of_their_pods(scenario: Scenario) -> None:
    planner = planner_of(scenario)
    for _ in play(planner, 8):
        state = planner.engine.cluster.state
        assert view(state) == recount(state)
        assert (state.nodes.idle >= 0).all()
        assert (state.nodes.pipelined == 0).all()
        reasons = [pod.reason for pod in planner.observe().pods.values()]
        assert not any("planning it has failed" in reason for reason in reasons)
