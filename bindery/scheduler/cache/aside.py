"""Objects that the scheduler could not take in: what stands in for them, and what they are told.

Used by cluster.py, which sets an object aside when taking it in raises. What is set aside is left
out of planning; everything else goes on.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from bindery.kube.objects import KubeObject, Pod, PodGroup, PodGroupSpec, Queue, QueueSpec
from bindery.kube.store import Key, key_of


class Aside:
    """The objects that are set aside, and why."""

    def __init__(self) -> None:
        self._why: dict[tuple[type[KubeObject], Key], tuple[KubeObject, str]] = {}

    def __len__(self) -> int:
        return len(self._why)

    def put(self, item: KubeObject, why: str) -> None:
        """Note that `item` could not be taken in."""
        self._why[type(item), key_of(item.metadata)] = item, why

    def drop(self, item: KubeObject) -> None:
        """Note that `item` has been taken in, or is gone."""
        self._why.pop((type(item), key_of(item.metadata)), None)

    def pods(self) -> Iterator[tuple[Pod, str]]:
        """Yield the pods that are set aside, and why."""
        for item, why in self._why.values():
            if isinstance(item, Pod):
                yield item, why


def stand_ins(item: KubeObject, known: KubeObject | None, why: str) -> Iterator[KubeObject]:
    """Yield what may be taken in instead of `item`, the best first.

    PodGroups and Queues stay, as objects that cannot be used, so that their gangs hear why they
    wait. A pod that stood on its node before, as `known` says, goes on standing there: the room
    that it holds must not be given away.
    """
    if isinstance(item, PodGroup):
        yield replace(item, spec=PodGroupSpec(), unreadable=why)
    if isinstance(item, Queue):
        yield replace(item, spec=QueueSpec(), unreadable=why)
    if isinstance(known, Pod) and known.spec.node_name and _is_same(known, item):
        yield known


def _is_same(one: KubeObject, other: KubeObject) -> bool:
    return one.metadata.uid == other.metadata.uid
