"""The objects of a cluster as of about one moment.

Commands read a snapshot from the API server or from the start of a scenario. Pure data: this module
sends no request and does not import the scheduler, so that commands start quickly.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from bindery.api.names import DEFAULT_QUEUE, QUEUE_LABEL
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.budgets import DisruptionBudget
from bindery.kube.objects.membership import Claims
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.watched import KubeObject, Namespace, Node, Pod, PriorityClass
from bindery.kube.objects.workloads import WorkloadJob

FINISHED = frozenset({"Succeeded", "Failed"})
"""The phases of pods that have ended."""

_FIELDS: Final[Mapping[type[KubeObject], str]] = {
    Pod: "pods",
    Node: "nodes",
    PodGroup: "groups",
    Queue: "queues",
    CommittedStatement: "statements",
    PriorityClass: "priority_classes",
    Namespace: "namespaces",
    DisruptionBudget: "budgets",
    WorkloadJob: "workload_jobs",
}
"""The field of each kind; other kinds are in `further`."""


@dataclass(frozen=True)
class ClusterSnapshot:
    """The objects of the cluster as of about one moment."""

    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    groups: tuple[PodGroup, ...] = ()
    queues: tuple[Queue, ...] = ()
    statements: tuple[CommittedStatement, ...] = ()
    """The Statements in BindRequests."""
    priority_classes: tuple[PriorityClass, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    """The budgets that restrict evictions; the scheduler itself does not watch budgets."""
    further: tuple[KubeObject, ...] = ()
    """The objects that only plugins of the scheduler watch: volumes, device claims, quotas."""
    workload_jobs: tuple[WorkloadJob, ...] = ()
    """The Jobs that decide the fate of evicted pods."""

    @classmethod
    def of(cls, objects: Iterable[KubeObject]) -> "ClusterSnapshot":
        """Return the snapshot that has `objects`."""
        by_field: defaultdict[str, list[KubeObject]] = defaultdict(list)
        for item in objects:
            by_field[_FIELDS.get(type(item), "further")].append(item)
        fields: dict[str, Any] = {field: tuple(items) for field, items in by_field.items()}
        return cls(**fields)

    def everything(self) -> tuple[KubeObject, ...]:
        """Return all objects, in the order for the scheduler's cluster."""
        return (
            *self.priority_classes,
            *self.namespaces,
            *self.queues,
            *self.nodes,
            *self.groups,
            *self.pods,
            *self.statements,
            *self.further,
        )

    @cached_property
    def claims(self) -> Claims:
        """Which PodGroup each pod belongs to."""
        return Claims(self.groups)

    @cached_property
    def pods_by_group(self) -> dict[tuple[str, str], list[Pod]]:
        """The pods of each PodGroup, by its namespace and name."""
        found: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
        for pod in self.pods:
            group = self.claims.of(pod).group
            if group:
                found[pod.metadata.namespace, group].append(pod)
        return dict(found)

    @cached_property
    def requested_nodes(self) -> dict[str, str]:
        """Pod UID -> node, for the pods in a BindRequest that has not ended."""
        return {
            pod.pod_uid: pod.selected_node
            for statement in self.statements
            if not statement.is_final
            for pod in statement.spec.pods
        }

    def queue_of(self, pod: Pod) -> str:
        """Return the queue that `pod` is counted in."""
        group = self.claims.of(pod).group
        if not group:
            return pod.metadata.labels.get(QUEUE_LABEL) or self._queue_in(pod.metadata.namespace)
        return self._queue_by_group.get((pod.metadata.namespace, group), DEFAULT_QUEUE)

    def queue_of_group(self, group: PodGroup) -> str:
        """Return the queue of `group`: the queue in its spec, else the queue of its namespace."""
        return group.spec.queue or self._queue_in(group.metadata.namespace)

    def _queue_in(self, namespace: str) -> str:
        return self._queue_by_namespace.get(namespace) or DEFAULT_QUEUE

    @cached_property
    def _queue_by_namespace(self) -> dict[str, str]:
        return {
            each.metadata.name: each.metadata.labels.get(QUEUE_LABEL, "")
            for each in self.namespaces
        }

    @cached_property
    def _queue_by_group(self) -> dict[tuple[str, str], str]:
        return {
            (group.metadata.namespace, group.metadata.name): self.queue_of_group(group)
            for group in self.groups
        }


def is_bound(pod: Pod) -> bool:
    """Return whether `pod` has a node and has not ended."""
    return bool(pod.spec.node_name) and pod.status.phase not in FINISHED
