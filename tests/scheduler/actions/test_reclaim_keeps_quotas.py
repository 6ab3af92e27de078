"""reclaim takes a queue below its quota only if others do not make the room."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from tests.sizes import examples

GPUS = 24


@st.composite
def worlds(draw: st.DrawFn) -> Scenario:
    """Draw one node that is nearly full of gangs of different sizes, and a claim within a quota."""
    names, free = [f"q{i}" for i in range(draw(st.integers(1, 3)))], GPUS
    queues: list[dict[str, Any]] = [
        {"name": name, "gpu": {"quota": draw(st.integers(0, 8)), "weight": draw(st.integers(0, 1))}}
        for name in names
    ]
    jobs: list[dict[str, Any]] = []
    while free > 0 and len(jobs) < 16:
        gpus = min(free, draw(st.sampled_from([1, 1, 1, 4, 6])))
        pod = {"gpus": gpus, "state": "Running", "node": "n0"}
        queue = draw(st.sampled_from(names))
        jobs.append({"name": f"j{len(jobs)}", "queue": queue, "pods": [pod]})
        free -= gpus
    claim = draw(st.integers(1, 8))
    queues.append({"name": "owed", "gpu": {"quota": 8, "weight": 1}})
    jobs.append({"name": "claimant", "queue": "owed", "pods": [{"gpus": claim}]})
    return Scenario.model_validate(
        {"nodes": [{"name": "n0", "gpus": GPUS}], "queues": queues, "jobs": jobs}
    )


@settings(max_examples=examples(21), deadline=None)
@given(worlds())
def test_no_queue_falls_below_its_quota_while_single_gpus_above_quotas_suffice(
    world: Scenario,
) -> None:
    quotas = {queue.name: int(queue.gpu.quota) for queue in world.queues}
    held, singles = dict.fromkeys(quotas, 0), dict.fromkeys(quotas, 0)
    sizes = {job.name: int(job.pods[0].gpus) for job in world.jobs}
    queue_of = {job.name: job.queue for job in world.jobs if job.queue is not None}
    for job in world.jobs[:-1]:
        held[queue_of[job.name]] += sizes[job.name]
        singles[queue_of[job.name]] += sizes[job.name] == 1
    lent = {name: min(max(0, held[name] - quotas[name]), singles[name]) for name in quotas}
    planner = Planner(world, Faults(()))
    planner.cluster.populate()

    planner.plan()

    left = dict(held)
    for eviction in planner.engine.report.evictions:
        victim = eviction.task.job.name
        left[queue_of[victim]] -= sizes[victim]
    if GPUS - sum(held.values()) + sum(lent.values()) >= sizes["claimant"]:
        assert all(left[name] >= min(held[name], quotas[name]) for name in quotas)
