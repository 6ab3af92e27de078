"""The cluster with which a scenario begins, as a snapshot and as objects."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import (
    KubeObject,
    Namespace,
    Node,
    OwnerReference,
    Pod,
    PodGroup,
    PriorityClass,
    Queue,
)
from bindery.kube.watches.store import Change
from bindery.scenario.cluster import ScenarioCluster
from bindery.scenario.format import Scenario

Item = TypeVar("Item", bound=KubeObject)

_OWN_KINDS = (Pod, Node, PodGroup, Queue, CommittedStatement, PriorityClass, Namespace)


def snapshot_of(scenario: Scenario) -> ClusterSnapshot:
    """Return the cluster with which `scenario` begins."""
    items = objects_of(scenario)
    return ClusterSnapshot(
        pods=_of(Pod, items),
        nodes=_of(Node, items),
        groups=_of(PodGroup, items),
        queues=_of(Queue, items),
        requests=_of(CommittedStatement, items),
        priority_classes=_of(PriorityClass, items),
        namespaces=_of(Namespace, items),
        further=tuple(item for item in items if not isinstance(item, _OWN_KINDS)),
    )


def objects_of(scenario: Scenario) -> list[KubeObject]:
    """Return all objects with which `scenario` begins; pods that come back have a controller."""
    changes: list[Change[KubeObject]] = []
    cluster = ScenarioCluster(scenario, changes.append)
    cluster.populate()
    lasting = {record.who.uid for record in cluster.pods.values() if record.who.recreate}
    return [
        _controlled(change.object)
        if isinstance(change.object, Pod) and change.object.metadata.uid in lasting
        else change.object
        for change in changes
    ]


def _controlled(pod: Pod) -> Pod:
    job = pod.metadata.annotations.get(POD_GROUP_ANNOTATION, "")
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=job, controller=True)
    meta = msgspec.structs.replace(pod.metadata, owner_references=[owner])
    return msgspec.structs.replace(pod, metadata=meta)


def _of(kind: type[Item], items: Iterable[KubeObject]) -> tuple[Item, ...]:
    return tuple(item for item in items if isinstance(item, kind))
