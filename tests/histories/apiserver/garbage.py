"""What Kubernetes' controllers delete: objects without owners, and the content of namespaces.

A world takes these steps one by one, when its drawn delay is over.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.histories.apiserver.deletion import FOREGROUND, ORPHAN, Deleter
from tests.histories.apiserver.kinds import Kind
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Key, Store, Version, Writer

COLLECTOR: Final = "garbage-collector"
_NAMESPACE_CONTROLLER: Final = "namespace-controller"


@dataclass(frozen=True)
class Garbage:
    """An object that the garbage collector would work on, with its UID."""

    kind: Kind
    key: Key
    uid: str


class GarbageCollector:
    """Finds and deletes objects whose owners are gone, and finishes orphaning and foreground
    deletion."""

    def __init__(self, server: ModelApiServer) -> None:
        self._store: Store = server.store
        self._server = server
        self._deleter = Deleter(server.store)

    def find(self) -> list[Garbage]:
        """Return what there is to do now, in a fixed order."""
        found = []
        uids = {stored.object["metadata"]["uid"] for _, _, stored in self._all()}
        for kind, key, stored in self._all():
            meta = stored.object["metadata"]
            owners = meta.get("ownerReferences") or ()
            is_orphan = bool(owners) and not any(each["uid"] in uids for each in owners)
            waits = meta.get("deletionTimestamp") and {ORPHAN, FOREGROUND} & set(
                meta.get("finalizers") or ()
            )
            if waits or (is_orphan and not meta.get("deletionTimestamp")):
                found.append(Garbage(kind, key, meta["uid"]))
        return found

    def collect(self, garbage: Garbage, now_s: float) -> None:
        """Do one step for an object; nothing if it has changed meanwhile."""
        stored = self._store.get(garbage.kind, garbage.key)
        if stored is None or stored.object["metadata"]["uid"] != garbage.uid:
            return
        finalizers = stored.object["metadata"].get("finalizers") or ()
        is_ending = stored.object["metadata"].get("deletionTimestamp")
        if is_ending and ORPHAN in finalizers:
            for kind, key, dependent in self._dependents(garbage.uid):
                self._drop_owner(kind, key, dependent, garbage.uid)
            self._drop_finalizer(garbage, stored, ORPHAN)
        elif is_ending and FOREGROUND in finalizers:
            blocking = [
                each for each in self._dependents(garbage.uid) if _blocks(each[2], garbage.uid)
            ]
            for kind, key, dependent in blocking:
                if not dependent.object["metadata"].get("deletionTimestamp"):
                    self._delete(kind, key, "Foreground", now_s)
            if not blocking:
                self._drop_finalizer(garbage, stored, FOREGROUND)
        elif garbage in self.find():
            self._delete(garbage.kind, garbage.key, "Background", now_s)

    def collect_all(self, now_s: float) -> int:
        """Work until nothing is left to do; return the number of steps."""
        steps = 0
        while True:
            before = self._store.revision
            for garbage in self.find():
                self.collect(garbage, now_s)
                steps += 1
            if self._store.revision == before:
                return steps

    def _all(self) -> Iterator[tuple[Kind, Key, Version]]:
        for kind in self._store.kinds():
            objects = self._store.of(kind).objects
            for key in sorted(objects):
                yield kind, key, objects[key]

    def _dependents(self, uid: str) -> list[tuple[Kind, Key, Version]]:
        return [
            each
            for each in self._all()
            if any(
                owner["uid"] == uid
                for owner in each[2].object["metadata"].get("ownerReferences") or ()
            )
        ]

    def _delete(self, kind: Kind, key: Key, policy: str, now_s: float) -> None:
        writer = Writer(COLLECTOR, "delete")
        self._deleter.delete(kind, key, {"propagationPolicy": policy}, writer, now_s)

    def _drop_owner(self, kind: Kind, key: Key, stored: Version, uid: str) -> None:
        new = stored.copy()
        meta = new["metadata"]
        meta["ownerReferences"] = [each for each in meta["ownerReferences"] if each["uid"] != uid]
        if not meta["ownerReferences"]:
            del meta["ownerReferences"]
        self._store.put(kind, key, new, Writer(COLLECTOR, "patch"))

    def _drop_finalizer(self, garbage: Garbage, stored: Version, name: str) -> None:
        new = stored.copy()
        meta = new["metadata"]
        meta["finalizers"] = [each for each in meta["finalizers"] if each != name]
        if not meta["finalizers"]:
            del meta["finalizers"]
        writer = Writer(COLLECTOR, "patch")
        if self._deleter.must_go(new, stored):
            self._store.remove(garbage.kind, garbage.key, writer)
        else:
            self._store.put(garbage.kind, garbage.key, new, writer)


def _blocks(dependent: Version, uid: str) -> bool:
    owners: list[Mapping[str, Any]] = dependent.object["metadata"]["ownerReferences"]
    return any(each["uid"] == uid and each.get("blockOwnerDeletion") for each in owners)


def finish_namespaces(server: ModelApiServer, now_s: float) -> None:
    """Delete the content of ending namespaces, and each ending namespace that is empty."""
    store, deleter = server.store, Deleter(server.store)
    writer = Writer(_NAMESPACE_CONTROLLER, "delete")
    for namespace in server.objects("namespaces"):
        if not namespace["metadata"].get("deletionTimestamp"):
            continue
        name, left = namespace["metadata"]["name"], 0
        for kind in store.kinds():
            for key in [key for key in sorted(store.of(kind).objects) if key[0] == name]:
                deleter.delete(kind, key, {"propagationPolicy": "Background"}, writer, now_s)
                left += store.get(kind, key) is not None
        if not left:
            store.remove(server.kind("namespaces"), ("", name), writer)
