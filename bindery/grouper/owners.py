"""Keeps the owners of pods up to date: one watch for each kind that is used and installed.

`forest` looks owners up by reference, and gets a call when an answer may have changed. Discovery
finds a kind at its first use, so kinds may be installed later, and unused kinds need no right and
cost nothing. The invariant: an owner counts as gone only after the API server has answered that it
is.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

import structlog

from bindery.grouper.objects import OwnerObject, owner_resource
from bindery.grouper.table.facts import Reference
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError, KubeError, NotFoundError
from bindery.kube.resources import Resource
from bindery.kube.served import ServedKind, find, preferred_version
from bindery.kube.watch import Change, EventType, Reflector

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
GONE_AFTER_S: Final = 30.0
"""How long after an owner has gone its pods are left alone: the garbage collector deletes them."""
_POD: Final = KindKey("v1", "Pod")
"""Pods can be owners (leaders of LeaderWorkerSets). Those of our scheduler are watched anyway;
others are read once."""
_ANY_NAME: Final = ""
"""Asks for all objects of a kind."""
_POD_KIND: Final = ServedKind("pods", "Pod", namespaced=True)
_LOOK_AGAIN_S: Final = 10.0
"""The time between two looks for a kind that is not installed, or an owner that cannot be read."""


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
        self._is_whole = is_whole
        self._changed = changed
        self._kinds: dict[KindKey, _Kind] = {}
        self._known: dict[str, OwnerObject] = {}
        self._wanted: dict[str, Reference] = {}
        """What was asked for and is missing, by UID."""
        self._probed: dict[str, Missing] = {}
        self._lost: set[str] = set()
        """UIDs of wanted owners that were deleted."""
        self._askers: dict[tuple[KindKey, str], set[str]] = {}
        """Kind and name -> who has asked for it by name."""
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for kind in self._kinds.values():
                if kind.key != _POD:
                    tasks.create_task(self._follow(kind))
            for reference in self._wanted.values():
                tasks.create_task(self._probe(reference))
            await asyncio.get_running_loop().create_future()

    def find(self, reference: Reference) -> Found:
        """Return an owner; or why it is missing, and see to it that it is looked up."""
        known = self._known.get(reference.uid)
        if known is not None:
            return known
        kind = self._kind(kind_of(reference))
        if reference.uid not in self._wanted:
            self._wanted[reference.uid] = reference
            self._spawn_probe(reference)
        if kind.missing is not Missing.PENDING:
            return kind.missing
        return self._probed.get(reference.uid, Missing.PENDING)

    def find_named(
        self, key: KindKey, namespace: str, name: str, asker: str
    ) -> tuple[str, OwnerObject] | Missing:
        """Return the API version and the object of this name, or why it is missing.

        The version of `key` may be `*`. When the answer may have changed, `changed` is told
        `asker`, the UID of the workload that needs it.
        """
        kind = self._kind(key)
        self._askers.setdefault((key, name), set()).add(asker)
        if kind.mirror is None or kind.resource is None or not kind.mirror.synced.is_set():
            return kind.missing
        scope = namespace if kind.resource.namespaced else ""
        found = kind.mirror.objects.get((scope, name))
        return (kind.resource.api_version, found) if found is not None else Missing.GONE

    def find_all(self, key: KindKey, namespace: str, asker: str) -> list[OwnerObject]:
        """Return all objects of a kind in `namespace`, by name; none while they are not known.

        When an object of the kind changes, `changed` is called with `asker`.
        """
        kind = self._kind(key)
        self._askers.setdefault((key, _ANY_NAME), set()).add(asker)
        if kind.mirror is None or not kind.mirror.synced.is_set():
            return []
        return [found for at, found in sorted(kind.mirror.objects.items()) if at[0] == namespace]

    def forget(self, uid: str) -> None:
        """Take note that nothing depends on an owner any more."""
        self._wanted.pop(uid, None)
        self._probed.pop(uid, None)
        self._lost.discard(uid)

    def is_settled(self) -> bool:
        """Whether the first look at every kind is over."""
        return all(
            kind.missing is not Missing.PENDING
            or kind.key == _POD
            or (kind.mirror is not None and kind.mirror.synced.is_set())
            for kind in self._kinds.values()
        )

    def healthy(self, now: float) -> bool:
        """Whether no watch is out of date at `now` (of `time.monotonic`)."""
        mirrors = [kind.mirror for kind in self._kinds.values() if kind.mirror is not None]
        return all(each.healthy(now) for each in mirrors if each.synced.is_set())

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
            elif self._tasks is not None:
                self._tasks.create_task(self._follow(kind))
        return kind

    async def _follow(self, kind: _Kind) -> None:
        """Watch a kind while it is installed; wait for it while it is not."""
        while True:
            try:
                resource = await self._discover(kind.key)
            except KubeError as error:
                _log.warning("discovery failed", kind=kind.key.kind, error=str(error))
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            if resource is not None:
                kind.resource = resource
                await self._watch(kind, resource)
            self._set_missing(kind, Missing.NOT_INSTALLED)
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _discover(self, key: KindKey) -> Resource[OwnerObject] | None:
        """Return the resource of a kind; None if it is not installed."""
        group, _, version = key.api_version.rpartition("/")
        if version == "*":
            version = await preferred_version(self._client, group) or ""
        key = KindKey(f"{group}/{version}" if group else version, key.kind)
        served = await find(self._client, *key) if version else None
        if served is None:
            return None
        return owner_resource(key.api_version, served, whole=self._is_whole(key))

    async def _watch(self, kind: _Kind, resource: Resource[OwnerObject]) -> None:
        """Watch a kind until the API server does not serve it any more."""
        gone = asyncio.Event()

        def failed(error: KubeError) -> None:
            if isinstance(error, NotFoundError):
                gone.set()
            elif isinstance(error, ForbiddenError) and not mirror.synced.is_set():
                self._set_missing(kind, Missing.FORBIDDEN)

        def take(change: Change[OwnerObject]) -> None:
            self._take(change)
            self._tell_askers(kind.key, change.object.metadata.name)
            self._tell_askers(kind.key, _ANY_NAME)

        mirror = kind.mirror = Reflector(self._client, resource, take, on_failure=failed)
        watching = asyncio.create_task(mirror.run())
        filling = asyncio.create_task(self._when_filled(kind, mirror))
        try:
            await gone.wait()
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
        self._tell_waiting(kind)

    def _set_missing(self, kind: _Kind, missing: Missing) -> None:
        if kind.missing is not missing:
            kind.missing = missing
            self._tell_waiting(kind)

    def _tell_waiting(self, kind: _Kind) -> None:
        """Tell all who asked for objects of a kind that the answers may have changed."""
        for uid, reference in list(self._wanted.items()):
            if kind_of(reference) == kind.key:
                self._changed(uid)
        for key, name in list(self._askers):
            if key == kind.key:
                self._tell_askers(key, name)

    def _tell_askers(self, key: KindKey, name: str) -> None:
        for asker in self._askers.pop((key, name), ()):
            self._changed(asker)

    # ---- owners ---------------------------------------------------------------------------------

    def _take(self, change: Change[OwnerObject]) -> None:
        uid = change.object.metadata.uid
        if change.type is EventType.DELETED:
            self._lose(uid)
            return
        self._learn(uid, change.object)

    def _learn(self, uid: str, owner: OwnerObject) -> None:
        self._known[uid] = owner
        self.forget(uid)
        self._changed(uid)

    def _lose(self, uid: str) -> None:
        if self._known.pop(uid, None) is not None:
            self._lost.add(uid)
            self._changed(uid)
            if uid not in self._wanted:
                self._lost.discard(uid)

    def _spawn_probe(self, reference: Reference) -> None:
        if self._tasks is not None:
            self._tasks.create_task(self._probe(reference))

    async def _probe(self, reference: Reference) -> None:
        """Ask for an owner that its watch does not show, until it is known to exist or not."""
        uid = reference.uid
        await asyncio.sleep(GONE_AFTER_S if uid in self._lost else PROBE_AFTER_S)
        while uid in self._wanted:
            kind = self._kind(kind_of(reference))
            is_shown = kind.mirror is not None and kind.mirror.synced.is_set()
            if kind.resource is None or not (is_shown or kind.key == _POD):
                await asyncio.sleep(PROBE_AFTER_S)
                continue
            try:
                namespace = reference.namespace if kind.resource.namespaced else ""
                owner = await self._client.get(kind.resource, reference.name, namespace)
            except NotFoundError:
                owner = None
            except KubeError as error:
                _log.warning("owner not read", kind=reference.kind, error=str(error))
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            if owner is not None and owner.metadata.uid == uid:
                if uid in self._wanted:
                    self._learn(uid, owner)
                return
            if uid not in self._lost:
                self._lost.add(uid)
                await asyncio.sleep(GONE_AFTER_S)
            if uid in self._wanted:
                self._probed[uid] = Missing.GONE
                self._changed(uid)
            return
