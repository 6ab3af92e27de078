"""The binder alone: no scheduler, its BindRequests are created here.

Used by `binder`, which lets its contenders take turns. A lap: furnish the cluster for a world and
create its pods while nobody binds; start the binder and wait until it is ready; then the clock
starts, the requests are created as fast as they can be, and it stops when the last pod has a node.
A bare client that is given the same requests makes the same writes and decides nothing.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.bindingworlds import Placed, World
from benchmarks.cluster import NAMESPACE, Cluster
from benchmarks.contenders import Contender, profiled, until_answered
from benchmarks.races import Lap, timed
from benchmarks.workload import Wire, Workload
from bindery.api.configuration import BinderConfiguration
from bindery.api.names import API_VERSION, STATEMENT_LABEL
from bindery.kube.objects.resources import BIND_REQUESTS, PODS
from devcluster.components import Component, Components
from devcluster.processes import Process

_AT_ONCE: Final = 16
"""Requests that are being created, as many as the bare client carries out."""
Make = Callable[[Sequence[Wire]], Contender]
"""Makes a contender that carries out these BindRequests."""


class BinderAlone(Contender):
    """The binder, under its ServiceAccount, with the chart's configuration or another."""

    def __init__(
        self,
        requests: Sequence[Wire] = (),
        *,
        configuration: BinderConfiguration | None = None,
        profiles: Path | None = None,
    ) -> None:
        """Carry out `requests`; `profiles`: run under cProfile, with the chart's configuration."""
        self._requests, self._configuration, self._profiles = requests, configuration, profiles
        self._component: Component | None = None
        self._creating: asyncio.Task[None] | None = None

    async def prepare(self, cluster: Cluster) -> None:
        """Start it."""
        if self._profiles is not None:
            self._component = profiled(cluster, "binder", self._profiles)
        else:
            components = Components(cluster.installation)
            self._component = components.start_binder(self._configuration)
        url = f"http://127.0.0.1:{self._component.health_port}/readyz"
        await until_answered(url, self._component.process)

    async def start(self, cluster: Cluster) -> float:
        """Begin to create the requests."""
        creating = cluster.create_all(BIND_REQUESTS, self._requests, NAMESPACE, at_once=_AT_ONCE)
        self._creating = asyncio.create_task(creating)
        return time.monotonic()

    def processes(self) -> Mapping[str, Process]:
        """Return the binder's."""
        return {} if self._component is None else {"binder": self._component.process}

    def stop(self) -> None:
        """Stop it."""
        if self._component is not None:
            self._component.stop()


async def lap(cluster: Cluster, world: World, make: Make, count: int, gang_size: int) -> Lap:
    """Measure one contender in `world` on an empty cluster, and leave it empty."""
    await world.furnish(cluster, count)
    pods = await create_pods(cluster, world, count)
    requests = list(bind_requests(pods, await world.handed_over(cluster, pods), gang_size))
    async with world.at_work(cluster):
        measured = await timed(cluster, make(requests), count)
    await cluster.clear(world.left_behind)
    return measured


async def create_pods(
    cluster: Cluster, world: World, count: int, prefix: str = "pod"
) -> list[Placed]:
    """Create `count` pods of `world`, named `prefix` and their number."""

    def manifests() -> Iterator[Wire]:
        for number, pod in enumerate(Workload(count, ()).pod_objects()):
            metadata = {**pod["metadata"], "name": _pod_name(prefix, number)}
            yield world.dressed({**pod, "metadata": metadata}, number)

    await cluster.create_all(PODS, manifests(), NAMESPACE)
    found = await cluster.client.list(PODS, namespace=NAMESPACE)
    uids = {pod.metadata.name: pod.metadata.uid for pod in found}
    names = [_pod_name(prefix, number) for number in range(count)]
    return [
        Placed(number, name, uids[name], world.node_of(number)) for number, name in enumerate(names)
    ]


def bind_requests(
    pods: Sequence[Placed],
    handed_over: Sequence[Mapping[str, Any]],
    gang_size: int,
) -> Iterator[Wire]:
    """Yield a BindRequest for every `gang_size` of `pods`, with what is handed over for each."""
    bindings = [
        {"podName": pod.name, "podUID": pod.uid, "selectedNode": pod.node, **further}
        for pod, further in zip(pods, handed_over, strict=True)
    ]
    for start in range(0, len(pods), gang_size):
        identity = f"{pods[start].name}-gang"
        chosen = bindings[start : start + gang_size]
        yield {
            "apiVersion": API_VERSION,
            "kind": "BindRequest",
            "metadata": {
                "name": identity,
                "namespace": NAMESPACE,
                "labels": {STATEMENT_LABEL: identity},
            },
            "spec": {"statements": [{"id": identity, "pods": chosen}]},
        }


def _pod_name(prefix: str, number: int) -> str:
    return f"{prefix}-{number:05}"
