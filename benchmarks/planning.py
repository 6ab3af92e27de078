"""Planning alone: how many pods a second the engine plans, in memory.

Run by `__main__`. What is timed is one whole cycle on a fresh engine, from opening the session to
the last BindRequest's draft and the report; filling the engine with objects is not. The clock is
the process's CPU time, which on a quiet machine is the time that passes, and on any other leaves
out what its neighbours take.
"""

import gc
import time
from collections.abc import Iterator

import msgspec

from benchmarks.nodeworlds import topology_report
from benchmarks.workload import Wire, Workload, nodes
from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import KubeObject, Node, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.engine import Engine

_NAMESPACE = "bench"


def pods_per_second(node_count: int, workload: Workload, zones: int = 0) -> float:
    """Plan `workload` on `node_count` empty nodes and return the rate.

    `zones`: NUMA zones that each node reports.

    Raises:
        RuntimeError: not all pods were planned.
    """
    engine = loaded(node_count, workload)
    for name in engine.cluster.state.nodes.rows if zones else ():
        report = topology_report(name, zones)
        engine.cluster.apply(Change(EventType.ADDED, report, None))
    gc.collect()
    started_s = time.process_time()
    planned = sum(len(draft.tasks) for draft in engine.cycle())
    taken_s = time.process_time() - started_s
    if planned != workload.pods:
        raise RuntimeError(f"{planned} of {workload.pods} pods were planned")
    return planned / taken_s


def loaded(node_count: int, workload: Workload) -> Engine:
    """Return an engine that knows `workload` and as many empty nodes."""
    engine = Engine(SchedulerConfiguration(), time.time)
    for item in _objects(node_count, workload):
        engine.cluster.apply(Change(EventType.ADDED, item, None))
    return engine


def _objects(node_count: int, workload: Workload) -> Iterator[KubeObject]:
    for wire in nodes(node_count):
        yield msgspec.convert(_identified(wire, ""), Node)
    for wire in workload.pod_groups():
        yield msgspec.convert(_identified(wire, _NAMESPACE), PodGroup)
    for wire in workload.pod_objects():
        yield msgspec.convert(_identified(wire, _NAMESPACE), Pod)


def _identified(wire: Wire, namespace: str) -> Wire:
    """Return the object with what the API server would have added."""
    metadata = wire["metadata"]
    given = {
        "namespace": namespace,
        "uid": f"uid-{metadata['name']}",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {**wire, "metadata": {**metadata, **given}}
