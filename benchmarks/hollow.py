"""Hollow nodes: how long until all pods that are bound to them run, and what the agent takes.

Used by `__main__`. One agent runs nodes with two NUMA zones, the static CPU policy and
single-numa-node, and reports their zones. Pods with exclusive CPUs are created on the nodes, each
with its node from the start; then the agent is left alone for a while.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.cluster import NAMESPACE, Cluster
from benchmarks.usage import Usage
from benchmarks.workload import Wire
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from bindery.kube.objects.resources import PODS
from devcluster import published
from devcluster.build import Report
from devcluster.components import Component, Components

PREFIX: Final = "measured-"
_LIMIT_S: Final = 900.0
_IDLE_S: Final = 30.0
"""Three renewals of every Lease."""
_LOOK_S: Final = 0.25
_SETTLE_S: Final = 5.0
_SHAPE: Final = (
    f"--name-prefix={PREFIX}",
    "--set=numa.sockets=2",
    "--set=numa.threadsPerCore=2",
    "--set=kubelet.cpuManagerPolicy=static",
    "--set=kubelet.systemReserved.cpu=2",
    "--set=kubelet.topologyManagerPolicy=single-numa-node",
    "--remove-on-exit",
)


@dataclass(frozen=True)
class Lap:
    """What one lap gave. Memory is in units of 1,000,000 bytes, idle CPU in percent of a core."""

    nodes: int
    pods: int
    empty_mb: float
    full_mb: float
    empty_cpu_percent: float
    full_cpu_percent: float
    created_s: float
    """From the first pod's creation until the last pod's."""
    all_running_s: float
    """From the first pod's creation until all run."""


async def measure(cluster: Cluster, nodes: int, pods: int, report: Report) -> Lap:
    """Measure `pods` pods on `nodes` nodes.

    Raises:
        TimeoutError: something does not happen.
    """
    definition = published.NODE_TOPOLOGY.fetch(report) / "crd.yaml"
    await asyncio.to_thread(cluster.plane.kubectl, "apply", "--server-side", f"-f={definition}")
    with Components(cluster.installation) as components:
        agent = components.start_hollow_nodes(nodes, _SHAPE)
        async with asyncio.timeout(_LIMIT_S):
            await _reported(cluster, nodes)
        empty_cpu = await _idle(agent)
        empty_mb = Usage.of(_pid(agent)).peak_mb
        report(f"{nodes} nodes: {empty_mb:.0f} MB, {empty_cpu:.1f} % of a core when idle")

        began = time.monotonic()
        await cluster.create_all(PODS, _pods(nodes, pods), NAMESPACE)
        created_s = time.monotonic() - began
        async with asyncio.timeout(_LIMIT_S):
            while await _started(agent) < pods:  # noqa: ASYNC110  nobody tells us
                await asyncio.sleep(_LOOK_S)
        running_s = time.monotonic() - began
        report(f"{pods} pods run {running_s:.1f} s after the first, the last is {created_s:.1f} s")
        full_cpu = await _idle(agent)
        full_mb = Usage.of(_pid(agent)).peak_mb
        report(f"{full_mb:.0f} MB, {full_cpu:.1f} % of a core when idle")
        await cluster.clear()
    return Lap(nodes, pods, empty_mb, full_mb, empty_cpu, full_cpu, created_s, running_s)


async def _reported(cluster: Cluster, nodes: int) -> None:
    """Wait until all nodes have a report, which comes after their registration."""
    while True:
        reports = await cluster.client.list(NODE_RESOURCE_TOPOLOGIES)
        if len(reports) >= nodes:
            return
        await asyncio.sleep(1)


async def _idle(agent: Component) -> float:
    """Return how much of a core the agent takes while nothing happens, in percent."""
    await asyncio.sleep(_SETTLE_S)
    began, before = time.monotonic(), Usage.of(_pid(agent)).cpu_s
    await asyncio.sleep(_IDLE_S)
    used_s = Usage.of(_pid(agent)).cpu_s - before
    return 100 * used_s / (time.monotonic() - began)


async def _started(agent: Component) -> float:
    """Return how many pods the agent has started."""
    text = await asyncio.to_thread(agent.metrics)
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "bindery_nodeagent_pod_steps_total" and sample.labels["step"] == "start"
    )


def _pods(nodes: int, pods: int) -> Iterator[Wire]:
    limits: dict[str, Any] = {"cpu": "4", "memory": "8Gi"}
    for number in range(pods):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}"},
            "spec": {
                "nodeName": f"{PREFIX}{number % nodes}",
                "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
            },
        }


def _pid(agent: Component) -> int:
    return agent.process.pid
