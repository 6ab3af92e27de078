"""A fake of NVIDIA's device plugin on nodes with shared GPUs.

It gives each reservation pod a device that no other has, as the plugin does, and does what the
container in the pod would: it writes the device on the pod.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bindery.api.gpushare import INDEX_ANNOTATION, RESERVATION_NAMESPACE
from bindery.binder.plugins.gpusharing.objects import SHARERS, Sharer
from bindery.kube.client import Client
from bindery.kube.errors import InvalidError, NotFoundError
from bindery.kube.watches.reflector import Change, EventType, Reflector


class GpuDevicePlugins:
    """The plugins of all nodes whose names begin with `prefix`."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client, self._prefix = client, prefix
        self.is_silent = False
        """Whether it gives no devices, as a plugin that hangs."""
        self.silent_nodes: set[str] = set()
        """Nodes whose plugins hang."""
        self.taken_elsewhere: set[str] = set()
        """Devices that it has given to pods other than reservations."""
        self.given: dict[str, tuple[str, str]] = {}
        """UID of a reservation pod that is there -> its node and device."""
        self.ever_given = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._mirror = Reflector(client, SHARERS, self._see, namespace=RESERVATION_NAMESPACE)

    @asynccontextmanager
    async def play(self) -> AsyncIterator["GpuDevicePlugins"]:
        """Play while the body runs."""
        task = asyncio.create_task(self._mirror.run())
        try:
            await self._mirror.synced.wait()
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, *self._tasks, return_exceptions=True)

    def reservations(self) -> list[Sharer]:
        """Return the reservation pods on these nodes."""
        return [pod for pod in self._mirror.objects.values() if self._is_here(pod)]

    def speak(self) -> None:
        """Give devices again, to those that wait too."""
        self.is_silent = False
        self.silent_nodes.clear()
        for pod in self.reservations():
            self._give(pod)

    def _see(self, change: Change[Sharer]) -> None:
        pod = change.object
        if not self._is_here(pod):
            return
        if change.type is EventType.DELETED:
            self.given.pop(pod.metadata.uid, None)
        elif not self.is_silent and pod.spec.node_name not in self.silent_nodes:
            self._give(pod)

    def _is_here(self, pod: Sharer) -> bool:
        return pod.spec.node_name.startswith(self._prefix)

    def _give(self, pod: Sharer) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if uid in self.given or pod.metadata.deletion_timestamp:
            return
        taken = {device for at, device in self.given.values() if at == node}
        taken |= self.taken_elsewhere
        device = next(str(i) for i in range(64) if str(i) not in taken)
        self.given[uid] = (node, device)
        self.ever_given += 1
        task = asyncio.create_task(self._annotate(pod, device))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _annotate(self, pod: Sharer, device: str) -> None:
        metadata = {"uid": pod.metadata.uid, "annotations": {INDEX_ANNOTATION: device}}
        try:
            await self._client.patch(
                SHARERS,
                pod.metadata.name,
                {"metadata": metadata},
                namespace=pod.metadata.namespace,
            )
        except (NotFoundError, InvalidError):  # gone, or another pod has its name
            return
