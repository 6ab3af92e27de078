"""Fakes of HAMi's device plugins on many nodes: with the whole handshake, or a short one.

Used by benchmarks, which have hundreds of nodes and want one watch for all of them. `Prompt` does
what HAMi's plugin does with what its watches have told it already: what is left of a hand-over is
then the scheduler's side of it, and the least that the other side must write.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bindery.api.hami import names
from bindery.api.hami.vendor import Lock
from bindery.api.hami.vendortable import NVIDIA
from bindery.binder.plugins.hami.objects import LOCKED_NODES, LockedNode
from bindery.kube.client import Client, PatchKind
from bindery.kube.objects.resources import NODES, PODS
from bindery.kube.objects.watched import Pod
from bindery.kube.watches.reflector import Reflector
from bindery.kube.watches.store import Change, EventType
from fakes.hami import HamiDevicePlugin

_LOCK_PATH = f"/metadata/annotations/{names.NODE_LOCK.replace('/', '~1')}"
_ON_NODES = "spec.nodeName!="


class HamiDevicePlugins:
    """The plugins of all nodes on which pods of one namespace come to stand, on one watch.

    Without a namespace: of all namespaces. `prefix`: how the names of the nodes begin.
    """

    def __init__(self, client: Client, namespace: str, prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix
        self._reflector = Reflector(
            client, PODS, self._take, namespace=namespace, field_selector=_ON_NODES
        )
        self._plugins: dict[str, HamiDevicePlugin] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Play while the body runs.

        Raises:
            RuntimeError: a pod failed, or was given the devices of another; when the body ends.
        """
        self._tasks.append(asyncio.create_task(self._reflector.run()))
        try:
            await self._reflector.synced.wait()
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for plugin in self._plugins.values():
            wrong = [*plugin.failed, *(each for each in plugin.served if each[0] != each[1])]
            if wrong:
                raise RuntimeError(f"on {plugin.node} {len(wrong)} pods failed, such as {wrong[0]}")

    def _take(self, change: Change[Pod]) -> None:
        node = change.object.spec.node_name
        if not node.startswith(self._prefix):
            return
        plugin = self._plugins.get(node)
        if plugin is None:
            plugin = self._plugins[node] = HamiDevicePlugin(self._client, node)
            self._tasks.append(asyncio.create_task(plugin.serve()))
        plugin.take(change)


class Prompt:
    """Plugins that write success and release the node as soon as a pod is bound.

    A node is released only of the very pod that has come; so a second holder would wait for ever.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._pods = Reflector(
            client, PODS, self._pod_changed, namespace=namespace, field_selector=_ON_NODES
        )
        self._nodes = Reflector(client, LOCKED_NODES, self._node_changed)
        self._bound: dict[tuple[str, str], Pod] = {}
        """Node, pod's name -> a pod that has come and whose lock has not been seen yet."""
        self._seen: set[str] = set()
        self._writes: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Play while the body runs."""
        watches = [asyncio.create_task(each.run()) for each in (self._pods, self._nodes)]
        try:
            await self._pods.synced.wait()
            await self._nodes.synced.wait()
            yield
            await asyncio.gather(*self._writes)
        finally:
            for task in watches:
                task.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.object
        if change.type is EventType.DELETED or pod.metadata.uid in self._seen:
            return
        self._seen.add(pod.metadata.uid)
        self._bound[pod.spec.node_name, pod.metadata.name] = pod
        node = self._nodes.objects.get(("", pod.spec.node_name))
        if node is not None:
            self._serve(node)

    def _node_changed(self, change: Change[LockedNode]) -> None:
        self._serve(change.object)

    def _serve(self, node: LockedNode) -> None:
        value = node.lock(Lock.NODE)
        if value is None:
            return
        pod = self._bound.pop((node.metadata.name, value.rpartition(",")[2]), None)
        if pod is not None:
            for write in (self._release(node.metadata.name, value), self._succeed(pod)):
                self._writes.append(asyncio.create_task(write))

    async def _release(self, node: str, value: str) -> None:
        patch = [
            {"op": "test", "path": _LOCK_PATH, "value": value},
            {"op": "remove", "path": _LOCK_PATH},
        ]
        await self._client.patch(NODES, node, patch, kind=PatchKind.JSON)

    async def _succeed(self, pod: Pod) -> None:
        annotations = {names.BIND_PHASE: names.BindPhase.SUCCESS.value, NVIDIA.to_allocate_key: ";"}
        patch = {"metadata": {"annotations": annotations}}
        meta = pod.metadata
        await self._client.patch(PODS, meta.name, patch, namespace=meta.namespace)
