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

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.objects import KubeObject, Meta
from bindery.kube.resources import Resource
from bindery.kube.served import served
from bindery.kube.store import Change
from bindery.kube.watch import Reflector
from bindery.scheduler.cache.cluster import Cluster, ObjectProblem
from bindery.scheduler.cache.observers import WATCHED

_ASK_AGAIN_S = 5.0

_log = structlog.get_logger()


class Feed:
    """Runs one Reflector a kind and applies what they say to `cluster`."""

    def __init__(
        self, client: Client, cluster: Cluster, further: Sequence[Resource[Any]] = ()
    ) -> None:
        """`further`: kinds that plugins want, to be watched as far as the server serves them."""
        self._client = client
        self._cluster = cluster
        self._further = further
        self._group: asyncio.TaskGroup | None = None
        self._following = asyncio.Event()
        """Set once it is known which of the further kinds are served."""
        self._inbox: list[Change[KubeObject]] = []
        self._borrowed = False
        self.changed = asyncio.Event()
        """Set when something came, since it was last cleared, by which to plan anew."""
        self._reflectors: list[Reflector[Any]] = []
        for resource in WATCHED:
            self._add(resource)

    async def follow(self, resources: Sequence[Resource[Any]]) -> None:
        """Watch these further kinds too, as far as the API server serves them."""
        while True:
            known = {reflector.resource for reflector in self._reflectors}
            try:
                found = await served(self._client, [r for r in resources if r not in known])
            except KubeError as error:
                _log.warning("the API server does not say what it serves", error=str(error))
                await asyncio.sleep(_ASK_AGAIN_S)
                continue
            for resource in found:
                self._add(resource)
            return

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for reflector in self._reflectors:
                self._start(reflector, group)
            await self.follow(self._further)
            self._following.set()

    async def synced(self) -> None:
        """Wait until every kind has been listed."""
        await self._following.wait()
        for reflector in self._reflectors:
            await reflector.synced.wait()

    async def catch_up(self) -> None:
        """Wait until the cluster shows everything that was stored when this was called.

        For the beginning of a term: what an earlier leader wrote last may not have come yet, and
        its room would be given away a second time.
        """
        await self.synced()
        await asyncio.gather(*(reflector.catch_up() for reflector in self._reflectors))

    def is_synced(self) -> bool:
        """Whether every kind has been listed."""
        listed = all(reflector.synced.is_set() for reflector in self._reflectors)
        return listed and self._following.is_set()

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

    def _add(self, resource: Resource[Any]) -> None:
        reflector = Reflector(
            self._client,
            resource,
            self._take,
            on_malformed=partial(self._malformed, resource),
        )
        self._reflectors.append(reflector)
        if self._group is not None:
            self._start(reflector, self._group)

    def _start(self, reflector: Reflector[Any], group: asyncio.TaskGroup) -> None:
        group.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")

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
