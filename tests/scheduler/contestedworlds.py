"""Small clusters where some jobs run and others compete for their room, run cycle by cycle.

Evicted pods are recreated and wait, as under a controller.
"""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from bindery.scenario.binding import bind_requests
from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner

CORES = 36
"""Of every node: enough for all pods that have their GPUs there."""
STEP_S = 7.0
"""Between two cycles; promises and grace periods run out within twenty of them."""


def _queue_numbers(draw: st.DrawFn) -> dict[str, float]:
    return {
        "quota": draw(st.integers(0, 6)),
        "weight": draw(st.integers(0, 2)),
        "limit": draw(st.sampled_from([-1, -1, -1, 3, 8])),
    }


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw nodes of two GPU models, a tree of queues, and jobs that run or wait."""
    free = {f"node{i}": draw(st.integers(1, 6)) for i in range(draw(st.integers(1, 4)))}
    models = st.sampled_from([None, "H100", "A100"])
    nodes = [
        {"name": name, "gpus": gpus, "gpuModel": draw(models), "cpu": str(CORES)}
        for name, gpus in free.items()
    ]
    names = [f"q{i}" for i in range(draw(st.integers(1, 4)))]
    queues: list[dict[str, Any]] = []
    for index, name in enumerate(names):
        parents = [None, "org0"] if index else [None]
        queues.append(
            {
                "name": name,
                "parent": draw(st.sampled_from(parents)),
                "priority": draw(st.sampled_from([100, 100, 200])),
                "reclaimable": draw(st.sampled_from([True, True, True, False])),
                "gpu": _queue_numbers(draw),
                "cpu": draw(st.sampled_from([{}, {"quota": "8", "weight": 1}])),
            }
        )
    queues.append({"name": "org0", "gpu": _queue_numbers(draw)})
    jobs = [_job(draw, f"j{i}", names, free) for i in range(draw(st.integers(1, 10)))]
    return Scenario.model_validate({"nodes": nodes, "queues": queues, "jobs": jobs})


def _job(draw: st.DrawFn, name: str, queues: list[str], free: dict[str, int]) -> dict[str, Any]:
    gpus, count = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    halves = count > 1 and draw(st.integers(0, 3)) == 0
    pods: list[dict[str, Any]] = []
    room = [node for node in free for _ in range(free[node] // gpus)]
    places = [""] * count
    if len(room) >= count and draw(st.booleans()):
        places = draw(st.permutations(room))[:count]
    for number, node in enumerate(places):
        cores = draw(st.sampled_from(["0", "0", "6"]))
        pods.append(
            {
                "gpus": gpus,
                "cpu": cores,
                "subGroup": ("left", "right")[number % 2] if halves else "",
            }
        )
        if node:
            free[node] -= gpus
            pods[-1] |= {"state": "Running", "node": node}
    return {
        "name": name,
        "queue": draw(st.sampled_from(queues)),
        "priority": draw(st.sampled_from([50, 60, 75, 100, 125])),
        "minMember": draw(st.sampled_from([0, 1, count])),
        "subGroups": [{"name": half, "minMember": 1} for half in ("left", "right")]
        if halves
        else [],
        "minSubGroup": draw(st.sampled_from([None, 1])) if halves else None,
        "pods": pods,
    }


def play(planner: Planner, cycles: int) -> Iterator[int]:
    """Run up to `cycles` cycles; yield the number of each once its plans have been carried out."""
    faults = Faults(())
    planner.cluster.populate()
    for number in range(cycles):
        planner.plan()
        yield number
        planner.cluster.release()
        bind_requests(planner.cluster, faults)
        planner.cluster.clock.now += STEP_S
