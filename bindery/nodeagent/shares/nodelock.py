"""Releases HAMi's node lock by compare-and-swap: only the value that was seen, or a pod's own."""

from bindery.api.hami import lock as locks
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.lock import NodeLock
from bindery.api.hami.names import NODE_LOCK
from bindery.kube.client import Client, PatchKind
from bindery.kube.errors import ConflictError, InvalidError, NotFoundError
from bindery.kube.objects.resources import NODES
from bindery.nodeagent.devices.inventory import PodKey

_PATH = f"/metadata/annotations/{NODE_LOCK.replace('/', '~1')}"


def read(value: str | None) -> NodeLock | None:
    """Return the lock with `value`; None if there is none, or a malformed one."""
    try:
        return locks.decode(value) if value is not None else None
    except HamiFormatError:
        return None


class NodeLockReader:
    """Reads and releases the lock of one node."""

    def __init__(self, client: Client, node: str) -> None:
        self._client, self._node = client, node

    async def value(self) -> str | None:
        """Return the value of the lock, as the API server has it now."""
        try:
            node = await self._client.get(NODES, self._node)
        except NotFoundError:
            return None
        return node.metadata.annotations.get(NODE_LOCK)

    async def release(self, seen: str) -> bool:
        """Remove the lock with the value `seen`; return whether this call did."""
        patch = [
            {"op": "test", "path": _PATH, "value": seen},
            {"op": "remove", "path": _PATH},
        ]
        try:
            await self._client.patch(NODES, self._node, patch, kind=PatchKind.JSON)
        except (ConflictError, InvalidError, NotFoundError):
            return False
        return True

    async def release_of(self, holder: PodKey, seen: str | None) -> None:
        """Remove the lock if `holder` has it, or if it has no holder's name; `seen`: its value.

        A lock that was written again for the same pod is removed too, as in HAMi.
        """
        value = seen
        while value is not None:
            lock = read(value)
            if lock is None or not (lock.is_anonymous or lock.is_of(*holder)):
                return
            if await self.release(value):
                return
            now = await self.value()
            if now == value:
                continue  # the node changed in between
            value = now if (found := read(now)) is not None and found.is_of(*holder) else None
