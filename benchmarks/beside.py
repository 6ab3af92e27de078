"""The agent beside a kubelet: what it takes of its node, and what the kubelet takes because of it.

Used by `__main__`. One real node with the static CPU and memory managers; the agent runs beside its
kubelet, first without pods, then with many that the kubelet has admitted and that never start, so
that containers take nothing; then a pod comes and goes again and again. Needs root, as real nodes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import Cluster
from benchmarks.usage import Usage
from benchmarks.workload import NAMESPACE, Wire
from bindery.api import numadetail
from bindery.api.names import NUMA_DETAIL_ANNOTATION
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from bindery.kube.objects.resources import NAMESPACES, PODS
from devcluster import nodeaccount, published
from devcluster.build import Report
from devcluster.components import Component, Components
from devcluster.install import install
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.images import BUSYBOX
from devcluster.realnode.node import RealNode

_LIMIT_S: Final = 300.0
_SPAN_S: Final = 30.0
_SETTLE_S: Final = 10.0
_LOOK_S: Final = 0.2
_KUBELET: Final = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "memoryManagerPolicy": "Static",
    "systemReserved": {"memory": "500Mi"},
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "600Mi"}}],
    "topologyManagerPolicy": "single-numa-node",
    "maxPods": 150,
}


@dataclass(frozen=True)
class Span:
    """One span of time. CPU in percent of a core, memory in units of 1,000,000 bytes."""

    name: str
    agent_cpu: float
    agent_mb: float
    kubelet_cpu: float
    """Of the kubelet, with what the agent asks of it."""


@dataclass(frozen=True)
class Lap:
    """The spans of one run, and how late reports are."""

    kubelet_alone_cpu: float
    """Of the kubelet with all pods and without the agent."""
    spans: tuple[Span, ...]
    report_s: float
    """Median from a pod's creation until a report lists it."""


def measure(directory: Path, pods: int, report: Report) -> Lap:
    """Measure with `pods` pods.

    Raises:
        ControlPlaneError: this machine cannot run a real node; the text has the reason.
        TimeoutError: something does not happen.
    """
    with RealCluster(directory, report) as nodes:
        node = nodes.add_node(nodes.plan(1, kubelet=_KUBELET))
        with nodes.control_plane.network.entered():
            return asyncio.run(_measured(nodes, node, pods, report))


async def _measured(nodes: RealCluster, node: RealNode, pods: int, report: Report) -> Lap:
    plane = nodes.control_plane
    installation = await asyncio.to_thread(install, plane)
    definition = published.NODE_TOPOLOGY.fetch(report) / "crd.yaml"
    await asyncio.to_thread(plane.kubectl, "apply", "--server-side", f"-f={definition}")
    await asyncio.to_thread(nodeaccount.apply, plane)
    async with Client.connect(plane.admin_kubeconfig, user_agent="bindery-bench/0") as client:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        cluster = Cluster(plane, installation, client)
        with Components(installation) as components:
            kubelet = node.root / "var/lib/kubelet"
            agent = components.start_beside(node.name, kubelet, node.kubelet_configuration)
            await asyncio.to_thread(agent.wait_ready)
            scene = _Scene(client, agent, node, report)
            spans = [await scene.span("idle, no pods", asyncio.sleep(_SPAN_S))]
            await cluster.create_all(PODS, [_pod(f"pod-{i}", node.name) for i in range(pods)],
                                     NAMESPACE)  # fmt: skip
            await scene.wait_listed(lambda listed: len(listed) >= pods)
            spans.append(await scene.span(f"idle, {pods} pods", asyncio.sleep(_SPAN_S)))
            delays: list[float] = []
            spans.append(await scene.span(f"{pods} pods, one comes and goes", scene.churn(delays)))
            agent.stop()
            await asyncio.sleep(_SETTLE_S)
            alone = await scene.kubelet_cpu(asyncio.sleep(_SPAN_S))
    return Lap(alone, tuple(spans), sorted(delays)[len(delays) // 2])


class _Scene:
    """The agent and its node."""

    def __init__(self, client: Client, agent: Component, node: RealNode, report: Report) -> None:
        self._client, self._agent, self._node, self._report = client, agent, node, report

    async def span(self, name: str, work: Awaitable[None]) -> Span:
        """Return what was used while `work` was done."""
        await asyncio.sleep(_SETTLE_S)
        before, began = Usage.of(self._agent.process.pid).cpu_s, time.monotonic()
        kubelet_cpu = await self.kubelet_cpu(work)
        usage = Usage.of(self._agent.process.pid)
        cpu = 100 * (usage.cpu_s - before) / (time.monotonic() - began)
        self._report(f"{name}: {cpu:.2f} % of a core, {usage.peak_mb:.0f} MB; "
                     f"the kubelet {kubelet_cpu:.2f} %")  # fmt: skip
        return Span(name, cpu, usage.peak_mb, kubelet_cpu)

    async def kubelet_cpu(self, work: Awaitable[None]) -> float:
        """Return what the kubelet takes while `work` is done, in percent of a core."""
        (pid,) = self._node.pids("kubelet")
        before, began = Usage.of(pid).cpu_s, time.monotonic()
        await work
        return 100 * (Usage.of(pid).cpu_s - before) / (time.monotonic() - began)

    async def wait_listed(self, is_so: Callable[[list[str]], bool]) -> None:
        """Wait until the UIDs of the pods in the report are as wanted."""
        async with asyncio.timeout(_LIMIT_S):
            while not is_so(await self._listed()):  # noqa: ASYNC110  # an API server tells no one
                await asyncio.sleep(_LOOK_S)

    async def churn(self, delays: list[float]) -> None:
        """Let one pod after the other come and go; enter how late each is listed."""
        ends_s, number = time.monotonic() + _SPAN_S, 0
        while time.monotonic() < ends_s:
            name, number = f"guest-{number}", number + 1
            began_s = time.monotonic()
            pod = await self._client.create(PODS, _pod(name, self._node.name), NAMESPACE)
            uid = pod.metadata.uid
            await self.wait_listed(partial(_has, uid, wanted=True))
            delays.append(time.monotonic() - began_s)
            await self._client.delete(PODS, name, NAMESPACE)
            await self.wait_listed(partial(_has, uid, wanted=False))

    async def _listed(self) -> list[str]:
        try:
            found = await self._client.get(NODE_RESOURCE_TOPOLOGIES, self._node.name)
        except NotFoundError:
            return []
        return numadetail.decode(found.metadata.annotations[NUMA_DETAIL_ANNOTATION]).pods


def _has(uid: str, listed: list[str], *, wanted: bool) -> bool:
    return (uid in listed) is wanted


def _pod(name: str, node: str) -> Wire:
    """Return a pod that waits for a Secret that never comes."""
    amounts: dict[str, Any] = {"cpu": "1m", "memory": "8Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "main",
                    "image": BUSYBOX,
                    "resources": {"limits": amounts},
                    "volumeMounts": [{"name": "never", "mountPath": "/never"}],
                }
            ],
            "volumes": [{"name": "never", "secret": {"secretName": "never"}}],
        },
    }
