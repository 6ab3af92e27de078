"""The cluster with which a scenario begins, as a snapshot and as objects."""

from collections.abc import Iterable
from typing import TypeVar

from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.budgets import DisruptionBudget
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import (
    KubeObject,
    Namespace,
    Node,
    Pod,
    PriorityClass,
)
from bindery.kube.objects.workloads import WorkloadJob
from bindery.kube.watches.store import Change
from bindery.scenario.cluster import ScenarioCluster
from bindery.scenario.format import Scenario

Item = TypeVar("Item", bound=KubeObject)

_OWN_KINDS = (
    Pod,
    Node,
    PodGroup,
    Queue,
    CommittedStatement,
    PriorityClass,
    Namespace,
    DisruptionBudget,
    WorkloadJob,
)


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
        budgets=_of(DisruptionBudget, items),
        workload_jobs=_of(WorkloadJob, items),
        further=tuple(item for item in items if not isinstance(item, _OWN_KINDS)),
    )


def objects_of(scenario: Scenario) -> list[KubeObject]:
    """Return all objects with which `scenario` begins."""
    changes: list[Change[KubeObject]] = []
    ScenarioCluster(scenario, changes.append).populate()
    return [change.object for change in changes]


def _of(kind: type[Item], items: Iterable[KubeObject]) -> tuple[Item, ...]:
    return tuple(item for item in items if isinstance(item, kind))
