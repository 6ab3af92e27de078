"""The feed: runs the watches and applies their changes to the cluster cache.

While a cycle runs, changes wait in the inbox. `loop.py` waits for changes here.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.http.outages import log_failure
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement, StatementKey
from bindery.kube.objects.resources import BIND_REQUESTS, PODS, Resource
from bindery.kube.objects.watched import KubeObject, Meta
from bindery.kube.served import served
from bindery.kube.watches.reflector import Reflector
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.inbox import Inbox
from bindery.scheduler.cache.observers import WATCHED
from bindery.scheduler.model.problems import ObjectProblem

_ASK_AGAIN_S = 5.0
LOOK_AGAIN_S = 60.0
"""Time between two looks for kinds of plugins that were not served before."""

_log = structlog.get_logger()


class Feed:
    """Runs one Reflector per kind and applies the changes to `cluster`."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        further: Sequence[Resource[Any]] = (),
        look_again_s: float = LOOK_AGAIN_S,
    ) -> None:
        """`further`: kinds of plugins; kinds that the API server does not serve are not watched."""
        self._client = client
        self._cluster = cluster
        self._further = further
        self._look_again_s = look_again_s
        self._group: asyncio.TaskGroup | None = None
        self._started = asyncio.Event()
        """Set when listing may begin."""
        self._following = asyncio.Event()
        """Set when it is known which of the further kinds the API server serves."""
        self._inbox = Inbox()
        self.lent = self._inbox.lent
        """Lend the columns to a cycle within the block; changes are applied after it."""
        self.changed = asyncio.Event()
        """Set by a change that may lead to another plan."""
        self._reflectors: list[Reflector[Any]] = []
        for resource in WATCHED:
            self._add(resource)

    async def follow(self, resources: Sequence[Resource[Any]]) -> None:
        """Also watch those of `resources` that the API server serves, now or later."""
        self._further = resources
        while True:
            known = {reflector.resource for reflector in self._reflectors}
            try:
                found = await served(self._client, [r for r in resources if r not in known])
            except KubeError as error:
                log_failure(_log, "cannot read which resources the API server has", error)
                await asyncio.sleep(_ASK_AGAIN_S)
                continue
            known = {reflector.resource for reflector in self._reflectors}
            for resource in found:
                if resource not in known:  # another call may have been faster
                    self._add(resource)
            return

    def start(self) -> None:
        """Let `run` begin to list and watch."""
        self._started.set()

    async def run(self) -> None:
        """Watch until cancelled, from the call of `start` or `catch_up` on."""
        await self._started.wait()
        async with asyncio.TaskGroup() as group:
            self._group = group
            # BindRequests first: one that is bound and removed before they are listed shows at its
            # pods, which are listed later.
            requests, others = self._in_order()
            for reflector in requests:
                self._start(reflector, group)
                await reflector.synced.wait()
            for reflector in others:
                self._start(reflector, group)
            await self.follow(self._further)
            self._following.set()
            while True:  # a kind may be installed later
                await asyncio.sleep(self._look_again_s)
                await self.follow(self._further)

    async def synced(self) -> None:
        """Wait until every kind has been listed."""
        await self._following.wait()
        for reflector in self._reflectors:
            await reflector.synced.wait()

    async def catch_up(self) -> None:
        """Wait until the cluster has everything that was stored before this call.

        Called at the beginning of a term. Without the last writes of the previous leader, the
        scheduler could use the same room twice. The first lists are enough if none has begun.
        """
        if not self._started.is_set():
            self.start()
            await self.synced()
            return
        await self.synced()
        for some in self._in_order():
            await asyncio.gather(*(reflector.catch_up() for reflector in some))

    def _in_order(self) -> tuple[list[Reflector[Any]], list[Reflector[Any]]]:
        """Return the reflectors to list first, and the others."""
        first = [each for each in self._reflectors if each.resource is BIND_REQUESTS]
        return first, [each for each in self._reflectors if each not in first]

    def kinds(self) -> list[str]:
        """Return the kinds that are watched."""
        return [reflector.resource.kind for reflector in self._reflectors]

    def is_synced(self) -> bool:
        """Whether every kind has been listed."""
        listed = all(reflector.synced.is_set() for reflector in self._reflectors)
        return listed and self._following.is_set()

    def is_healthy(self) -> bool:
        """Whether no watch is out of date."""
        return all(reflector.healthy() for reflector in self._reflectors)

    def when_pods_are_shown(self, act: Callable[[], None]) -> None:
        """Call `act`, which changes the cluster, once the cluster has every pod as of now.

        For the end of a Statement that no event has shown: it may have bound its pods.
        """
        assert self._group is not None  # it ends with `run`
        self._group.create_task(self._after_pods(act), name="catch up on pods")

    async def _after_pods(self, act: Callable[[], None]) -> None:
        [pods] = (each for each in self._reflectors if each.resource is PODS)
        await pods.catch_up()
        self._inbox.put(act)
        self.changed.set()

    def _add(self, resource: Resource[Any]) -> None:
        reflector = Reflector(
            self._client,
            resource,
            self._take_request if resource is BIND_REQUESTS else self._take,
            on_malformed=partial(self._malformed, resource),
        )
        self._reflectors.append(reflector)
        if self._group is not None:
            self._start(reflector, self._group)

    def _start(self, reflector: Reflector[Any], group: asyncio.TaskGroup) -> None:
        group.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")

    def _take(self, change: Change[KubeObject]) -> None:
        self._inbox.put(partial(self._apply, change))

    def _take_request(self, change: Change[KubeObject]) -> None:
        [requests] = (each for each in self._reflectors if each.resource is BIND_REQUESTS)
        if requests.is_listing and change.type is EventType.DELETED:
            # The last state that was shown need not name the pods that it has bound since then.
            self.when_pods_are_shown(partial(self._apply, change))
        else:
            self._take(change)

    def _apply(self, change: Change[KubeObject]) -> None:
        for each in statement_changes(change):
            if self._cluster.apply(each):
                self.changed.set()

    def _malformed(self, resource: Resource[Any], meta: Meta, error: str) -> None:
        self._cluster.problems.append(
            ObjectProblem(resource.api_version, resource.kind, meta, "Malformed", error)
        )
        self.changed.set()


def statement_changes(change: Change[KubeObject]) -> Iterator[Change[KubeObject]]:
    """Yield `change` and, if it is of a BindRequest, one change per Statement that has changed."""
    yield change
    stored, previous = change.object, change.previous
    if not isinstance(stored, BindRequest):
        return
    before: dict[StatementKey, CommittedStatement] = {}
    if isinstance(previous, BindRequest):
        before = {each.key: each for each in previous.each()}
    for each in stored.each():
        known = before.pop(each.key, None)
        if change.type is EventType.DELETED or known is None or not _is_equal(known, each):
            yield Change(change.type, each, known)
    for each in before.values():
        yield Change(EventType.DELETED, each, each)


def _is_equal(one: CommittedStatement, other: CommittedStatement) -> bool:
    """Return whether two states of a Statement differ at most in unused metadata."""
    if one.metadata.labels != other.metadata.labels:
        return False
    return one.status == other.status and one.asks_for_the_same(other)
