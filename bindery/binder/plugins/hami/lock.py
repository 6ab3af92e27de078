"""Takes and releases node locks by compare-and-swap on the observed state.

Used by `queues` and by the plugin's rollback. Every write contains the expected state: the node's
version if there is no lock yet, else the lock's value. So of two processes that see the same dead
lock, only one gets it, and neither removes the other's new lock.
"""

from collections.abc import Mapping
from typing import Any

from bindery.api.hami.lock import NodeLock
from bindery.api.hami.vendor import Lock
from bindery.binder.plugins.hami.objects import LOCKED_NODES, LockedNode
from bindery.kube.client import Client, PatchKind
from bindery.kube.errors import ConflictError, InvalidError, NotFoundError


class LockWriter:
    """Writes locks."""

    def __init__(self, client: Client) -> None:
        self._client, self._clock = client, client.environment.now_s

    def value_for(self, which: Lock, namespace: str, name: str) -> str:
        """Return the lock value for a pod that takes a lock now."""
        if which is Lock.CAMBRICON:
            return NodeLock(int(self._clock())).encode()
        return NodeLock(int(self._clock()), namespace, name).encode()

    async def read(self, node: str) -> LockedNode | None:
        """Return the node from the API server; None if it does not exist."""
        try:
            return await self._client.get(LOCKED_NODES, node)
        except NotFoundError:
            return None

    async def put(self, seen: LockedNode, which: Lock, value: str) -> LockedNode | None:
        """Set a lock that `seen` does not have; return None if the node has changed since."""
        meta = seen.metadata
        patch = {
            "metadata": {
                "annotations": {which.value: value},
                "resourceVersion": meta.resource_version,
            }
        }
        try:
            return await self._client.patch(LOCKED_NODES, meta.name, patch)
        except ConflictError:
            return None

    async def swap(self, node: str, which: Lock, seen: str, value: str) -> LockedNode | None:
        """Replace the lock `seen` by `value`; return None if the lock may be another by now."""
        path = f"/metadata/annotations/{which.value.replace('~', '~0').replace('/', '~1')}"
        patch = [
            {"op": "test", "path": path, "value": seen},
            {"op": "replace", "path": path, "value": value},
        ]
        try:
            return await self._client.patch(LOCKED_NODES, node, patch, kind=PatchKind.JSON)
        except (ConflictError, InvalidError, NotFoundError):
            return None

    async def remove(self, node: str, which: Lock, seen: str) -> None:
        """Remove the lock `seen`, with retries: pods wait, and no other process removes it."""

        def change(found: LockedNode) -> Mapping[str, Any] | None:
            if found.lock(which) != seen:
                return None
            return {"metadata": {"annotations": {which.value: None}}}

        try:
            await self._client.update(LOCKED_NODES, node, "", change)
        except NotFoundError:
            return
