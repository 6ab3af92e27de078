"""The mirror of a node and its pods, which all parts of the device plugin read."""

import asyncio
from collections.abc import Mapping

from bindery.kube.client import Client
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.watched import Node
from bindery.kube.watches.reflector import Change, Reflector
from bindery.nodeagent.devices.inventory import PodKey
from bindery.nodeagent.shares.pods import SHARING_PODS, SharingPod


class NodeView:
    """Mirrors of one node and of the pods that are bound to it."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._pods = Reflector(
            client, SHARING_PODS, self._wake, field_selector=f"spec.nodeName={name}"
        )
        self._nodes = Reflector(client, NODES, self._wake, field_selector=f"metadata.name={name}")
        self.changed = asyncio.Event()
        """Set after each change; cleared by the one that waits for it."""

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            group.create_task(self._nodes.run())

    async def wait_filled(self) -> None:
        """Wait until both mirrors have been filled once."""
        await self._pods.synced.wait()
        await self._nodes.synced.wait()

    async def catch_up(self) -> None:
        """Wait until the pods are as the API server has them now."""
        await self._pods.catch_up()

    @property
    def pods(self) -> Mapping[PodKey, SharingPod]:
        """The pods of the node."""
        return self._pods.objects

    @property
    def node(self) -> Node | None:
        """The node; None if it does not exist."""
        return self._nodes.objects.get(("", self.name))

    def is_healthy(self) -> bool:
        """Whether both mirrors are filled and up to date."""
        return self._pods.healthy() and self._nodes.healthy()

    def _wake(self, _change: Change[SharingPod] | Change[Node]) -> None:
        self.changed.set()
