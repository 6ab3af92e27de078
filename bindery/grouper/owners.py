"""Keeps the owners of pods up to date: one watch for each kind that is used and installed.

`forest` looks owners up by reference, and gets a call when an answer may have changed. Discovery
finds a kind at its first use, so kinds may be installed later, and unused kinds need no right and
cost nothing. Anybody who creates a pod names its owner, so a kind is watched only if the API server
serves it and our role may read it, and other kinds are forgotten with their last pod. The
invariant: an owner counts as gone only after the API server has answered that it is.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NamedTuple

import structlog

from bindery.grouper.objects import OwnerObject, as_mapping, owner_resource
from bindery.grouper.table.facts import Reference
from bindery.kube.accessreview import may_watch
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError, KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.kube.http.retry import backoff_s
from bindery.kube.objects.resources import Resource
from bindery.kube.served import Catalogue, ServedKind
from bindery.kube.watches.reflector import Change, EventType, Reflector

_log: Final = structlog.get_logger(__name__)


class KindKey(NamedTuple):
    """A kind as owner references name it."""

    api_version: str
    kind: str


def kind_of(reference: Reference) -> KindKey:
    """Return the kind of the object that `reference` names."""
    return KindKey(reference.api_version, reference.kind)


PROBE_AFTER_S: Final = 1.0
"""How long an owner may be missing from its watch before it is asked for by name: the watches of
owners and pods may be apart by so much."""
_PROBES: Final = 8
"""How many owners are asked for by name at once."""
_POD: Final = KindKey("v1", "Pod")
"""Pods can be owners (leaders of LeaderWorkerSets). Those of our scheduler are watched anyway;
others are read once."""
_ANY_NAME: Final = ""
"""Asks for all objects of a kind."""
_POD_KIND: Final = ServedKind("pods", "Pod", namespaced=True)
_LOOK_AGAIN_S: Final = 10.0
_LOOK_AGAIN_CAP_S: Final = 60.0
"""The time between two looks for a kind that is not installed or cannot be read, at first and in
the long run; for an owner that cannot be read, too."""
_DENIED_AGAIN_S: Final = 2.0
"""A right that is denied at the first look is asked for once more: an API server that has just
started may deny everything for a moment."""


class Missing(Enum):
    """Why an owner is not known."""

    PENDING = auto()
    """It is being looked up."""
    FORBIDDEN = auto()
    """The role does not allow to read its kind."""
    NOT_INSTALLED = auto()
    """The API server does not serve its kind."""
    GONE = auto()
    """There is no such object."""


Found = OwnerObject | Missing


@dataclass(eq=False)
class _Kind:
    """One kind of owners."""

    key: KindKey
    resource: Resource[OwnerObject] | None = None
    mirror: Reflector[OwnerObject] | None = None
    missing: Missing = Missing.PENDING
    """Why owners are missing that neither the watch nor a read has shown."""
    owners: dict[str, Reference] = field(default_factory=dict)
    """The owners on which pods depend, by UID."""
    askers: dict[str, set[str]] = field(default_factory=dict)
    """Name -> who has asked for the object of this name."""
    following: asyncio.Task[None] | None = None

    @property
    def is_used(self) -> bool:
        """Whether anything depends on an object of this kind."""
        return bool(self.owners or self.askers)

    @property
    def is_read(self) -> bool:
        """Whether its objects can be asked for by name, because all others are known."""
        return self.key == _POD or (self.mirror is not None and self.mirror.synced.is_set())

    def shows(self, reference: Reference) -> bool:
        """Whether the watch has this very object."""
        if self.mirror is None or self.resource is None:
            return False
        scope = reference.namespace if self.resource.namespaced else ""
        found = self.mirror.objects.get((scope, reference.name))
        return found is not None and found.metadata.uid == reference.uid


class Owners:
    """All owners that were asked for, and those of the same kinds."""

    def __init__(
        self, client: Client, is_whole: Callable[[KindKey], bool], changed: Callable[[str], None]
    ) -> None:
        """Make it; `run` does the work.

        Args:
            client: reads and watches.
            is_whole: whether of a kind the whole objects are needed, not only their metadata.
            changed: called with the UID of an owner for which `find` may return another answer now.
        """
        self._client = client
        self._catalogue = Catalogue(client)
        self._is_whole = is_whole
        self._changed = changed
        self._kinds: dict[KindKey, _Kind] = {}
        self._known: dict[str, OwnerObject] = {}
        self._used: dict[str, KindKey] = {}
        """The kinds of the owners that pods depend on, by UID."""
        self._gone: set[str] = set()
        """Those of them that do not exist."""
        self._asked: dict[str, set[tuple[KindKey, str]]] = {}
        """Who has asked by name -> for what."""
        self._places = asyncio.Semaphore(_PROBES)
        self._tasks: asyncio.TaskGroup | None = None
        self._was_settled = False

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for kind in list(self._kinds.values()):
                self._start(kind)
            await asyncio.get_running_loop().create_future()

    def find(self, reference: Reference) -> Found:
        """Return an owner; or why it is missing, and see to it that it is looked up.

        It is kept up to date until `forget`.
        """
        uid, kind = reference.uid, self._kind(kind_of(reference))
        is_new = uid not in kind.owners
        kind.owners[uid] = reference
        self._used[uid] = kind.key
        known = self._known.get(uid)
        if known is not None:
            return known
        if uid in self._gone:
            return Missing.GONE
        if is_new and kind.is_read:
            self._spawn_probe(reference)
        return kind.missing

    def find_named(
        self, key: KindKey, namespace: str, name: str, asker: str
    ) -> Mapping[str, Any] | Missing:
        """Return the object of this name as its manifest would be, or why it is missing.

        The version of `key` may be `*`. `changed` is called with `asker`, the UID of the workload
        that needs the object, when the answer may have changed.
        """
        kind = self._ask(key, name, asker)
        if kind.mirror is None or kind.resource is None or not kind.mirror.synced.is_set():
            return kind.missing
        scope = namespace if kind.resource.namespaced else ""
        found = kind.mirror.objects.get((scope, name))
        if found is None:
            return Missing.GONE
        return as_mapping(kind.resource.api_version, key.kind, found)

    def find_all(self, key: KindKey, namespace: str, asker: str) -> list[OwnerObject]:
        """Return all objects of a kind in `namespace`, by name; none while they are not known.

        When an object of the kind changes, `changed` is called with `asker`.
        """
        kind = self._ask(key, _ANY_NAME, asker)
        if kind.mirror is None or not kind.mirror.synced.is_set():
            return []
        return [found for at, found in sorted(kind.mirror.objects.items()) if at[0] == namespace]

    def forget(self, uid: str) -> None:
        """Take note that nothing depends on an owner any more, and that it asks for nothing."""
        key = self._used.pop(uid, None)
        if key is not None:
            kind = self._kinds[key]
            if not kind.shows(kind.owners.pop(uid)):
                self._known.pop(uid, None)
            self._gone.discard(uid)
            self._release(kind)
        for key, name in self._asked.pop(uid, ()):
            kind = self._kinds[key]
            kind.askers[name].discard(uid)
            if not kind.askers[name]:
                del kind.askers[name]
            self._release(kind)

    async def is_served(self, key: KindKey) -> bool:
        """Return whether the API server has a kind.

        Raises:
            KubeError: the API server cannot be asked.
        """
        return await self._catalogue.find(*key) is not None

    def is_settled(self) -> bool:
        """Whether the first look is over at every kind that was used at the start."""
        self._was_settled = self._was_settled or all(
            kind.missing is not Missing.PENDING or kind.is_read for kind in self._kinds.values()
        )
        return self._was_settled

    def healthy(self) -> bool:
        """Whether no watch is out of date."""
        mirrors = [kind.mirror for kind in self._kinds.values() if kind.mirror is not None]
        return all(each.healthy() for each in mirrors if each.synced.is_set())

    @property
    def watched(self) -> int:
        """How many kinds are watched."""
        return sum(kind.mirror is not None for kind in self._kinds.values())

    # ---- kinds ----------------------------------------------------------------------------------

    def _kind(self, key: KindKey) -> _Kind:
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(key)
            if key == _POD:
                kind.resource = owner_resource(key.api_version, _POD_KIND, whole=False)
            self._start(kind)
        return kind

    def _ask(self, key: KindKey, name: str, asker: str) -> _Kind:
        """Return a kind, with a note of who has asked for the object of this name."""
        kind = self._kind(key)
        kind.askers.setdefault(name, set()).add(asker)
        self._asked.setdefault(asker, set()).add((key, name))
        return kind

    def _start(self, kind: _Kind) -> None:
        """Follow a kind, once there are tasks."""
        if self._tasks is None:
            return
        if kind.key == _POD:
            self._probe_missing(kind)
        else:
            kind.following = self._tasks.create_task(self._follow(kind))

    def _release(self, kind: _Kind) -> None:
        """Forget a kind on which nothing depends; one that is watched stays: our role bounds them.

        So the grouper does not list a kind again for each workload that comes and goes.
        """
        if not kind.is_used and kind.mirror is None:
            del self._kinds[kind.key]
            if kind.following is not None:
                kind.following.cancel()

    async def _follow(self, kind: _Kind) -> None:
        """Watch a kind while it is installed and may be read; wait for that while it may be used.

        A kind is looked for in the shared catalogue, and a right is asked for only if the kind is
        served. So what pods call their owners costs the API server little.
        """
        attempt = 0
        while True:
            try:
                resource = await self._discover(kind.key)
                if resource is None:
                    missing = Missing.NOT_INSTALLED
                elif not await self._may_watch(kind, resource):
                    missing = Missing.FORBIDDEN
                else:
                    missing, attempt = await self._watch(kind, resource), 0
                    if not kind.is_used:
                        del self._kinds[kind.key]
                        return
                self._set_missing(kind, missing)
            except KubeError as error:
                log_failure(_log, "kind not looked up", error, kind=kind.key.kind)
            await asyncio.sleep(self._pause_s(attempt))
            attempt += 1

    async def _discover(self, key: KindKey) -> Resource[OwnerObject] | None:
        """Return the resource of a kind; None if it is not installed."""
        found = await self._catalogue.find(*key)
        if found is None:
            return None
        api_version, served = found
        whole = self._is_whole(KindKey(api_version, key.kind))
        return owner_resource(api_version, served, whole=whole)

    async def _may_watch(self, kind: _Kind, resource: Resource[OwnerObject]) -> bool:
        if await may_watch(self._client, resource):
            return True
        if kind.missing is not Missing.PENDING:
            return False
        await asyncio.sleep(_DENIED_AGAIN_S)
        return await may_watch(self._client, resource)

    async def _watch(self, kind: _Kind, resource: Resource[OwnerObject]) -> Missing:
        """Watch a kind until that is impossible; return why it is."""
        ended: asyncio.Future[Missing] = asyncio.get_running_loop().create_future()

        def failed(error: KubeError) -> None:
            if ended.done():
                return
            if isinstance(error, NotFoundError):
                ended.set_result(Missing.NOT_INSTALLED)
            elif isinstance(error, ForbiddenError) and not mirror.synced.is_set():
                ended.set_result(Missing.FORBIDDEN)

        def take(change: Change[OwnerObject]) -> None:
            self._take(change)
            self._tell_askers(kind, change.object.metadata.name)
            self._tell_askers(kind, _ANY_NAME)

        mirror = Reflector(self._client, resource, take, on_failure=failed)
        kind.resource, kind.mirror = resource, mirror
        watching = asyncio.create_task(mirror.run())
        filling = asyncio.create_task(self._when_filled(kind, mirror))
        try:
            return await ended
        finally:
            for task in (watching, filling):
                task.cancel()
            await asyncio.gather(watching, filling, return_exceptions=True)
            kind.mirror = kind.resource = None
            for owner in mirror.objects.values():
                self._lose(owner.metadata.uid)

    async def _when_filled(self, kind: _Kind, mirror: Reflector[OwnerObject]) -> None:
        await mirror.synced.wait()
        kind.missing = Missing.PENDING
        self._probe_missing(kind)
        self._tell_waiting(kind)

    def _set_missing(self, kind: _Kind, missing: Missing) -> None:
        if kind.missing is not missing:
            kind.missing = missing
            self._tell_waiting(kind)

    def _tell_waiting(self, kind: _Kind) -> None:
        """Report to all workloads that need objects of a kind that the answers may have changed."""
        for uid in [uid for uid in kind.owners if uid not in self._known]:
            self._changed(uid)
        for name in list(kind.askers):
            self._tell_askers(kind, name)

    def _tell_askers(self, kind: _Kind, name: str) -> None:
        for asker in list(kind.askers.get(name, ())):
            self._changed(asker)

    # ---- owners ---------------------------------------------------------------------------------

    def _take(self, change: Change[OwnerObject]) -> None:
        uid = change.object.metadata.uid
        if change.type is not EventType.DELETED:
            self._learn(uid, change.object)
            return
        if uid in self._used:
            self._gone.add(uid)
        self._lose(uid)

    def _learn(self, uid: str, owner: OwnerObject) -> None:
        self._known[uid] = owner
        self._gone.discard(uid)
        self._changed(uid)

    def _lose(self, uid: str) -> None:
        if self._known.pop(uid, None) is not None:
            self._changed(uid)

    def _probe_missing(self, kind: _Kind) -> None:
        for uid, reference in kind.owners.items():
            if uid not in self._known and uid not in self._gone:
                self._spawn_probe(reference)

    def _spawn_probe(self, reference: Reference) -> None:
        if self._tasks is not None:
            self._tasks.create_task(self._probe(reference))

    async def _probe(self, reference: Reference) -> None:
        """Ask for an owner that its watch does not show, until it is known to exist or not."""
        uid, attempt = reference.uid, 0
        await asyncio.sleep(PROBE_AFTER_S)
        while (resource := self._to_ask(reference)) is not None:
            try:
                owner = await self._read(resource, reference)
            except KubeError as error:
                log_failure(_log, "owner not read", error, kind=reference.kind)
                await asyncio.sleep(self._pause_s(attempt))
                attempt += 1
                continue
            if self._to_ask(reference) is None:
                return
            if owner is not None and owner.metadata.uid == uid:
                self._learn(uid, owner)
            else:
                self._gone.add(uid)
                self._changed(uid)
            return

    def _to_ask(self, reference: Reference) -> Resource[OwnerObject] | None:
        """Return where to ask for an owner by name; None if that is needless or no longer works."""
        uid = reference.uid
        key = self._used.get(uid)
        if key is None or uid in self._known or uid in self._gone:
            return None
        kind = self._kinds[key]
        return kind.resource if kind.is_read else None

    async def _read(
        self, resource: Resource[OwnerObject], reference: Reference
    ) -> OwnerObject | None:
        """Return the object of this name, if there is one."""
        if resource.namespaced and not reference.namespace:
            return None  # an object of the cluster cannot be owned by one of a namespace
        namespace = reference.namespace if resource.namespaced else ""
        try:
            async with self._places:
                return await self._client.get(resource, reference.name, namespace)
        except NotFoundError:
            return None

    def _pause_s(self, attempt: int) -> float:
        draw = self._client.environment.random.random()
        return backoff_s(attempt, _LOOK_AGAIN_S, _LOOK_AGAIN_CAP_S, draw)
