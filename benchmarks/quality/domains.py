"""Gangs on racks and blocks by simple policies: first-fit and best-fit of domains.

Both try the racks, then the blocks, then all nodes, and gangs in the order of arrival; a gang that
does not fit does not hold up those behind it. The engine is played with the same gangs.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.gangtraces import BLOCK, NODES, RACK, Gang
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import API_VERSION, HOSTNAME_LABEL, POD_GROUP_ANNOTATION, SCHEDULER_NAME
from bindery.api.times import timestamp
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.topology import Topology, TopologyLevel, TopologySpec
from bindery.kube.objects.watched import Meta, Node, Pod
from bindery.simulation.player import play as play_trace
from bindery.simulation.trace import START_S, Arrival, Trace

RACK_LABEL: Final = "topology.example/rack"
BLOCK_LABEL: Final = "topology.example/block"
_TREE: Final = Topology(
    metadata=Meta(name="cluster", uid="uid-cluster", creation_timestamp=timestamp(START_S)),
    spec=TopologySpec(
        levels=[TopologyLevel(node_label=label) for label in (BLOCK_LABEL, RACK_LABEL)]
    ),
)
Free = NDArray[np.bool_]
Choose = Callable[[Free, int], NDArray[np.intp] | None]
"""Returns so many free nodes for a gang; None if there are too few."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A gang that has started."""

    gang: Gang
    started_s: float
    nodes: tuple[int, ...]
    """Numbers of its nodes."""


def first_fit(free: Free, count: int) -> NDArray[np.intp] | None:
    """Return nodes of the first rack with room, else of the first block, else the first nodes."""
    for size in (RACK, BLOCK, NODES):
        fits = np.flatnonzero(free.reshape(-1, size).sum(axis=1) >= count)
        if len(fits):
            return _taken(free, size, int(fits[0]), count)
    return None


def best_fit(free: Free, count: int) -> NDArray[np.intp] | None:
    """Return nodes of the rack with the least room that suffices, else of such a block, else any.

    In a block, the racks with the least room are emptied first.
    """
    for size in (RACK, BLOCK, NODES):
        room = free.reshape(-1, size).sum(axis=1)
        fits = np.flatnonzero(room >= count)
        if len(fits):
            domain = int(fits[room[fits].argmin()])
            return _taken(free, size, domain, count, fullest_first=True)
    return None


def _taken(
    free: Free, size: int, domain: int, count: int, *, fullest_first: bool = False
) -> NDArray[np.intp]:
    nodes = domain * size + np.flatnonzero(free[domain * size : (domain + 1) * size])
    if fullest_first:
        room = free.reshape(-1, RACK).sum(axis=1)
        nodes = nodes[room[nodes // RACK].argsort(kind="stable")]
    return nodes[:count]


def play_policy(gangs: Sequence[Gang], choose: Choose) -> list[Placed]:
    """Return the gangs that start until the last arrival, by a simple policy."""
    free = np.ones(NODES, dtype=np.bool_)
    ends: list[tuple[float, int, NDArray[np.intp]]] = []
    waiting: list[Gang] = []
    placed: list[Placed] = []
    last_s = gangs[-1].arrival_s
    arrivals = list(gangs)[::-1]
    while arrivals or ends:
        now_s = min(arrivals[-1].arrival_s if arrivals else np.inf, ends[0][0] if ends else np.inf)
        if now_s > last_s:
            break
        while ends and ends[0][0] <= now_s:
            free[heapq.heappop(ends)[2]] = True
        while arrivals and arrivals[-1].arrival_s <= now_s:
            waiting.append(arrivals.pop())
        for gang in list(waiting):
            nodes = choose(free, gang.nodes)
            if nodes is None:
                continue
            waiting.remove(gang)
            free[nodes] = False
            heapq.heappush(ends, (now_s + gang.runtime_s, len(placed), nodes))
            placed.append(Placed(gang, now_s, tuple(nodes.tolist())))
    return placed


# -- the engine --------------------------------------------------------------------------------


def play_engine(
    gangs: Sequence[Gang], configuration: SchedulerConfiguration, *, asks: bool
) -> list[Placed]:
    """Return the gangs that start, by the scheduler's engine.

    `asks`: the gangs prefer one rack, then one block; otherwise they say nothing about domains.
    """
    nodes = [_node(number) for number in range(NODES)]
    arrivals = tuple(_arrival(gang, asks=asks) for gang in gangs)
    beginning = (_TREE, *nodes) if asks else tuple(nodes)
    trace = Trace("gangs", beginning, arrivals)
    record = play_trace(trace, configuration)
    by_name = {key.name: job for key, job in record.jobs.items()}
    found = []
    for gang in gangs:
        job = by_name[gang.name]
        if job.started_s is not None and job.started_s <= gangs[-1].arrival_s:
            numbers = tuple(sorted(int(name.removeprefix("node-")) for name in job.nodes.values()))
            found.append(Placed(gang, job.started_s, numbers))
    return found


def _node(number: int) -> Node:
    name = f"node-{number:04}"
    wire = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": timestamp(START_S),
            "labels": {
                HOSTNAME_LABEL: name,
                RACK_LABEL: f"rack-{number // RACK:02}",
                BLOCK_LABEL: f"block-{number // BLOCK}",
            },
        },
        "status": {
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return msgspec.convert(wire, Node)


def _arrival(gang: Gang, *, asks: bool) -> Arrival:
    created = timestamp(START_S + gang.arrival_s)
    topology = {"topology": {"name": _TREE.metadata.name, "preferred": RACK_LABEL}} if asks else {}
    group = {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": gang.name,
            "namespace": "bench",
            "uid": f"uid-{gang.name}",
            "creationTimestamp": created,
        },
        "spec": {"minMember": gang.nodes, **topology},
    }
    return Arrival(
        at_s=gang.arrival_s,
        pods=tuple(_pod(gang, index, created) for index in range(gang.nodes)),
        group=msgspec.convert(group, PodGroup),
        runtime_s=gang.runtime_s,
        gpus=8.0 * gang.nodes,
    )


def _pod(gang: Gang, index: int, created: str) -> Pod:
    name = f"{gang.name}-{index}"
    requests = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}
    wire = {
        "metadata": {
            "name": name,
            "namespace": "bench",
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            "annotations": {POD_GROUP_ANNOTATION: gang.name},
        },
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "priority": 0,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Pending"},
    }
    return msgspec.convert(wire, Pod)
