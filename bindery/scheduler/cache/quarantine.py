"""Quarantine of objects that raised an unexpected error during intake.

Owned by intake.py. An object in quarantine keeps what it holds and gets nothing; all other objects
are planned as usual.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.claims import ResourceClaim, held_claim
from bindery.kube.objects.podgroups import PodGroup, PodGroupSpec
from bindery.kube.objects.podspec import PodSpec
from bindery.kube.objects.queues import Queue, QueueSpec
from bindery.kube.objects.watched import KubeObject, Meta, Pod, PodStatus
from bindery.kube.watches.store import key_of

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

    An object keeps what it holds: its last good state is `known`. Without one, a pod on a node and
    a resource claim are left with what they hold. A PodGroup or Queue is replaced by an invalid
    one, so that its gangs show why they wait.
    """
    if isinstance(item, PodGroup):
        for group in (PodGroupSpec(queue=item.spec.queue), PodGroupSpec()):
            yield replace(item, spec=group, unreadable=why)
    elif isinstance(item, Queue):
        for queue in (QueueSpec(parent=item.spec.parent), QueueSpec()):
            yield replace(item, spec=queue, unreadable=why)
    elif isinstance(item, Pod):
        yield from _in_place_of_pod(item, known, why)
    else:
        if known is not None and _is_same(known, item):
            yield known
        if isinstance(item, ResourceClaim) and (held := held_claim(item, why)) is not None:
            yield held


def _in_place_of_pod(pod: Pod, known: KubeObject | None, why: str) -> Iterator[Pod]:
    if isinstance(known, Pod) and known.spec.node_name and _is_same(known, pod):
        yield known
    spec = pod.spec
    if not spec.node_name:
        return
    bare = PodSpec(
        node_name=spec.node_name,
        scheduler_name=spec.scheduler_name,
        priority=spec.priority,
        containers=spec.containers,
        init_containers=spec.init_containers,
        overhead=spec.overhead,
        resources=spec.resources,
    )
    meta = pod.metadata
    identity = Meta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        deletion_timestamp=meta.deletion_timestamp,
    )
    for metadata in (meta, identity):
        yield replace(
            pod,
            metadata=metadata,
            spec=bare,
            status=PodStatus(phase=pod.status.phase),
            unreadable=why,
        )


def _identity(item: KubeObject) -> _Identity:
    # The Statements of a request have its name in common.
    statement = item.key if isinstance(item, CommittedStatement) else None
    return type(item), key_of(item.metadata), statement


def _is_same(one: KubeObject, other: KubeObject) -> bool:
    return one.metadata.uid == other.metadata.uid
