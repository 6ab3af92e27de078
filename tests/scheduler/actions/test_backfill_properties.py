"""Reservations over random clusters and time: no job delays the gang that holds one."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.times import seconds
from bindery.scenario.binding import bind_requests
from bindery.scenario.events import Event, Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from bindery.scenario.states import PodState
from tests.scheduler.contestedworlds import play
from tests.sizes import examples

MOST_SECONDS = 90
"""By then everything that has to end for the gang has ended."""
CYCLES = 30
IDLE_CYCLES = 5

RULES: list[dict[str, Any]] = [
    {},
    {"hostPorts": [8080]},
    {
        "labels": {"app": "apart"},
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app": "apart"}},
                    }
                ]
            }
        },
    },
]
"""Rules of pods that keep them apart from others with the same rule."""

some_clusters = settings(max_examples=examples(10), deadline=None)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, int]]:
    """Draw a scenario with running jobs and a waiting gang, jobs that come after the gang, and the
    true run time of each job in seconds, which equals the declared run time of the job, if any.
    """
    free = {f"node{i}": draw(st.integers(1, 6)) for i in range(draw(st.integers(1, 4)))}
    nodes = [{"name": name, "gpus": gpus} for name, gpus in free.items()]
    biggest, lengths, jobs = max(free.values()), dict[str, int](), list[dict[str, Any]]()
    total = dict(free)
    taken = {name: draw(st.sampled_from(RULES)) for name in free}
    """Node -> the rule of its first pod; two such pods cannot be on one node."""
    for name in list(free):
        while free[name] and draw(st.booleans()):
            gpus, job = draw(st.integers(1, free[name])), f"run{len(jobs)}"
            free[name] -= gpus
            lengths[job] = draw(st.integers(1, 40))
            pod = {"gpus": gpus, "state": "Running", "node": name, **taken.get(name, {})}
            taken[name] = {}
            jobs.append({"name": job, "expectedRuntime": lengths[job], "pods": [pod]})
    gpus, rules = draw(st.integers(1, biggest)), draw(st.sampled_from(RULES))
    most = sum(min(amount // gpus, 1 if rules else amount) for amount in total.values())
    pods = {"gpus": gpus, "count": draw(st.integers(1, most)), **rules}
    jobs.append({"name": "big", "pods": [pods]})
    later: list[dict[str, Any]] = []
    for i in range(draw(st.integers(0, 8))):
        counts = {"gpus": draw(st.integers(1, 3)), "count": draw(st.integers(1, 3))}
        pods_of_later = [{**counts, **draw(st.sampled_from(RULES))}]
        lengths[f"later{i}"] = draw(st.integers(1, 60))
        said = {"expectedRuntime": lengths[f"later{i}"]} if draw(st.booleans()) else {}
        least = {"minMember": 0} if draw(st.booleans()) else {}
        later.append({"name": f"later{i}", "pods": pods_of_later, **said, **least})
    return {"nodes": nodes, "jobs": jobs}, later, lengths


def start_of_big(scenario: dict[str, Any], lengths: dict[str, int]) -> int | None:
    """Return in which second the gang is bound as time goes on and jobs end as they truly do."""
    faults = Faults(())
    planner = Planner(Scenario.model_validate(scenario), faults)
    cluster = planner.cluster
    cluster.populate()
    for second in range(MOST_SECONDS):
        now = cluster.clock.now
        over = tuple(
            cluster.name_of(pod)
            for pod in cluster.pods.values()
            if cluster.state_of(pod) is PodState.RUNNING
            and _started(pod) + lengths.get(cluster.job_of(pod), np.inf) <= now
        )
        if over:
            cluster.happen(Event(before=1, succeed=over))
        planner.plan()
        if planner.observe().pods["big-0"].state == PodState.BINDING:
            return second
        bind_requests(cluster, faults)
        cluster.clock.now += 1
    return None


def _started(pod: Any) -> float:
    return max(seconds(c.last_transition_time) or 0.0 for c in pod.status.conditions)


@some_clusters
@given(clusters(), st.integers(1, 3))
def test_no_later_job_delays_the_first_gang_when_run_times_are_exact(
    drawn: tuple[dict[str, Any], list[dict[str, Any]], dict[str, int]], reservations: int
) -> None:
    scenario, later, lengths = drawn
    config = {"actions": ["allocate", "backfill"], "backfill": {"reservations": reservations}}
    alone = start_of_big({**scenario, "config": config}, lengths)

    among_others = {**scenario, "config": config, "jobs": [*scenario["jobs"], *later]}

    assert alone is not None
    assert start_of_big(among_others, lengths) == alone


@some_clusters
@given(clusters(), st.integers(1, 3))
def test_backfill_settles_and_releases_all_room_when_nothing_changes(
    drawn: tuple[dict[str, Any], list[dict[str, Any]], dict[str, int]], reservations: int
) -> None:
    scenario, later, _ = drawn
    jobs = [*scenario["jobs"], *later]
    text = {**scenario, "jobs": jobs, "config": {"backfill": {"reservations": reservations}}}
    planner, actions = Planner(Scenario.model_validate(text), Faults(())), list[int]()

    for _ in play(planner, CYCLES):
        nodes = planner.engine.cluster.state.nodes
        assert (nodes.pipelined == 0).all()
        assert (nodes.idle >= 0).all()
        actions.append(planner.observe().actions)

    assert actions[-1] == actions[-1 - IDLE_CYCLES]


@some_clusters
@given(clusters())
def test_a_reservation_never_moves_later_while_all_pods_end_in_time(
    drawn: tuple[dict[str, Any], list[dict[str, Any]], dict[str, int]],
) -> None:
    scenario, later, _ = drawn
    jobs = [*scenario["jobs"], *later]
    text = {**scenario, "jobs": jobs, "config": {"actions": ["allocate", "backfill"]}}
    planner, starts = Planner(Scenario.model_validate(text), Faults(())), list[float]()

    for _ in play(planner, 6):
        for report in planner.engine.report.jobs.values():
            if report.key.name == "big" and report.reservation is not None:
                assert report.reservation.start is not None, "all that runs says how long"
                starts.append(report.reservation.start)

    assert starts == sorted(starts, reverse=True)
