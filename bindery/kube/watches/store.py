"""The objects of one kind in a watch, and the changes between their states.

Used by `watches.reflector`, which passes lists and events in. Pure. Invariants: the returned
changes, applied in order to an empty mapping, give the known objects; no change is returned for a
version (uid and resourceVersion) that is already known.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from bindery.kube.objects.watched import KubeObject, Meta

T = TypeVar("T", bound=KubeObject)

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is ""."""


class EventType(StrEnum):
    """The type of a change."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """The addition, modification or deletion of one object."""

    type: EventType
    object: T
    """The current object; the last seen state of a deleted object."""
    previous: T | None
    """The object before the change; None if it was not known."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """An object that did not decode."""

    meta: Meta
    message: str
    kept: Callable[[Any], Any] = field(default=lambda known: known, compare=False)
    """Receives the last version that decoded, or None; returns the object to keep, or None."""


def key_of(meta: Meta) -> Key:
    """Return the key of an object in the store."""
    return (meta.namespace, meta.name)


class Store(Generic[T]):
    """The objects of one kind, and the known versions of malformed objects."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._malformed: dict[Key, Meta] = {}
        self.objects: Mapping[Key, T] = MappingProxyType(self._objects)

    def is_news(self, found: Malformed) -> bool:
        """Whether this version of a malformed object is new."""
        known = self._malformed.get(key_of(found.meta))
        return known is None or not _same_version(known, found.meta)

    def see(self, found: T | Malformed) -> list[Change[T]]:
        """Store the existing object `found`; for a malformed one, store the result of `kept`."""
        if isinstance(found, Malformed):
            key = key_of(found.meta)
            self._malformed[key] = found.meta
            known = self._objects.get(key)
            is_known = known is not None and known.metadata.uid == found.meta.uid
            kept = found.kept(known if is_known else None)
            return self._remove(key, None) if kept is None else self._put(key, kept)
        key = key_of(found.metadata)
        self._malformed.pop(key, None)
        return self._put(key, found)

    def lose(self, found: T | Malformed) -> list[Change[T]]:
        """Remove the deleted object `found`; it is the object's last state."""
        last = None if isinstance(found, Malformed) else found
        meta = found.meta if isinstance(found, Malformed) else found.metadata
        key = key_of(meta)
        self._malformed.pop(key, None)
        known = self._objects.get(key)
        if known is None or known.metadata.uid != meta.uid:
            return []
        return self._remove(key, last)

    def reconcile(self, found: Iterable[T | Malformed]) -> Iterator[Change[T]]:
        """Store exactly the objects `found`; deletions come first."""
        by_key = {
            key_of(each.meta if isinstance(each, Malformed) else each.metadata): each
            for each in found
        }
        for key in self._malformed.keys() - by_key.keys():
            del self._malformed[key]
        for key in [key for key in self._objects if key not in by_key]:
            yield from self._remove(key, None)
        for each in by_key.values():
            yield from self.see(each)

    def _put(self, key: Key, found: T) -> list[Change[T]]:
        meta = found.metadata
        previous = self._objects.get(key)
        if previous is None:
            self._objects[key] = found
            return [Change(EventType.ADDED, found, None)]
        if previous.metadata.uid == meta.uid:
            if previous.metadata.resource_version == meta.resource_version:
                return []
            self._objects[key] = found
            return [Change(EventType.MODIFIED, found, previous)]
        # Deleted and created again under the same name, between two lists.
        removed = self._remove(key, None)
        self._objects[key] = found
        return [*removed, Change(EventType.ADDED, found, None)]

    def _remove(self, key: Key, last: T | None) -> list[Change[T]]:
        previous = self._objects.pop(key, None)
        if previous is None:
            return []
        return [Change(EventType.DELETED, last or previous, previous)]


def _same_version(one: Meta, other: Meta) -> bool:
    return one.uid == other.uid and one.resource_version == other.resource_version
