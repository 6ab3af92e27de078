"""Who is told of changes beside the tables: plugins that keep in step with objects.

Part of the cluster, which tells it of every change before it takes it in itself. It remembers every
object, so that plugins that a new configuration brings learn of all that is there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from bindery.kube.budgets import DISRUPTION_BUDGETS
from bindery.kube.objects import KubeObject
from bindery.kube.resources import (
    BIND_REQUESTS,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Resource,
)
from bindery.kube.store import Change, EventType, Key, key_of

WATCHED: Sequence[Resource[Any]] = (
    PRIORITY_CLASSES,
    QUEUES,
    NODES,
    POD_GROUPS,
    PODS,
    BIND_REQUESTS,
    DISRUPTION_BUDGETS,
)
"""The kinds that the scheduler watches whatever plugins it has; listed in this order."""

T = TypeVar("T", bound=KubeObject)

Observe = Callable[[Change[KubeObject]], bool]
"""Returns whether cached filters may not be true any more."""


class Observers:
    """The objects by kind, and who observes them."""

    def __init__(self) -> None:
        self._objects: defaultdict[type[KubeObject], dict[Key, KubeObject]] = defaultdict(dict)
        self._observers: dict[type[KubeObject], list[Observe]] = {}
        self._resources: dict[type[KubeObject], Resource[Any]] = {r.type: r for r in WATCHED}

    def replace(
        self,
        observers: Iterable[tuple[Sequence[Resource[Any]], Observe]],
        on_error: Callable[[KubeObject, Exception], None],
    ) -> None:
        """Tell `observers` from now on, each of its kinds, and of what is there at once.

        `on_error` hears of each object that an observer cannot take.
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
        """Return the object that `tell` heard of last under the name of `item`."""
        return self._objects[type(item)].get(key_of(item.metadata))

    def get(self, kind: type[T], key: Key) -> T | None:
        """Return the object of `kind` that `tell` heard of last under `key`."""
        item = self._objects[kind].get(key)
        return item if isinstance(item, kind) else None

    def resource(self, item: KubeObject) -> Resource[Any]:
        """Return the kind of `item`, which is watched."""
        return self._resources[type(item)]

    def tell(self, change: Change[KubeObject]) -> bool:
        """Tell of `change`; return whether cached filters may not be true any more."""
        kind, key = type(change.object), key_of(change.object.metadata)
        if change.type is EventType.DELETED:
            self._objects[kind].pop(key, None)
        else:
            self._objects[kind][key] = change.object
        return self._tell(change)

    def withdraw(self, item: KubeObject) -> None:
        """Forget `item`, which somebody could not take: as if it had been deleted."""
        self._objects[type(item)].pop(key_of(item.metadata), None)
        for observe in self._observers.get(type(item), ()):
            with suppress(Exception):  # an observer that never took it may not know it
                observe(Change(EventType.DELETED, item, item))

    def _tell(self, change: Change[KubeObject]) -> bool:
        kind, is_stale = type(change.object), False
        for observe in self._observers.get(kind, ()):
            is_stale |= observe(change)
        return is_stale
