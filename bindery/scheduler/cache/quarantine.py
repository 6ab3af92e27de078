"""Objects in quarantine: those that raised an unexpected error during intake.

Owned by intake.py. An object in quarantine is left out of planning; all other objects are planned
as usual.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from bindery.kube.bindrequests import BindRequest
from bindery.kube.objects import KubeObject, Pod, PodGroup, PodGroupSpec, Queue, QueueSpec
from bindery.kube.store import key_of

_Identity = tuple[object, ...]


class Quarantine:
    """The objects in quarantine, with the error of each."""

    def __init__(self) -> None:
        self._why: dict[_Identity, tuple[KubeObject, str]] = {}

    def __len__(self) -> int:
        return len(self._why)

    def put(self, item: KubeObject, why: str) -> None:
        """Add `item`; `why` is the message for its condition."""
        self._why[_identity(item)] = item, why

    def drop(self, item: KubeObject) -> None:
        """Remove `item`, after a successful intake or its deletion."""
        self._why.pop(_identity(item), None)

    def pods(self) -> Iterator[tuple[Pod, str]]:
        """Yield the pods in quarantine with their messages."""
        for item, why in self._why.values():
            if isinstance(item, Pod):
                yield item, why


def substitutes(item: KubeObject, known: KubeObject | None, why: str) -> Iterator[KubeObject]:
    """Yield objects to take in instead of `item`, in order of preference.

    A PodGroup or Queue is replaced by an invalid one, so that its gangs show why they wait. A pod
    that is on a node keeps its last good state, `known`: nothing else may use its room.
    """
    if isinstance(item, PodGroup):
        yield replace(item, spec=PodGroupSpec(), unreadable=why)
    if isinstance(item, Queue):
        yield replace(item, spec=QueueSpec(), unreadable=why)
    if isinstance(known, Pod) and known.spec.node_name and _is_same(known, item):
        yield known


def _identity(item: KubeObject) -> _Identity:
    # The Statements of a request have its name in common.
    statement = item.key if isinstance(item, BindRequest) else None
    return type(item), key_of(item.metadata), statement


def _is_same(one: KubeObject, other: KubeObject) -> bool:
    return one.metadata.uid == other.metadata.uid
