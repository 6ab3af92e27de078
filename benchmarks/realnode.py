"""A real node: how long from a pod's creation until its container runs.

Used by `__main__`. One kubelet with containerd; Bindery and kube-scheduler get one pod after the
other in turns, of the same image, while nothing else waits. Each pod is gone before the next comes,
so that only the way of one pod is measured. Needs root, as real nodes do.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cluster import Cluster
from benchmarks.contenders import Bindery, Contender, KubeScheduler
from benchmarks.workload import NAMESPACE, Wire
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import NAMESPACES, PODS
from devcluster.build import Report
from devcluster.install import install
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.images import BUSYBOX

_LIMIT_S: Final = 60.0
_LOOK_S: Final = 0.01
_WARM_UP: Final = 2
"""Pods of each contender that are not counted."""


@dataclass(frozen=True)
class Way:
    """The times of one pod, in seconds from its creation."""

    bound_s: float
    running_s: float


Ways = Mapping[str, Sequence[Way]]
"""Contender -> its pods."""


def measure(directory: Path, pods: int, report: Report) -> Ways:
    """Measure `pods` pods of each contender.

    Raises:
        ControlPlaneError: this machine cannot run a real node; the text has the reason.
        TimeoutError: a pod does not run.
    """
    with RealCluster(directory, report) as nodes:
        nodes.add_node(nodes.plan(1))
        with nodes.control_plane.network.entered():
            return asyncio.run(_race(nodes, pods, report))


async def _race(nodes: RealCluster, pods: int, report: Report) -> Ways:
    plane = nodes.control_plane
    installation = await asyncio.to_thread(install, plane)
    contenders: dict[str, Contender] = {"bindery": Bindery(), "kube-scheduler": KubeScheduler()}
    ways: dict[str, list[Way]] = {name: [] for name in contenders}
    async with Client.connect(plane.admin_kubeconfig, user_agent="bindery-bench/0") as client:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        cluster = Cluster(plane, installation, client)
        try:
            for contender in contenders.values():
                await contender.prepare(cluster)
                await contender.start(cluster)
            for number in range(_WARM_UP + pods):
                for name, contender in contenders.items():
                    way = await _way(client, _pod(f"{name}-{number}", contender.scheduler_name))
                    if number >= _WARM_UP:
                        ways[name].append(way)
                report(f"pod {number + 1} of {_WARM_UP + pods} of each")
        finally:
            for contender in contenders.values():
                contender.stop()
    return ways


async def _way(client: Client, body: Wire) -> Way:
    name = body["metadata"]["name"]
    bound_s = 0.0
    began_s = time.monotonic()
    await client.create(PODS, body, NAMESPACE)
    async with asyncio.timeout(_LIMIT_S):
        while True:
            pod = await client.get(PODS, name, NAMESPACE)
            passed_s = time.monotonic() - began_s
            if pod.spec.node_name and not bound_s:
                bound_s = passed_s
            if pod.status.phase == "Running":
                break
            await asyncio.sleep(_LOOK_S)
        await client.delete(PODS, name, NAMESPACE)
        while await _is_there(client, name):  # noqa: ASYNC110  # nobody tells us
            await asyncio.sleep(_LOOK_S)
    return Way(bound_s, passed_s)


async def _is_there(client: Client, name: str) -> bool:
    try:
        await client.get(PODS, name, NAMESPACE)
    except NotFoundError:
        return False
    return True


def _pod(name: str, scheduler: str) -> Wire:
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sh", "-c", "trap exit TERM; sleep 600 & wait"],
        "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }
