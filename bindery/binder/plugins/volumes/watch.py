"""A mirror of claims and volumes that wakes waiters.

Part of the binder's plugin `volumes`. There is one watch for each kind, however many pods wait.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping

from bindery.kube.client import Client
from bindery.kube.objects.storage import CLAIMS, VOLUMES, PersistentVolume, PersistentVolumeClaim
from bindery.kube.watches.reflector import Reflector
from bindery.kube.watches.store import Change, Key, key_of


class VolumeWatch:
    """The last seen claims and volumes."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        """Set while the mirrors are filled and watched."""
        self._claims: Mapping[Key, PersistentVolumeClaim] = {}
        self._volumes: Mapping[Key, PersistentVolume] = {}
        self._waiting: defaultdict[Key, dict[asyncio.Event, None]] = defaultdict(dict)
        """In the order in which they came: the pods that have waited longest go on first."""

    async def run(self, client: Client) -> None:
        """Watch until cancelled."""
        claims = Reflector(client, CLAIMS, self._wake)
        volumes = Reflector(client, VOLUMES)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(claims.run(), name="watch claims")
                group.create_task(volumes.run(), name="watch volumes")
                await claims.synced.wait()
                await volumes.synced.wait()
                self._claims, self._volumes = claims.objects, volumes.objects
                self.ready.set()
        finally:
            self.ready.clear()

    async def claim_states(
        self, namespace: str, name: str
    ) -> AsyncGenerator[PersistentVolumeClaim | None, None]:
        """Yield the claim now and after each change; None while it does not exist."""
        key, changed = (namespace, name), asyncio.Event()
        self._waiting[key][changed] = None
        try:
            while True:
                changed.clear()
                yield self._claims.get(key)
                await changed.wait()
        finally:
            self._waiting[key].pop(changed, None)
            if not self._waiting[key]:
                del self._waiting[key]

    def volume(self, name: str) -> PersistentVolume | None:
        """Return the volume, if it is known."""
        return self._volumes.get(("", name))

    def _wake(self, change: Change[PersistentVolumeClaim]) -> None:
        for changed in self._waiting.get(key_of(change.object.metadata), ()):
            changed.set()
