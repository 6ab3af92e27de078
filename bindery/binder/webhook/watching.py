"""The directory of the webhook, filled by its own watches.

The scheduler checks objects that the watches have not delivered yet.
"""

import asyncio
import time
from typing import Any

from bindery.binder.webhook.directory import Directory
from bindery.binder.webhook.offers import OFFERING_NODES
from bindery.kube.client import Client
from bindery.kube.objects.resources import NAMESPACES, PRIORITY_CLASSES, QUEUES
from bindery.kube.watches.reflector import Change, Reflector


class WatchedDirectory(Directory):
    """A directory that is updated while `run` runs."""

    def __init__(self, client: Client) -> None:
        self._queue_watch = Reflector(client, QUEUES, _ignore)
        self._namespace_watch = Reflector(client, NAMESPACES, _ignore)
        self._class_watch = Reflector(client, PRIORITY_CLASSES, _ignore)
        self._node_watch = Reflector(client, OFFERING_NODES, _ignore)
        self._watches: tuple[Reflector[Any], ...] = (
            self._queue_watch,
            self._namespace_watch,
            self._class_watch,
            self._node_watch,
        )
        super().__init__(
            self._queue_watch.objects,
            self._namespace_watch.objects,
            self._class_watch.objects,
            self._node_watch.objects,
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches:
                group.create_task(watch.run())

    def is_synced(self) -> bool:
        """Return whether everything has been listed."""
        return all(watch.synced.is_set() for watch in self._watches)

    def is_healthy(self) -> bool:
        """Return whether no watch is out of date."""
        return all(watch.healthy(time.monotonic()) for watch in self._watches)


def _ignore(change: Change[Any]) -> None:
    """Do nothing: objects are read when needed."""
