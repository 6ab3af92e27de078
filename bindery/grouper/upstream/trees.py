"""Finds the tree of upstream's groups around the PodGroup that pods name."""

from collections.abc import Iterable
from typing import Final, Protocol

from bindery.grouper.upstream.adapters import ADAPTERS
from bindery.grouper.upstream.model import COMPOSITE, POD_GROUP, Adapter, Body, UpstreamGroup

_MOST_LEVELS: Final = 16
"""Upstream allows four; a cycle of parents ends here."""

ReadGroup = tuple[UpstreamGroup, Adapter]


class NotKnownYetError(Exception):
    """An object is still being looked up: the tree cannot be found now."""


class Objects(Protocol):
    """Upstream's objects of one namespace."""

    def get(self, adapter: Adapter, kind: str, name: str) -> Body | None:
        """Return an object in the version of `adapter`; None if there is none.

        Raises:
            NotKnownYetError: it is being looked up.
        """

    def all(self, adapter: Adapter, kind: str) -> Iterable[Body]:
        """Return all objects of a kind; none if the version is not served."""


def find(objects: Objects, kind: str, name: str) -> tuple[Body, Adapter] | None:
    """Return an object in the best version that has it.

    Raises:
        NotKnownYetError: it is being looked up.
    """
    for adapter in ADAPTERS:
        body = objects.get(adapter, kind, name) if kind in adapter.kinds else None
        if body is not None:
            return body, adapter
    return None


def tree(objects: Objects, name: str) -> list[ReadGroup]:
    """Return the tree of the PodGroup `name`, its root first; empty while a part is missing.

    Raises:
        NotKnownYetError: a part is being looked up.
    """
    found = _group(objects, POD_GROUP, name)
    for _ in range(_MOST_LEVELS):
        if found is None:
            return []
        group = found[0]
        if not group.parent:
            return [found, *_below(objects, group)] if group.is_composite else [found]
        found = _group(objects, COMPOSITE, group.parent)
    return []


def _group(objects: Objects, kind: str, name: str) -> ReadGroup | None:
    found = find(objects, kind, name)
    return None if found is None else (found[1].read(found[0]), found[1])


def _below(objects: Objects, root: UpstreamGroup) -> list[ReadGroup]:
    """Return all groups below `root`, level by level, each level by kind and name."""
    children: dict[str, dict[str, ReadGroup]] = {}
    for adapter in ADAPTERS:
        for kind in (COMPOSITE, POD_GROUP):
            for body in objects.all(adapter, kind) if kind in adapter.kinds else ():
                group = adapter.read(body)
                if group.parent:
                    # The same object may be served in two versions: the better one stays.
                    siblings = children.setdefault(group.parent, {})
                    siblings.setdefault(group.reference.uid, (group, adapter))
    found: list[ReadGroup] = []
    level = [root.name]
    while level:
        below = [each for name in level for each in children.pop(name, {}).values()]
        below.sort(key=lambda each: (each[0].reference.kind, each[0].name))
        found += below
        level = [group.name for group, _ in below if group.is_composite]
    return found
