"""The feed: watches into the cluster cache.

While a cycle plans, the columns are borrowed, so changes wait in an inbox; between cycles they are
applied as they come. `loop.py` waits on it.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from bindery.kube.client import Client
from bindery.kube.objects import KubeObject, Meta
from bindery.kube.resources import (
    BIND_REQUESTS,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Resource,
)
from bindery.kube.store import Change
from bindery.kube.watch import Reflector
from bindery.scheduler.cache.cluster import Cluster, ObjectProblem

WATCHED: Sequence[Resource[Any]] = (
    PRIORITY_CLASSES,
    QUEUES,
    NODES,
    POD_GROUPS,
    PODS,
    BIND_REQUESTS,
)


class Feed:
    """Runs one Reflector a kind and applies what they say to `cluster`."""

    def __init__(self, client: Client, cluster: Cluster) -> None:
        self._cluster = cluster
        self._inbox: list[Change[KubeObject]] = []
        self._borrowed = False
        self.changed = asyncio.Event()
        """Set when something came, since it was last cleared, by which to plan anew."""
        self._reflectors: list[Reflector[Any]] = [
            Reflector(
                client,
                resource,
                self._take,
                on_malformed=partial(self._malformed, resource),
            )
            for resource in WATCHED
        ]

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")

    async def synced(self) -> None:
        """Wait until every kind has been listed."""
        for reflector in self._reflectors:
            await reflector.synced.wait()

    def is_synced(self) -> bool:
        """Whether every kind has been listed."""
        return all(reflector.synced.is_set() for reflector in self._reflectors)

    def is_healthy(self) -> bool:
        """Whether no watch is out of date."""
        return all(reflector.healthy(time.monotonic()) for reflector in self._reflectors)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the columns to a cycle: what comes meanwhile is applied afterwards."""
        self._borrowed = True
        try:
            yield
        finally:
            self._borrowed = False
            for change in self._inbox:
                self._apply(change)
            self._inbox.clear()

    def _take(self, change: Change[KubeObject]) -> None:
        if self._borrowed:
            self._inbox.append(change)
        else:
            self._apply(change)

    def _apply(self, change: Change[KubeObject]) -> None:
        if self._cluster.apply(change):
            self.changed.set()

    def _malformed(self, resource: Resource[Any], meta: Meta, error: str) -> None:
        self._cluster.problems.append(
            ObjectProblem(resource.api_version, resource.kind, meta, "Malformed", error)
        )
        self.changed.set()
