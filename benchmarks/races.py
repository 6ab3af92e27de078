"""Races: how long a contender takes until every pod of a workload has a node.

Run by `__main__`, one after another on one cluster. A race: create everything while nobody
schedules, let the machine settle, start the contender, take the time from its being ready until
the last pod has a node, read what the processes used, let them write what is left, stop them,
remove everything.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from benchmarks.cluster import Cluster
from benchmarks.contenders import Contender
from benchmarks.usage import NO_WRITES, Usage, Writes
from benchmarks.witness import Witness
from benchmarks.workload import NAMESPACE, Workload
from devcluster.processes import Process

_LIMIT_S: Final = 900.0


@dataclass(frozen=True)
class Lap:
    """One race."""

    pods: int
    first_bind_s: float
    """From the start of the clock to the first pod with a node."""
    all_bound_s: float
    """From the start of the clock to the last pod with a node."""
    usage: Mapping[str, Usage]
    """Process -> CPU time while the clock ran, and peak memory since its start."""
    writes: Writes = NO_WRITES
    """From the start of the contender to a few seconds after the last pod had a node."""

    @property
    def pods_per_second(self) -> float:
        """The rate over the whole time."""
        return self.pods / self.all_bound_s


@dataclass(frozen=True)
class Standing:
    """Medians over the laps of one contender."""

    laps: tuple[Lap, ...]

    @property
    def pods_per_second(self) -> float:
        """The median rate."""
        return median(lap.pods_per_second for lap in self.laps)

    @property
    def first_bind_s(self) -> float:
        """The median time to the first bind."""
        return median(lap.first_bind_s for lap in self.laps)

    @property
    def processes(self) -> tuple[str, ...]:
        """The names of all processes, the contender's first."""
        return tuple(self.laps[0].usage)

    @property
    def writes_per_pod(self) -> float:
        """The median number of requests that write."""
        return median(lap.writes.all / lap.pods for lap in self.laps)

    @property
    def events_per_pod(self) -> float:
        """The median number of requests that write Events."""
        return median(lap.writes.events / lap.pods for lap in self.laps)

    def cpu_s_per_1000_pods_of(self, processes: Collection[str]) -> float:
        """Return the median CPU time of `processes` together, in seconds per 1,000 pods."""
        return median(
            sum(lap.usage[name].cpu_s for name in processes) / lap.pods * 1000 for lap in self.laps
        )

    def peak_mb(self, process: str) -> float:
        """Return the most memory that the process held in any lap, in MB."""
        return max(lap.usage[process].peak_mb for lap in self.laps)

    def cpu_s_per_1000_pods(self, process: str) -> float:
        """Return the median CPU time of the process, in seconds per 1,000 pods."""
        return self.cpu_s_per_1000_pods_of([process])


async def race(cluster: Cluster, contender: Contender, workload: Workload) -> Lap:
    """Run one race on an empty cluster and leave it empty."""
    workload = replace(workload, scheduler_name=contender.scheduler_name)
    await cluster.fill(workload)
    where = NAMESPACE if workload.namespace_count == 1 else ""
    lap = await timed(cluster, contender, workload.pods, where)
    await cluster.clear(within=workload.namespaces)
    return lap


async def timed(
    cluster: Cluster, contender: Contender, pods: int, namespace: str = NAMESPACE
) -> Lap:
    """Let the contender bind the `pods` pods that are there; stop it in any case.

    `namespace`: where they are; empty if they are in several.
    """
    witness = Witness(cluster.client, namespace, pods)
    watching = asyncio.create_task(witness.run())
    try:
        await witness.prepare()
        await contender.prepare(cluster)
        await cluster.settle()
        written = await cluster.writes()
        before = _read(cluster.processes())
        ready_s = await contender.start(cluster)
        before |= _read(contender.processes())
        await witness.see_all(_LIMIT_S)
        after = _read({**contender.processes(), **cluster.processes()})
        await cluster.settle()
        writes = (await cluster.writes()).since(written)
    finally:
        watching.cancel()
        await asyncio.to_thread(contender.stop)
    usage = {
        name: Usage(used.cpu_s - before[name].cpu_s, used.peak_mb) for name, used in after.items()
    }
    # kube-scheduler may have bound a pod before it was asked again whether it is ready.
    started_s = min(ready_s, witness.first_s)
    first_s, last_s = witness.first_s - started_s, witness.last_s - started_s
    return Lap(pods, first_s, last_s, usage, writes)


def _read(processes: Mapping[str, Process]) -> dict[str, Usage]:
    return {name: Usage.of(process.pid) for name, process in processes.items()}
