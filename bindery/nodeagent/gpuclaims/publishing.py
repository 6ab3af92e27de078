"""Keeps the node's ResourceSlice at the API server as the GPUs are.

The kubelet deletes the slices of its node when it starts, and those of a driver that is gone for
half a minute; the slice is then written again as soon as it is missing.
"""

import asyncio

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.devices import RESOURCE_SLICES, ResourceSlice
from bindery.kube.objects.resources import NODES, metadata_only
from bindery.kube.watches.reflector import Change, Reflector
from bindery.nodeagent.gpuclaims import slices
from bindery.nodeagent.gpuclaims.offers import WatchedGpus
from bindery.nodeagent.work import WorkQueue

_NODE_AGAIN_S = 2.0

log = structlog.get_logger(__name__)


class SlicePublisher:
    """Writes the slice of the node `node`."""

    def __init__(self, client: Client, node: str, gpus: WatchedGpus) -> None:
        self._client, self._node, self._gpus = client, node, gpus
        self._generation = 0
        self._is_written = False
        self._mirror: Reflector[ResourceSlice] = Reflector(
            client,
            RESOURCE_SLICES,
            self._seen,
            field_selector=f"spec.driver={slices.DRIVER},spec.nodeName={node}",
        )
        self._queue: WorkQueue[str] = WorkQueue(
            "slices", self._write, workers=1, random=client.environment.random
        )
        gpus.on_change(self._changed)

    def healthy(self) -> bool:
        """Whether the slice was right at the last look."""
        return self._is_written and self._mirror.healthy()

    async def run(self) -> None:
        """Publish; does not return."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mirror.run())
            await self._mirror.synced.wait()
            self._changed()
            group.create_task(self._queue.run())

    def _seen(self, _change: Change[ResourceSlice]) -> None:
        if self._mirror.synced.is_set():
            self._changed()

    def _changed(self) -> None:
        self._is_written = False
        self._queue.add(self._node)

    async def _write(self, node: str) -> float | None:
        try:
            owner = await self._client.get(metadata_only(NODES), node)
        except NotFoundError:
            return _NODE_AGAIN_S
        existing = list(self._mirror.objects.values())
        needed = slices.change(existing, self._gpus.now, node, owner.metadata.uid, self._generation)
        for name in needed.surplus:
            await self._delete(name)
        if needed.body is not None:
            name = needed.body["metadata"]["name"]
            if needed.is_new:
                await self._client.create(RESOURCE_SLICES, needed.body)
            else:
                await self._client.replace(RESOURCE_SLICES, name, needed.body)
            log.info("ResourceSlice written", slice=name, generation=needed.generation)
        self._generation = needed.generation
        self._is_written = True
        return None

    async def _delete(self, name: str) -> None:
        try:
            await self._client.delete(RESOURCE_SLICES, name)
        except NotFoundError:
            return
        log.info("ResourceSlice of an earlier run deleted", slice=name)
