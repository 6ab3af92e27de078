"""The mirror of a node and its pods, which all parts of the agent read."""

import asyncio
from collections.abc import Callable, Mapping

from bindery.kube.client import Client
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.watched import Node
from bindery.kube.watches.reflector import Change, Reflector
from bindery.nodeagent.devices.inventory import PodKey
from bindery.nodeagent.shares.pods import SHARING_PODS, SharingPod


class NodeView:
    """Mirrors of one node and of the pods that are bound to it.

    `on_pod` is called after each change of a pod.
    """

    def __init__(
        self, client: Client, name: str, on_pod: Callable[[], None] = lambda: None
    ) -> None:
        self.name, self._on_pod = name, on_pod
        self.pod_mirror = node_pods(client, name, self._note_pod)
        self._nodes = Reflector(
            client, NODES, self._note_node, field_selector=f"metadata.name={name}"
        )
        self.changed = asyncio.Event()
        """Set after each change; cleared by the one that waits for it."""

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pod_mirror.run())
            group.create_task(self._nodes.run())

    async def wait_filled(self) -> None:
        """Wait until both mirrors have been filled once."""
        await self.pod_mirror.synced.wait()
        await self._nodes.synced.wait()

    async def catch_up(self) -> None:
        """Wait until the pods are as the API server has them now."""
        await self.pod_mirror.catch_up()

    @property
    def pods(self) -> Mapping[PodKey, SharingPod]:
        """The pods of the node."""
        return self.pod_mirror.objects

    @property
    def node(self) -> Node | None:
        """The node; None if it does not exist."""
        return self._nodes.objects.get(("", self.name))

    def is_healthy(self) -> bool:
        """Whether both mirrors are filled and up to date."""
        return self.pod_mirror.healthy() and self._nodes.healthy()

    def _note_pod(self) -> None:
        self.changed.set()
        self._on_pod()

    def _note_node(self, _change: Change[Node]) -> None:
        self.changed.set()


def node_pods(client: Client, node: str, on_change: Callable[[], None]) -> Reflector[SharingPod]:
    """Return the mirror of the pods on a node; `on_change` is called after each change."""

    def note(_change: Change[SharingPod]) -> None:
        on_change()

    return Reflector(client, SHARING_PODS, note, field_selector=f"spec.nodeName={node}")
