"""Who is told of changes beside the tables: plugins that keep in step with objects.

Part of the cluster, which tells it of every change before it takes it in itself. It remembers every
object, so that plugins that a new configuration brings learn of all that is there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bindery.kube.objects import KubeObject
from bindery.kube.resources import Resource
from bindery.kube.store import Change, EventType, Key, key_of

Observe = Callable[[Change[KubeObject]], bool]
"""Returns whether cached filters may not be true any more."""


class Observers:
    """The objects by kind, and who observes them."""

    def __init__(self) -> None:
        self._objects: defaultdict[type[KubeObject], dict[Key, KubeObject]] = defaultdict(dict)
        self._observers: dict[type[KubeObject], list[Observe]] = {}

    def replace(self, observers: Iterable[tuple[Sequence[Resource[Any]], Observe]]) -> None:
        """Tell `observers` from now on, each of its kinds, and of what is there at once."""
        self._observers = {}
        for resources, observe in observers:
            for kind in dict.fromkeys(resource.type for resource in resources):
                self._observers.setdefault(kind, []).append(observe)
                for item in self._objects[kind].values():
                    observe(Change(EventType.ADDED, item, None))

    def tell(self, change: Change[KubeObject]) -> bool:
        """Tell of `change`; return whether cached filters may not be true any more."""
        kind, key = type(change.object), key_of(change.object.metadata)
        if change.type is EventType.DELETED:
            self._objects[kind].pop(key, None)
        else:
            self._objects[kind][key] = change.object
        is_stale = False
        for observe in self._observers.get(kind, ()):
            is_stale |= observe(change)
        return is_stale
