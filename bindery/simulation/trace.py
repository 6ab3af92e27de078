"""A trace: the cluster at the start, and the jobs that arrive, with the times that they run.

Made by `openb`, `manifests` and `load`, played by `player`. Pure data.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.gpushare import WHOLE
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import KubeObject, Node, Pod
from bindery.scheduler.model.resources import ResourceAxis
from bindery.scheduler.model.shapes import ShapeBook
from bindery.simulation.cluster import SimulatedCluster

START_S = 1_700_000_000.0
"""The time at which a trace without times of its own starts, in seconds since the epoch."""


class TraceError(Exception):
    """A trace cannot be used; the message has the file, the line and the column if known."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that is submitted: a single pod, or a PodGroup with its pods."""

    at_s: float
    """Seconds after the start of the trace."""
    pods: tuple[Pod, ...]
    group: PodGroup | None = None
    runtime_s: float = math.inf
    """Time that each pod runs; pods may declare a shorter one. Infinite: the trace has no end."""
    gpus: float = 0.0
    """GPUs that all pods request, shares as fractions."""


@dataclass(frozen=True)
class Trace:
    """All that happens to a cluster from outside."""

    name: str
    beginning: tuple[KubeObject, ...]
    """Nodes, queues, priority classes, and the jobs that run or wait at the start."""
    arrivals: tuple[Arrival, ...]
    """In the order of their times."""
    start_s: float = START_S
    """Seconds since the epoch."""
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """`Kind/name` of an object of the trace that is not simulated -> why."""

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes of the beginning."""
        return (item for item in self.beginning if isinstance(item, Node))

    @cached_property
    def capacity_gpus(self) -> float:
        """Number of GPUs that the nodes offer to queues at the start."""
        cluster = SimulatedCluster(SchedulerConfiguration(), self.start_s)
        for item in self.beginning:
            cluster.add(item)
        return cluster.offered().get("gpu", 0.0)

    @cached_property
    def requested_gpus(self) -> float:
        """GPUs that all arrivals request together."""
        return sum(arrival.gpus for arrival in self.arrivals)


class GpuReader:
    """Reads the GPUs of pods, as the scheduler counts them."""

    def __init__(self) -> None:
        self._shapes = ShapeBook(ResourceAxis())

    def gpus(self, pod: Pod) -> float:
        """Return the GPUs that `pod` requests, shares as fractions; 0 for shares by memory."""
        share = self._shapes.of(pod).request.share
        return 0.0 if share is None else share.devices * share.portion / WHOLE
