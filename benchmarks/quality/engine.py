"""The experiment through the scheduler: its engine decides, on its own cluster.

Tasks arrive as pods, in their order; a task that does not fit is deleted and not tried again. Each
cycle takes up some arrivals, which the engine serves one after the other, as it serves them one
cycle each: `tests/benchmarks/test_quality.py` holds that both give the same nodes.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.traces import Run
from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.api.names import GPU_MODEL_LABEL
from bindery.kube.objects.watched import Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.engine import Engine
from bindery.simulation.fragmentation import FragmentationMeter
from bindery.simulation.openb import node_object, pod_object
from bindery.simulation.trace import START_S

FRAGMENTATION: Final = "fragmentation"
_ONE: Final = 1000


@dataclass(frozen=True)
class Played:
    """One run through the engine."""

    placed: NDArray[np.bool_]
    """Whether each arrival was placed [arrival]."""
    nodes: tuple[str, ...]
    """The node of each arrival; "" if it was not placed."""
    fragmentation: dict[int, float]
    """GPUs that the typical pod cannot use, when the arrivals had requested so many % of all."""
    seconds_by_cycle: NDArray[np.float64]
    """Processor time of planning, by cycle."""


def play(
    run: Run,
    configuration: SchedulerConfiguration,
    arrivals_by_cycle: int,
    measure_at: tuple[int, ...] = (),
) -> Played:
    """Play `run`. `measure_at`: percentages of requested GPUs at which to measure fragmentation."""
    engine = Engine(configuration, lambda: START_S)
    for rank, row in enumerate(run.nodes):
        # Of equal scores the engine takes the node with the first name, so names follow ranks.
        engine.cluster.apply(Change(EventType.ADDED, node_object(row, f"node-{rank:05}"), None))
    whole = [pod_object(task, task.name, START_S) for task in run.trace]
    meter = FragmentationMeter(engine, whole) if measure_at else None
    found = ["" for _ in run.arrivals]
    lost: dict[int, float] = {}
    seconds: list[float] = []
    requested_milli = 0
    left = list(measure_at)
    for batch in _batches(run, arrivals_by_cycle):
        for number, pod in batch:
            engine.cluster.apply(Change(EventType.ADDED, pod, None))
            requested_milli += run.arrivals[number].total_milli
        started_s = time.process_time()
        for draft in engine.cycle():
            for pod_binding in draft.spec.pods:
                number = int(pod_binding.pod_name.removeprefix("task-"))
                found[number] = pod_binding.selected_node
        seconds.append(time.process_time() - started_s)
        for number, pod in batch:
            if not found[number]:
                engine.cluster.apply(Change(EventType.DELETED, pod, pod))
        while meter is not None and left and 100 * requested_milli >= left[0] * run.capacity_milli:
            lost[left.pop(0)] = meter.lost_gpus()
    placed = np.array([bool(node) for node in found])
    return Played(placed, tuple(found), lost, np.array(seconds))


def configuration(run: Run | None = None, **overrides: Any) -> SchedulerConfiguration:
    """Return the default configuration that only allocates.

    `run`: give the typical workload of its trace to the scheduler, instead of letting it learn.
    `overrides`: further arguments of plugins by the plugin's name.
    """
    default = SchedulerConfiguration()
    arguments = dict(overrides)
    if run is not None:
        arguments[FRAGMENTATION] = {"workload": _workload(run), **arguments.get(FRAGMENTATION, {})}
    plugins = tuple(
        PluginConfiguration(name=plugin.name, arguments=arguments.get(plugin.name, {}))
        for plugin in default.plugins
    )
    # No queue has room to reclaim, and nothing may be moved: those actions would only look.
    return default.model_copy(update={"actions": ("allocate",), "plugins": plugins})


def _batches(run: Run, size: int) -> Iterator[list[tuple[int, Pod]]]:
    """Yield the arrivals as pods, in batches."""
    batch: list[tuple[int, Pod]] = []
    for number, task in enumerate(run.arrivals):
        # All have the same creation time, and then the engine serves them by name.
        batch.append((number, pod_object(task, f"task-{number:06}", START_S)))
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _workload(run: Run) -> list[dict[str, Any]]:
    """Return the kinds of pods of the trace, as the argument of the plugin."""
    counts = Counter((t.cpu_milli, t.gpus, t.gpu_milli, t.models) for t in run.trace)
    return [
        {
            "weight": count,
            "cpu": f"{cpu}m",
            "gpus": gpus if gpus > 1 else gpus * milli / _ONE,
            **_affinity(models),
        }
        for (cpu, gpus, milli, models), count in counts.items()
    ]


def _affinity(models: tuple[str, ...]) -> dict[str, Any]:
    if not models:
        return {}
    one_of = {"key": GPU_MODEL_LABEL, "operator": "In", "values": list(models)}
    return {"requiredAffinity": {"nodeSelectorTerms": [{"matchExpressions": [one_of]}]}}
