"""Nodes with GPUs, and a stand-in for the device plugin on them.

The stand-in gives each reservation pod a device that no other has, as NVIDIA's plugin does, and
does what the container in the pod would: it writes the device on the pod.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from support import Corner, Gang, wait_for

from bindery.api.configuration import PluginConfiguration
from bindery.api.gpushare import CONFIG_MAP_ANNOTATION, INDEX_ANNOTATION, RESERVATION_NAMESPACE
from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.binder.plugins.gpu_sharing import admission
from bindery.binder.plugins.gpu_sharing.objects import SHARERS, Sharer
from bindery.controlplane.components import Component, Components
from bindery.kube.errors import NotFoundError
from bindery.kube.objects import Pod
from bindery.kube.resources import CONFIG_MAPS, PODS
from bindery.kube.watch import Change, EventType, Reflector

HALF = {"gpu-fraction": "0.5"}


def start_gpu_nodes(components: Components, corner: Corner, count: int, gpus: int) -> Component:
    """Start hollow nodes in the corner's pool, named NAMESPACE-0 and so on."""
    options = [
        f"--node-pool={corner.pool}",
        f"--name-prefix={corner.namespace}-",
        f"--gpus={gpus}",
        "--remove-on-exit",
    ]
    return components.start_hollow_nodes(count, options, name=f"nodes-{corner.namespace}")


class DevicePluginStandIn:
    """Plays NVIDIA's device plugin for the reservation pods of the nodes of one corner."""

    def __init__(self, corner: Corner) -> None:
        self._corner = corner
        self.is_silent = False
        """Whether it gives no devices, as a plugin that hangs."""
        self.given: dict[str, tuple[str, str]] = {}
        """UID of a reservation pod that is there -> its node and device."""
        self.ever_given = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._mirror = Reflector(corner.client, SHARERS, self._see, namespace=RESERVATION_NAMESPACE)

    @asynccontextmanager
    async def play(self) -> AsyncIterator["DevicePluginStandIn"]:
        task = asyncio.create_task(self._mirror.run())
        try:
            await self._mirror.synced.wait()
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, *self._tasks, return_exceptions=True)

    def reservations(self) -> list[Sharer]:
        """Return the reservation pods on the corner's nodes."""
        prefix = f"{self._corner.namespace}-"
        return [
            pod for pod in self._mirror.objects.values() if pod.spec.node_name.startswith(prefix)
        ]

    def speak(self) -> None:
        """Give devices again, to those that wait too."""
        self.is_silent = False
        for pod in self.reservations():
            self._give(pod)

    def _see(self, change: Change[Sharer]) -> None:
        pod = change.object
        if not pod.spec.node_name.startswith(f"{self._corner.namespace}-"):
            return
        if change.type is EventType.DELETED:
            self.given.pop(pod.metadata.uid, None)
        elif not self.is_silent:
            self._give(pod)

    def _give(self, pod: Sharer) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if uid in self.given or pod.metadata.deletion_timestamp:
            return
        taken = {device for at, device in self.given.values() if at == node}
        device = next(str(i) for i in range(64) if str(i) not in taken)
        self.given[uid] = (node, device)
        self.ever_given += 1
        task = asyncio.create_task(self._annotate(pod, device))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _annotate(self, pod: Sharer, device: str) -> None:
        metadata = {"uid": pod.metadata.uid, "annotations": {INDEX_ANNOTATION: device}}
        try:
            await self._corner.client.patch(
                SHARERS,
                pod.metadata.name,
                {"metadata": metadata},
                namespace=pod.metadata.namespace,
            )
        except NotFoundError:
            return


async def submit_share(corner: Corner, name: str, share: Mapping[str, str]) -> Pod:
    """Create a gang of one pod with a share, prepared as the webhook would."""
    await corner.create_group(Gang(name, size=1))
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-0",
            "namespace": corner.namespace,
            "labels": {"scheduling.bindery.dev/node-pool": corner.pool},
            "annotations": {POD_GROUP_ANNOTATION: name, **share},
        },
        "spec": {
            "schedulerName": "bindery",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "worker", "image": "worker"}],
        },
    }
    return await corner.client.create(PODS, admission.prepared(body), corner.namespace)


def sharing(deadline_s: float = 20.0) -> PluginConfiguration:
    return PluginConfiguration(name="gpu_sharing", arguments={"deadlineSeconds": deadline_s})


async def bound(corner: Corner, *names: str) -> list[Pod]:
    await corner.wait_bound(*(Gang(name, size=1) for name in names))
    return [await corner.client.get(PODS, f"{name}-0", corner.namespace) for name in names]


async def environment(corner: Corner, pod: Pod) -> dict[str, str]:
    """Return what the first container of `pod` reads from its ConfigMap."""
    name = f"{pod.metadata.annotations[CONFIG_MAP_ANNOTATION]}-0"
    found = await corner.client.get(CONFIG_MAPS, name, corner.namespace)
    return found.data or {}


async def wait_reservations(stand_in: DevicePluginStandIn, count: int) -> None:
    async def so_many() -> bool:
        return len(stand_in.reservations()) == count

    await wait_for(so_many, f"{count} reservations are there")
