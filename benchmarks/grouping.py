"""The grouper: how long until all pods of many Jobs have their PodGroup, and what it writes.

Used by `__main__`. A lap: the real job controller makes the pods of all Jobs while nobody groups;
start the grouper, and take the time from its start until every Job has its PodGroup; read what it
has asked of the API server and its memory. A bare client that decides nothing creates as many
PodGroups, so many at once as the grouper does.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.cluster import NAMESPACE, Cluster
from benchmarks.usage import Usage
from benchmarks.workload import Wire
from bindery.api import names
from bindery.api.configuration import GrouperConfiguration, LeaderElection
from bindery.kube.client import Client
from bindery.kube.objects.resources import POD_GROUPS, PODS, Resource, metadata_only
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.reflector import Change, EventType, Reflector
from devcluster.build import Report
from devcluster.components import Component, Components

_JOBS: Final = Resource("batch", "v1", "jobs", "Job", True, KubeObject)
_GROUPS: Final = metadata_only(POD_GROUPS)
_LIMIT_S: Final = 900.0
_SETTLE_S: Final = 5.0
_WRITING: Final = frozenset({"create", "update", "patch", "delete"})
_CLEARED: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs?propagationPolicy=Background"
JOB_SIZE: Final = 10


@dataclass(frozen=True)
class Lap:
    """What one lap gave."""

    pods: int
    all_grouped_s: float
    """From the start of the process until every Job had its PodGroup."""
    bare_s: float
    """What the bare client took to create as many PodGroups."""
    writes: float
    """Requests of the grouper that write, with Leases and events."""
    reads: float
    """All other requests."""
    usage: Usage


@dataclass(frozen=True)
class Standing:
    """Medians over laps."""

    laps: tuple[Lap, ...]

    @property
    def pods_per_second(self) -> float:
        """Pods that are grouped in a second, the start of the process included."""
        return median(lap.pods / lap.all_grouped_s for lap in self.laps)

    @property
    def bare_pods_per_second(self) -> float:
        """The same of the bare client."""
        return median(lap.pods / lap.bare_s for lap in self.laps)

    @property
    def writes_per_pod(self) -> float:
        """Requests that write, for each pod."""
        return median(lap.writes / lap.pods for lap in self.laps)

    @property
    def requests_per_pod(self) -> float:
        """All requests, for each pod."""
        return median((lap.writes + lap.reads) / lap.pods for lap in self.laps)

    @property
    def peak_mb(self) -> float:
        """The most memory in any lap, in MB."""
        return max(lap.usage.peak_mb for lap in self.laps)

    @property
    def cpu_s_per_1000_pods(self) -> float:
        """CPU time of the grouper for 1,000 pods."""
        return median(lap.usage.cpu_s / lap.pods * 1000 for lap in self.laps)


async def measure(cluster: Cluster, jobs: int, size: int, runs: int, report: Report) -> Standing:
    """Measure `runs` laps with `jobs` Jobs of `size` pods."""
    laps = []
    for number in range(runs):
        lap = await _lap(cluster, jobs, size)
        report(
            f"grouping {number + 1} of {runs}: {lap.pods} pods of {jobs} Jobs in "
            f"{lap.all_grouped_s:.1f} s, bare client {lap.bare_s:.1f} s, "
            f"{lap.writes / lap.pods:.3f} writes a pod, {lap.usage.peak_mb:.0f} MB"
        )
        laps.append(lap)
    return Standing(tuple(laps))


async def _lap(cluster: Cluster, jobs: int, size: int) -> Lap:
    await cluster.create_all(_JOBS, (_job(number, size) for number in range(jobs)), NAMESPACE)
    await _until(cluster.client, metadata_only(PODS), jobs * size)
    await asyncio.sleep(_SETTLE_S)
    with Components(cluster.installation) as components:
        began = time.monotonic()
        grouper = components.start_grouper(
            GrouperConfiguration(leader_election=LeaderElection(enabled=False))
        )
        await _until(cluster.client, _GROUPS, jobs)
        all_grouped_s = time.monotonic() - began
        await asyncio.sleep(_SETTLE_S)
        writes, reads = _requests(await asyncio.to_thread(grouper.metrics))
        usage = Usage.of(_pid(grouper))
    bare_s = await _bare(cluster, jobs)
    # Their controller would make the pods again.
    await cluster.clear(first=[_CLEARED])
    return Lap(jobs * size, all_grouped_s, bare_s, writes, reads, usage)


async def _bare(cluster: Cluster, jobs: int) -> float:
    """Create `jobs` PodGroups; return the seconds."""
    at_once = GrouperConfiguration().concurrent_writes
    began = time.monotonic()
    await cluster.create_all(POD_GROUPS, _groups(jobs), NAMESPACE, at_once=at_once)
    return time.monotonic() - began


async def _until(client: Client, resource: Resource[KubeObject], count: int) -> None:
    """Wait until there are so many objects; a watch tells, as lists would load the API server."""
    enough = asyncio.Event()
    seen = 0

    def take(change: Change[KubeObject]) -> None:
        nonlocal seen
        seen += change.type is EventType.ADDED
        if seen >= count:
            enough.set()

    watching = asyncio.create_task(Reflector(client, resource, take, namespace=NAMESPACE).run())
    try:
        async with asyncio.timeout(_LIMIT_S):
            await enough.wait()
    finally:
        watching.cancel()


def _requests(metrics: str) -> tuple[float, float]:
    """Return how many requests write, and how many do not."""
    writes = reads = 0.0
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name != "bindery_api_requests_total":
                continue
            if sample.labels["verb"] in _WRITING:
                writes += sample.value
            else:
                reads += sample.value
    return writes, reads


def _pid(component: Component) -> int:
    return component.process.pid


def _job(number: int, size: int) -> Wire:
    container = {
        "name": "worker",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    pod = {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never"}
    template = {"spec": {**pod, "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{number:05}", "namespace": NAMESPACE},
        "spec": {"completions": size, "parallelism": size, "template": template},
    }


def _groups(jobs: int) -> Iterator[Wire]:
    for number in range(jobs):
        yield {
            "apiVersion": names.API_VERSION,
            "kind": "PodGroup",
            "metadata": {"name": f"bare-{number:05}", "namespace": NAMESPACE},
            "spec": {"minMember": 1, "members": [{"controller": f"{number:05}"}]},
        }
