"""The plugin's view of the locks of nodes and the pods that hold them, updated by watches.

`queues` subscribes to the nodes and pods that it waits for; a change wakes it. Only pods with
HAMi's label are watched. A holder without the label (from an old version, or on a node with a very
long name) is read from the API server at intervals.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bindery.api.hami.names import ASSIGNED_NODE
from bindery.api.hami.vendor import Lock
from bindery.binder.plugins.hami.objects import HOLDER_PODS, LOCKED_NODES, HolderPod, LockedNode
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.watches.reflector import Reflector
from bindery.kube.watches.store import Change

PodKey = tuple[str, str]
"""Namespace and name."""


class Mirror:
    """The known nodes and lock holders, and the subscribers to their changes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._nodes: Final = Reflector(client, LOCKED_NODES, self._node_changed)
        self._pods: Final = Reflector(
            client, HOLDER_PODS, self._pod_changed, label_selector=ASSIGNED_NODE
        )
        self._waiting: defaultdict[str | PodKey, dict[asyncio.Event, None]] = defaultdict(dict)
        """In the order in which they came: the pods that have waited longest go on first."""
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._pods.run())
            await self._nodes.synced.wait()
            await self._pods.synced.wait()
            self.ready.set()

    def node(self, name: str) -> LockedNode | None:
        """Return the last seen state of the node; None if it is not known."""
        return self._nodes.objects.get(("", name))

    def seen(self, key: PodKey) -> HolderPod | None:
        """Return the last seen state of the pod; None if it is not watched."""
        return self._pods.objects.get(key)

    async def holder(self, key: PodKey) -> tuple[HolderPod | None, bool]:
        """Return the pod, None if there is none, and whether a watch delivers its changes."""
        seen = self._pods.objects.get(key)
        if seen is not None:
            return seen, True
        found = await self.read(key)
        return found, found is None

    async def read(self, key: PodKey) -> HolderPod | None:
        """Return the pod from the API server; None if it does not exist."""
        namespace, name = key
        try:
            return await self._client.get(HOLDER_PODS, name, namespace)
        except NotFoundError:
            return None

    def locked(self) -> list[tuple[str, str]]:
        """Return each node whose lock names a holder, with the lock's value."""
        nodes = self._nodes.objects.values()
        locks = ((node.metadata.name, node.lock(Lock.NODE)) for node in nodes)
        return [(name, value) for name, value in locks if value is not None]

    @contextmanager
    def woken_by(self, *keys: str | PodKey) -> Iterator[asyncio.Event]:
        """Yield an event that is set when one of these nodes or pods changes."""
        event = asyncio.Event()
        for key in keys:
            self._waiting[key][event] = None
        try:
            yield event
        finally:
            for key in keys:
                self._waiting[key].pop(event, None)
                if not self._waiting[key]:
                    del self._waiting[key]

    def wake(self, key: str | PodKey) -> None:
        """Wake the subscribers to this node or pod."""
        for event in self._waiting.get(key, ()):
            event.set()

    def _node_changed(self, change: Change[LockedNode]) -> None:
        self.wake(change.object.metadata.name)

    def _pod_changed(self, change: Change[HolderPod]) -> None:
        self.wake((change.object.metadata.namespace, change.object.metadata.name))
