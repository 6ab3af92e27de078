"""The objects of the model, their versions, and the log of all writes.

A version is never changed: it has the decoded object and its encoded bytes, and readers share both.
All kinds share one counter of resourceVersions, as in etcd.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from tests.histories.apiserver.kinds import Kind

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped kinds) and name."""
Plain = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode


class ChangeType(StrEnum):
    """The types of watch events that carry objects."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Version:
    """One version of an object. Its object and bytes must not be changed."""

    __slots__ = ("_partial", "body", "is_final", "object", "revision")

    def __init__(self, value: Plain, revision: int) -> None:
        self.object = value
        self.revision = revision
        self.body = _encode(value)
        self.is_final = True
        """False: a write without change is stored as a new version."""
        self._partial: bytes | None = None

    def copy(self) -> Plain:
        """Return a copy of the object that may be changed."""
        copied: Plain = _decode(self.body)
        return copied

    @property
    def partial(self) -> bytes:
        """The bytes as PartialObjectMetadata."""
        if self._partial is None:
            only = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": self.object["metadata"],
            }
            self._partial = _encode(only)
        return self._partial


@dataclass(frozen=True)
class Writer:
    """Who writes, and by which call."""

    caller: str
    verb: str
    subresource: str = ""


@dataclass(eq=False, slots=True)
class Change:
    """One write, as it stands in the log."""

    revision: int
    kind: Kind
    key: Key
    type: ChangeType
    before: Version | None
    version: Version
    """What was written; of a deletion the last version, with the revision of the deletion."""
    writer: Writer
    at_s: float
    _lines: dict[tuple[str, bool], bytes] = field(default_factory=dict)

    @property
    def after(self) -> Version | None:
        """The stored version after the write."""
        return None if self.type is ChangeType.DELETED else self.version

    def line(self, type_: str, *, partial: bool) -> bytes:
        """Return the line of a watch."""
        line = self._lines.get((type_, partial))
        if line is None:
            line = event_line(type_, self.version.partial if partial else self.version.body)
            self._lines[type_, partial] = line
        return line

    def line_of_lost(self, *, partial: bool) -> bytes:
        """Return the DELETED line for a watch that does not select the object any more."""
        line = self._lines.get(("LOST", partial))
        if line is None:
            assert self.before is not None, "only a selected version can be lost"
            last = _at(self.before, self.revision)
            line = event_line("DELETED", last.partial if partial else last.body)
            self._lines["LOST", partial] = line
        return line


def event_line(type_: str, body: bytes) -> bytes:
    """Return one line of a watch."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), body)


def _at(version: Version, revision: int) -> Version:
    old = version.object
    return Version(
        {**old, "metadata": {**old["metadata"], "resourceVersion": str(revision)}}, revision
    )


class Collection:
    """All objects of one kind, and their changes."""

    __slots__ = ("_revisions", "changes", "objects", "watches")

    def __init__(self) -> None:
        self.objects: dict[Key, Version] = {}
        self.changes: list[Change] = []
        self._revisions: list[int] = []
        self.watches: list[Callable[[Change], None]] = []

    def add(self, change: Change) -> None:
        """Record a change, and pass it to the watches."""
        self.changes.append(change)
        self._revisions.append(change.revision)
        for watch in tuple(self.watches):
            watch(change)

    def since(self, revision: int) -> list[Change]:
        """Return the changes after `revision`."""
        return self.changes[bisect_right(self._revisions, revision) :]

    def at(self, revision: int) -> dict[Key, Version]:
        """Return the objects as they were at `revision`."""
        later = self.since(revision)
        if not later:
            return self.objects
        objects = dict(self.objects)
        for change in reversed(later):
            if change.before is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.before
        return objects

    def ordered(self, revision: int, namespace: str) -> Iterator[tuple[Key, Version]]:
        """Yield the objects at `revision`, by namespace and name."""
        objects = self.at(revision)
        for key in sorted(objects):
            if not namespace or key[0] == namespace:
                yield key, objects[key]


FIRST_REVISION: Final = 100


class Store:
    """The objects of all kinds; `log` has every write in order."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.revision = FIRST_REVISION
        self.compacted = 0
        """Reads and watches from before this revision fail with 410."""
        self.log: list[Change] = []
        self._now_s = now_s
        self._collections: dict[Kind, Collection] = {}

    def of(self, kind: Kind) -> Collection:
        """Return the objects of `kind`."""
        found = self._collections.get(kind)
        if found is None:
            found = self._collections[kind] = Collection()
        return found

    def kinds(self) -> list[Kind]:
        """Return the kinds that have, or had, objects."""
        return list(self._collections)

    def get(self, kind: Kind, key: Key) -> Version | None:
        """Return the stored version."""
        return self.of(kind).objects.get(key)

    def put(self, kind: Kind, key: Key, value: Plain, writer: Writer) -> Version:
        """Store `value`, which must not be changed afterwards. A write without change is none."""
        collection = self.of(kind)
        before = collection.objects.get(key)
        if before is not None:
            value["metadata"]["resourceVersion"] = str(before.revision)
            if before.is_final and value == before.object:
                return before
        self.revision += 1
        value["metadata"]["resourceVersion"] = str(self.revision)
        version = Version(value, self.revision)
        version.is_final = before is not None or not kind.strategy.is_rewritten
        collection.objects[key] = version
        type_ = ChangeType.ADDED if before is None else ChangeType.MODIFIED
        self._record(collection, kind, key, type_, before, version, writer)
        return version

    def remove(self, kind: Kind, key: Key, writer: Writer) -> Version:
        """Remove an object; return its last version, with the revision of the removal."""
        collection = self.of(kind)
        before = collection.objects.pop(key)
        self.revision += 1
        last = _at(before, self.revision)
        self._record(collection, kind, key, ChangeType.DELETED, before, last, writer)
        return last

    def compact(self, revision: int | None = None) -> None:
        """Forget all versions before `revision`; without it, all that are not current."""
        self.compacted = self.revision if revision is None else revision

    def _record(
        self,
        collection: Collection,
        kind: Kind,
        key: Key,
        type_: ChangeType,
        before: Version | None,
        version: Version,
        writer: Writer,
    ) -> None:
        change = Change(version.revision, kind, key, type_, before, version, writer, self._now_s())
        self.log.append(change)
        collection.add(change)
