"""The cluster of now, from watches of the page's own: one mirror for each kind.

`process` gives it to the keeper of pictures. It watches the kinds that planning reads; a kind that
the account may not read, or that the API server does not serve, is left out.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

from bindery.answers.errors import NoAnswerError
from bindery.answers.grouperrows import GrouperRows, read_rows
from bindery.answers.leaders import read_leader
from bindery.answers.pastusage import read_past_usage
from bindery.answers.planner import Planner, configuration_of, with_served_pools
from bindery.answers.source import Source
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import NODE_POOL_LABEL, scheduler_lease
from bindery.dashboard.kept import KeptEngine
from bindery.kube.accessreview import may, may_watch
from bindery.kube.client import Client
from bindery.kube.objects.bindrequests import BindRequest
from bindery.kube.objects.claims import RESOURCE_CLAIM_TEMPLATES
from bindery.kube.objects.resources import NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES, Resource
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import KubeObject
from bindery.kube.objects.workloads import WORKLOAD_JOBS
from bindery.kube.served import served
from bindery.kube.watches.reflector import Change, Reflector
from bindery.scheduler.cache.observers import WATCHED
from bindery.scheduler.plugins import registry

_NEEDED: Final = (PODS, POD_GROUPS, QUEUES, NODES)
"""The kinds without which no picture can be made; the account must be able to read them."""


def _missing_rights(missing: Iterable[tuple[Resource[Any], str]]) -> str:
    """Return the error for kinds and verbs that the account lacks, with the way to get them."""
    verbs: dict[str, list[str]] = {}
    for kind, verb in missing:
        verbs.setdefault(f"{kind.plural}{'.' if kind.group else ''}{kind.group}", []).append(verb)
    listed = ", ".join(f"{' and '.join(found)} {name}" for name, found in verbs.items())
    return (
        f"the pages are planned from the whole cluster, and this account may not {listed} in all "
        "namespaces; the chart's ClusterRole bindery-reader grants it. With rights in only one "
        "namespace, use `bindery get gangs`, `bindery explain` and `bindery queues`, or the "
        "dashboard in the cluster, which has its own account and shows what you may list"
    )


class LiveCluster:
    """Mirrors the cluster while `run` is under way."""

    def __init__(
        self,
        client: Client,
        lease_namespace: str,
        node_pool: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`node_pool`: the pool of the scheduler for which to plan; empty: the default pool.

        `clock`: seconds since the epoch.
        """
        self._client = client
        self._lease_namespace = lease_namespace
        self._node_pool = node_pool
        self._mirrors: dict[str, Reflector[Any]] = {}
        self._filled = asyncio.Event()
        self.changes = 0
        """Grows with each change of the cluster."""
        self.is_fixed = False
        self._clock = clock
        self.kept = KeptEngine(clock)

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            KubeError: the API server cannot be asked which kinds it serves.
        """
        kinds = [*WATCHED, *await self._further()]
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                if kind in _NEEDED or await may_watch(self._client, kind):
                    mirror = Reflector(self._client, kind, self._note)
                    self._mirrors[kind.plural] = mirror
                    group.create_task(mirror.run())
            for mirror in self._mirrors.values():
                await mirror.synced.wait()
            self._filled.set()

    async def demand_rights(self) -> None:
        """Do nothing if the account may list and watch the kinds that planning needs.

        Raises:
            KubeError: the API server cannot be asked.
            NoAnswerError: it may not; the text has each kind, and the role that grants it.
        """
        asked = [(kind, verb) for kind in _NEEDED for verb in ("list", "watch")]
        answers = await asyncio.gather(*(may(self._client, *each) for each in asked))
        missing = [each for each, is_allowed in zip(asked, answers, strict=True) if not is_allowed]
        if missing:
            raise NoAnswerError(_missing_rights(missing))

    async def _further(self) -> list[Resource[Any]]:
        """Return the served kinds that plugins watch, and those of `whatif`."""
        plugins = await asyncio.to_thread(registry.load, SchedulerConfiguration().plugins)
        watched = [each for each in plugins.watched_resources() if each not in WATCHED]
        return await served(self._client, [*watched, RESOURCE_CLAIM_TEMPLATES, WORKLOAD_JOBS])

    def _note(self, change: Change[Any]) -> None:
        self.changes += 1
        self.kept.take(change)

    def is_filled(self) -> bool:
        """Whether every kind has been listed."""
        return self._filled.is_set()

    def is_up_to_date(self) -> bool:
        """Whether no watch is out of date."""
        return all(mirror.healthy() for mirror in self._mirrors.values())

    async def source(self) -> Source:
        """Return the cluster as the watches have it now.

        Raises:
            KubeError: the scheduler's Lease cannot be read.
        """
        await self._filled.wait()
        lease = scheduler_lease(self._node_pool)
        leader = await read_leader(self._client, lease, self._lease_namespace)
        found, deviation = configuration_of(leader)
        configuration = found.model_copy(update={"node_pool": self._node_pool})
        planner = Planner(configuration, leader, deviation)
        planner = await with_served_pools(
            self._client, planner, await self.pools(), self._lease_namespace
        )
        past = await read_past_usage(self._client, configuration)
        snapshot = ClusterSnapshot.of(chain.from_iterable(map(_objects, self._mirrors.values())))
        now = datetime.fromtimestamp(self._clock(), UTC)
        return Source(snapshot, configuration, now, past, planner)

    async def grouper_rows(self) -> GrouperRows:
        """Return the rows of the cluster's grouper, for `whatif`.

        Raises:
            KubeError: the cluster does not answer.
        """
        return await read_rows(self._client, self._lease_namespace)

    def namespaces(self) -> list[str]:
        """Return the namespaces with objects that a page could name."""
        found: set[str] = set()
        for kind in (NAMESPACES, POD_GROUPS):
            mirror = self._mirrors.get(kind.plural)
            for namespace, name in mirror.objects if mirror is not None else ():
                found.add(name if kind is NAMESPACES else namespace)
        return sorted(found)

    async def pools(self) -> set[str]:
        """Return the node pools of all nodes, once these are listed."""
        await self._filled.wait()
        mirror = self._mirrors.get(NODES.plural)
        nodes = mirror.objects.values() if mirror is not None else ()
        return {node.metadata.labels.get(NODE_POOL_LABEL, "") for node in nodes}


class FixedCluster:
    """A cluster of one moment, such as the beginning of a scenario."""

    changes = 0
    is_fixed = True

    def __init__(self, source: Source) -> None:
        self._source = source
        self.kept = KeptEngine(source.now.timestamp)

    async def source(self) -> Source:
        """Return the cluster."""
        return self._source

    async def grouper_rows(self) -> GrouperRows:
        """Return the rows of the project alone."""
        return GrouperRows()

    def namespaces(self) -> list[str]:
        """Return the namespaces with objects that a page could name."""
        snapshot = self._source.snapshot
        found = {each.metadata.name for each in snapshot.namespaces}
        return sorted(found | {each.metadata.namespace for each in snapshot.groups})


def _objects(mirror: Reflector[Any]) -> list[KubeObject]:
    """Return the objects of a mirror; of a BindRequest its Statements."""
    found: list[KubeObject] = []
    for item in mirror.objects.values():
        if isinstance(item, BindRequest):
            found.extend(item.each())
        else:
            found.append(item)
    return found
