"""Observers: plugins that receive every change of the kinds that they watch.

Owned by the cluster, which passes on each change before it applies the change itself. All objects
are stored here, so that plugins from a new configuration receive the existing objects.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.budgets import DISRUPTION_BUDGETS
from bindery.kube.objects.resources import (
    BIND_REQUESTS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Resource,
)
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.store import Change, EventType, Key, key_of

WATCHED: Sequence[Resource[Any]] = (
    PRIORITY_CLASSES,
    NAMESPACES,
    QUEUES,
    NODES,
    POD_GROUPS,
    PODS,
    BIND_REQUESTS,
    DISRUPTION_BUDGETS,
)
"""The kinds that the scheduler watches with any plugins; listed in this order."""

T = TypeVar("T", bound=KubeObject)

Observe = Callable[[Change[KubeObject]], bool]
"""Receives a change; returns whether it may change the results of cached filters."""


class Observers:
    """The objects by kind, and their observers."""

    def __init__(self) -> None:
        self._objects: defaultdict[type[KubeObject], dict[Key, KubeObject]] = defaultdict(dict)
        self._observers: dict[type[KubeObject], list[Observe]] = {}
        self._resources: dict[type[KubeObject], Resource[Any]] = {r.type: r for r in WATCHED}
        self._resources[CommittedStatement] = BIND_REQUESTS  # one Statement of it

    def replace(
        self,
        observers: Iterable[tuple[Sequence[Resource[Any]], Observe]],
        on_error: Callable[[KubeObject, Exception], None],
    ) -> None:
        """Replace all observers, and pass the existing objects to the new ones.

        `on_error` is called for each object for which an observer raises an error.
        """
        self._observers = {}
        for resources, observe in observers:
            for resource in resources:
                self._resources[resource.type] = resource
            for kind in dict.fromkeys(resource.type for resource in resources):
                self._observers.setdefault(kind, []).append(observe)
                for item in list(self._objects[kind].values()):
                    try:
                        observe(Change(EventType.ADDED, item, None))
                    except Exception as error:
                        on_error(item, error)

    def known(self, item: KubeObject) -> KubeObject | None:
        """Return the stored object with the name of `item`."""
        return self._objects[type(item)].get(key_of(item.metadata))

    def get(self, kind: type[T], key: Key) -> T | None:
        """Return the stored object of `kind` with `key`."""
        item = self._objects[kind].get(key)
        return item if isinstance(item, kind) else None

    def every(self, kind: type[T]) -> list[T]:
        """Return the stored objects of `kind`."""
        return [item for item in self._objects[kind].values() if isinstance(item, kind)]

    def resource(self, item: KubeObject) -> Resource[Any]:
        """Return the resource of `item`, whose kind is watched."""
        return self._resources[type(item)]

    def tell(self, change: Change[KubeObject]) -> bool:
        """Pass on `change`; return whether it may change the results of cached filters."""
        if isinstance(change.object, CommittedStatement):
            return False  # one Statement; the request was passed on as a whole
        kind, key = type(change.object), key_of(change.object.metadata)
        if change.type is EventType.DELETED:
            self._objects[kind].pop(key, None)
        else:
            self._objects[kind][key] = change.object
        return self._tell(change)

    def withdraw(self, item: KubeObject) -> None:
        """Remove `item` as if it were deleted, after an error during its intake."""
        self._objects[type(item)].pop(key_of(item.metadata), None)
        for observe in self._observers.get(type(item), ()):
            with suppress(Exception):  # the observer that raised the error may not have stored it
                observe(Change(EventType.DELETED, item, item))

    def _tell(self, change: Change[KubeObject]) -> bool:
        kind, is_stale = type(change.object), False
        for observe in self._observers.get(kind, ()):
            is_stale |= observe(change)
        return is_stale
