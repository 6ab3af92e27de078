"""The PodGroups that the grouper has written, as the API server stores them.

Filled by a watch and by the answers to our own writes, which come first: a plan that is made before
the watch has caught up sees what was written. The invariant: of one object, no older state follows
a newer one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from bindery.api import names
from bindery.grouper.objects import WrittenGroup
from bindery.grouper.table.groups import Group
from bindery.grouper.upstream.model import GROUP as UPSTREAM_GROUP
from bindery.kube.objects import reading
from bindery.kube.objects.podgroups import PodGroupSpec
from bindery.kube.objects.watched import Meta
from bindery.kube.watches.reflector import Change, EventType
from bindery.kube.watches.store import Key, key_of

_UPSTREAM: Final = f"{UPSTREAM_GROUP}/"


class Groups:
    """All PodGroups with our label, also by the UIDs of their owners."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with the UID of an owner whenever another client changes its PodGroup."""
        self._changed = changed
        self._groups: dict[Key, WrittenGroup] = {}
        self._by_owner: dict[str, dict[Key, None]] = {}
        self._deleted: set[str] = set()
        """UIDs of PodGroups that the grouper has deleted and that the watch still shows."""

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, namespace: str, name: str) -> WrittenGroup | None:
        """Return the PodGroup of this name if it is ours."""
        return self._groups.get((namespace, name))

    def without_owner(self) -> list[str]:
        """Return the UIDs of the PodGroups that name no owner; they count as their own owners."""
        groups = self._groups.values()
        return [each.metadata.uid for each in groups if not each.metadata.owner_references]

    def of_owners(self, uids: Iterable[str]) -> list[WrittenGroup]:
        """Return the PodGroups whose owner reference has one of `uids`, by name."""
        keys = {key for uid in uids for key in self._by_owner.get(uid, ())}
        return [self._groups[key] for key in sorted(keys)]

    def take(self, change: Change[WrittenGroup]) -> None:
        """Apply a watch event."""
        group = change.object
        uid = group.metadata.uid
        known = self._groups.get(key_of(group.metadata))
        if change.type is EventType.DELETED:
            self._deleted.discard(uid)
            if known is not None and known.metadata.uid == uid:
                self._remove(known)
                self._tell(_owners(known))
            return
        if uid in self._deleted or (known is not None and _is_older(group.metadata, known)):
            return
        self.note(group)
        if known is None or _content(known) != _content(group):
            before = _owners(known) if known is not None else []
            self._tell({*before, *_owners(group)})

    def note(self, group: WrittenGroup) -> None:
        """Take in a state that the API server has answered with."""
        key = key_of(group.metadata)
        known = self._groups.get(key)
        if known is not None:
            self._remove(known)
        self._groups[key] = group
        for owner in _owners(group):
            self._by_owner.setdefault(owner, {})[key] = None

    def note_deleted(self, group: WrittenGroup) -> None:
        """Take in that a PodGroup was deleted by us."""
        known = self._groups.get(key_of(group.metadata))
        if known is not None and known.metadata.uid == group.metadata.uid:
            self._deleted.add(group.metadata.uid)
            self._remove(known)

    def _remove(self, group: WrittenGroup) -> None:
        key = key_of(group.metadata)
        del self._groups[key]
        for owner in _owners(group):
            keys = self._by_owner.get(owner, {})
            keys.pop(key, None)
            if not keys:
                self._by_owner.pop(owner, None)

    def _tell(self, owners: Iterable[str]) -> None:
        for owner in sorted(owners):
            self._changed(owner)


def _owners(group: WrittenGroup) -> list[str]:
    """Return the UIDs of the owners of `group`.

    `kubectl delete --cascade=orphan` removes the references to the deleted owner, and no other
    component deletes the PodGroup then. Such a PodGroup counts as its own owner, without pods.
    """
    return [each.uid for each in group.metadata.owner_references] or [group.metadata.uid]


GIVEN_LABELS: Final = (names.NODE_POOL_LABEL, names.USER_KEY)
"""Labels that the grouper removes from a stored PodGroup if the plan has no value for them."""
GIVEN_ANNOTATIONS: Final = (names.SOURCES_ANNOTATION, names.PROVISIONING_REQUEST_ANNOTATION)
"""Annotations that it removes in the same way."""


def is_as_wanted(stored: WrittenGroup, wanted: Group) -> bool:
    """Whether a stored PodGroup has everything that `wanted` has.

    The specs are compared as structs, so that defaults that the API server fills in do not count.
    """
    body = wanted.to_object()
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    meta = stored.metadata
    references = [(each.kind, each.name, each.uid) for each in meta.owner_references]
    owner = wanted.owner
    return (
        metadata["labels"].items() <= meta.labels.items()
        and all(key in metadata["labels"] for key in GIVEN_LABELS if key in meta.labels)
        and _given(metadata.get("annotations", {})) == _given(meta.annotations)
        and references == [(owner.kind, owner.name, owner.uid)]
        and _parsed(stored) == wanted.spec
    )


def _given(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: annotations[key] for key in GIVEN_ANNOTATIONS if key in annotations}


def _parsed(stored: WrittenGroup) -> PodGroupSpec | None:
    try:
        return reading.convert(stored.spec, PodGroupSpec)
    except msgspec.ValidationError:
        return None


def _is_older(meta: Meta, known: WrittenGroup) -> bool:
    """Whether `meta` is of an older state of the very object `known`.

    Versions of one kind can be compared as numbers (KEP-5504); what is not a number is not older.
    """
    if meta.uid != known.metadata.uid:
        return False
    versions = (meta.resource_version, known.metadata.resource_version)
    return all(each.isdecimal() for each in versions) and int(versions[0]) < int(versions[1])


def _content(group: WrittenGroup) -> tuple[object, ...]:
    """Return what a plan depends on, or has written."""
    meta = group.metadata
    written = (meta.uid, meta.labels, meta.annotations, meta.owner_references, group.spec)
    is_upstreams = any(each.api_version.startswith(_UPSTREAM) for each in meta.owner_references)
    said = group.status.conditions if is_upstreams else None
    return (*written, group.status.queue, said)
