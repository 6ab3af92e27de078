"""The directory of the webhook, filled by its own watches.

The scheduler checks objects that the watches have not delivered yet.
"""

import asyncio
from typing import Any

from bindery.binder.webhook.directory import Directory
from bindery.binder.webhook.objects import OFFERING_NODES
from bindery.kube.client import Client
from bindery.kube.objects.resources import NAMESPACES, PRIORITY_CLASSES, QUEUES
from bindery.kube.watches.reflector import Reflector


class WatchedDirectory(Directory):
    """A directory that is updated while `run` runs."""

    def __init__(self, client: Client) -> None:
        queues, namespaces = Reflector(client, QUEUES), Reflector(client, NAMESPACES)
        classes, nodes = Reflector(client, PRIORITY_CLASSES), Reflector(client, OFFERING_NODES)
        self._watches: tuple[Reflector[Any], ...] = (queues, namespaces, classes, nodes)
        super().__init__(queues.objects, namespaces.objects, classes.objects, nodes.objects)

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
        return all(watch.healthy() for watch in self._watches)
