"""Races: how long a contender takes until every pod of a workload has a node.

Run by `__main__`, one after another on one cluster. A race: create everything while nobody
schedules, let the machine settle, start the contender, take the time from its being ready until
the last pod has a node, read what the processes used, stop it, remove everything.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from benchmarks.cluster import NAMESPACE, Cluster
from benchmarks.contenders import Contender
from benchmarks.usage import Usage
from benchmarks.witness import Witness
from benchmarks.workload import Workload
from bindery.controlplane.processes import Process

_SETTLE_S: Final = 3.0
"""Lets caches and collectors of the control plane finish with what was created or removed."""
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

    def peak_mb(self, process: str) -> float:
        """Return the most memory that the process held in any lap, in MB."""
        return max(lap.usage[process].peak_mb for lap in self.laps)

    def cpu_s_per_1000_pods(self, process: str) -> float:
        """Return the median CPU time of the process, in seconds per 1,000 pods."""
        return median(lap.usage[process].cpu_s / lap.pods * 1000 for lap in self.laps)


async def race(cluster: Cluster, contender: Contender, workload: Workload) -> Lap:
    """Run one race on an empty cluster and leave it empty."""
    workload = replace(workload, scheduler_name=contender.scheduler_name)
    await cluster.fill(workload)
    lap = await timed(cluster, contender, workload.pods)
    await cluster.clear()
    return lap


async def timed(cluster: Cluster, contender: Contender, pods: int) -> Lap:
    """Let the contender bind the `pods` pods that are there; stop it in any case."""
    witness = Witness(cluster.client, NAMESPACE, pods)
    watching = asyncio.create_task(witness.run())
    try:
        await witness.prepare()
        await contender.prepare(cluster)
        await asyncio.sleep(_SETTLE_S)
        before = _read(cluster.processes())
        ready_s = await contender.start(cluster)
        before |= _read(contender.processes())
        await witness.see_all(_LIMIT_S)
        after = _read({**contender.processes(), **cluster.processes()})
    finally:
        watching.cancel()
        await asyncio.to_thread(contender.stop)
    usage = {
        name: Usage(used.cpu_s - before[name].cpu_s, used.peak_mb) for name, used in after.items()
    }
    # kube-scheduler may have bound a pod before it was asked again whether it is ready.
    started_s = min(ready_s, witness.first_s)
    return Lap(pods, witness.first_s - started_s, witness.last_s - started_s, usage)


def _read(processes: Mapping[str, Process]) -> dict[str, Usage]:
    return {name: Usage.of(process.pid) for name, process in processes.items()}
