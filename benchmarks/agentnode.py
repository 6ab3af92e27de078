"""A node of the agent beside a node of a kubelet: many pods at once, and what each takes idle.

Used by `__main__`. Two real nodes with containerd on one machine. In each run both are idle without
pods at the same time; then each in turn gets its pods, all at once and bound to it by name, in an
order that alternates; then both are idle with their pods, and each in turn loses them. Needs root,
as real nodes do.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.usage import Usage
from benchmarks.workload import NAMESPACE, Wire
from bindery.kube.client import Client
from bindery.kube.objects.resources import NAMESPACES, PODS
from devcluster.build import Report
from devcluster.realnode import agentnode
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.images import BUSYBOX
from devcluster.realnode.node import RealNode

AGENT: Final = "agent"
KUBELET: Final = "kubelet"
SPAN_S: Final = 30.0
"""How long each span without work is."""
_SETTLE_S: Final = 10.0
_LOOK_S: Final = 0.2
_LIMIT_S: Final = 600.0
_PROGRAMS: Final = {AGENT: Path(sys.executable).resolve().name, KUBELET: "kubelet"}
_RUNTIME: Final = "containerd"


@dataclass(frozen=True)
class Idle:
    """A span without work: CPU in percent of a core, resident memory in 1,000,000 bytes."""

    cpu_percent: float
    resident_mb: float


@dataclass(frozen=True)
class Lap:
    """One run of one node. Seconds of a pod are from the sending of its creation."""

    first_line_s: float
    """Median until the log has what a pod's process writes first."""
    last_line_s: float
    """The same for the last pod."""
    running_s: float
    """Until the API server has all pods as Running, from the first creation."""
    gone_s: float
    """Until the API server has none of them, from the first deletion."""
    cpu_s: float
    """CPU time of the agent or the kubelet, until all are Running."""
    runtime_cpu_s: float
    """That of containerd."""
    empty: Idle
    full: Idle


Laps = Mapping[str, Sequence[Lap]]
"""`AGENT` and `KUBELET`, each to its runs."""


@dataclass(frozen=True)
class _Burst:
    line_s: Sequence[float]
    running_s: float
    cpu_s: float
    runtime_cpu_s: float


def measure(directory: Path, pods: int, runs: int, report: Report) -> Laps:
    """Measure `runs` runs with `pods` pods on each node.

    Raises:
        ControlPlaneError: this machine cannot run a real node; the text has the reason.
        TimeoutError: pods do not run, or do not go.
    """
    with RealCluster(directory, report) as cluster:
        kubelet = cluster.add_node(cluster.plan(1))
        added = agentnode.added(cluster, 2, services={})
        with added as agent, cluster.control_plane.network.entered():
            nodes = {KUBELET: kubelet, AGENT: agent}
            return asyncio.run(_measured(cluster, nodes, pods, runs, report))


async def _measured(
    cluster: RealCluster, nodes: Mapping[str, RealNode], pods: int, runs: int, report: Report
) -> Laps:
    laps: dict[str, list[Lap]] = {name: [] for name in nodes}
    kubeconfig = cluster.control_plane.admin_kubeconfig
    async with Client.connect(kubeconfig, user_agent="bindery-bench/0") as client:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        account = ("serviceaccount/default", f"--namespace={NAMESPACE}", "--timeout=60s")
        await asyncio.to_thread(cluster.control_plane.kubectl, "wait", "--for=create", *account)
        sides = {name: _Side(client, name, node, pods) for name, node in nodes.items()}
        for side in sides.values():  # not counted: caches, and the first pod's network
            await side.start()
            await side.end()
        for number in range(runs):
            order = list(sides) if number % 2 else list(reversed(sides))
            empty = await _idle(sides)
            bursts = {name: await sides[name].start() for name in order}
            full = await _idle(sides)
            for name in order:
                gone_s = await sides[name].end()
                lap = _lap(bursts[name], gone_s, empty[name], full[name])
                laps[name].append(lap)
                report(f"run {number + 1} of {runs}, {name}: {lap}")
    return laps


def _lap(burst: _Burst, gone_s: float, empty: Idle, full: Idle) -> Lap:
    return Lap(
        median(burst.line_s),
        max(burst.line_s),
        burst.running_s,
        gone_s,
        burst.cpu_s,
        burst.runtime_cpu_s,
        empty,
        full,
    )


async def _idle(sides: Mapping[str, "_Side"]) -> Mapping[str, Idle]:
    """Return what each takes in one and the same span."""
    await asyncio.sleep(_SETTLE_S)
    before, began_s = {name: side.cpu_s() for name, side in sides.items()}, time.monotonic()
    await asyncio.sleep(SPAN_S)
    passed_s = time.monotonic() - began_s
    return {
        name: Idle(100 * (side.cpu_s() - before[name]) / passed_s, side.resident_mb())
        for name, side in sides.items()
    }


class _Side:
    """A node and its pods."""

    def __init__(self, client: Client, name: str, node: RealNode, pods: int) -> None:
        self._client, self._name, self._node = client, name, node
        self._pods = [f"{name}-{number}" for number in range(pods)]
        (self._pid,) = node.pids(_PROGRAMS[name])

    def cpu_s(self) -> float:
        """Return the CPU time of the agent or kubelet so far."""
        return Usage.of(self._pid).cpu_s

    def resident_mb(self) -> float:
        """Return the memory that it holds now."""
        return Usage.of(self._pid).resident_mb

    async def start(self) -> _Burst:
        """Create all pods at once, and wait until they run."""
        own_s, runtime_s, began_s = self.cpu_s(), self._runtime_s(), time.monotonic()
        created = dict(await asyncio.gather(*(self._create(name) for name in self._pods)))
        await self._until(len(self._pods), phase="Running")
        running_s = time.monotonic() - began_s
        used_s, runtime_used_s = self.cpu_s() - own_s, self._runtime_s() - runtime_s
        lines = [self._first_line_s(path) - sent_s for path, sent_s in created.items()]
        return _Burst(lines, running_s, used_s, runtime_used_s)

    async def end(self) -> float:
        """Delete all pods; return the seconds until they have gone."""
        began_s = time.monotonic()
        await asyncio.gather(*(self._client.delete(PODS, name, NAMESPACE) for name in self._pods))
        await self._until(0)
        return time.monotonic() - began_s

    async def _create(self, name: str) -> tuple[str, float]:
        """Create a pod; return where its log is, and when its creation was sent."""
        sent_s = time.time()
        pod = await self._client.create(PODS, _pod(name, self._node.name), NAMESPACE)
        return f"{NAMESPACE}_{name}_{pod.metadata.uid}/main/0.log", sent_s

    def _first_line_s(self, path: str) -> float:
        """Return the time that containerd has written before the first line of a log."""
        log = self._node.root / "var/log/pods" / path
        return datetime.fromisoformat(log.read_text().split(maxsplit=1)[0]).timestamp()

    async def _until(self, count: int, phase: str = "") -> None:
        async with asyncio.timeout(_LIMIT_S):
            while await self._count(phase) != count:  # noqa: ASYNC110  nothing reports it
                await asyncio.sleep(_LOOK_S)

    async def _count(self, phase: str) -> int:
        own = f"spec.nodeName={self._node.name}"
        found = await self._client.list(PODS, namespace=NAMESPACE, field_selector=own)
        return sum(phase in {"", pod.status.phase} for pod in found)

    def _runtime_s(self) -> float:
        return sum(Usage.of(pid).cpu_s for pid in self._node.pids(_RUNTIME))


def _pod(name: str, node: str) -> Wire:
    script = "trap exit TERM; echo started; sleep 3600 & wait"
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [container]},
    }
