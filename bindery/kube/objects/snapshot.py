"""What has been read of a cluster, as of about one moment.

Read by the commands, or taken from the beginning of a scenario. Pure data: nothing here asks a
server or imports the scheduler, which takes longer than a table may take.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from bindery.api.names import DEFAULT_QUEUE, QUEUE_LABEL
from bindery.api.states import Phase
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.budgets import DisruptionBudget
from bindery.kube.objects.membership import Claims
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.watched import KubeObject, Namespace, Node, Pod, PriorityClass
from bindery.kube.objects.workloads import WorkloadJob

FINISHED = frozenset({"Succeeded", "Failed"})
"""The phases of pods that have ended."""


@dataclass(frozen=True)
class ClusterSnapshot:
    """The objects of the cluster as of about one moment."""

    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    groups: tuple[PodGroup, ...] = ()
    queues: tuple[Queue, ...] = ()
    requests: tuple[CommittedStatement, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    """What evictions would meet; the scheduler itself does not watch them."""
    further: tuple[KubeObject, ...] = ()
    """What only the scheduler's plugins watch: volumes, device claims, quotas."""
    workload_jobs: tuple[WorkloadJob, ...] = ()
    """Where it matters what becomes of evicted pods."""

    def everything(self) -> tuple[KubeObject, ...]:
        """Return all objects, as the scheduler's cluster takes them."""
        return (
            *self.priority_classes,
            *self.namespaces,
            *self.queues,
            *self.nodes,
            *self.groups,
            *self.pods,
            *self.requests,
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
            for request in self.requests
            if not Phase(request.status.phase or Phase.PENDING).is_final
            for pod in request.spec.pods
        }

    def queue_of(self, pod: Pod) -> str:
        """Return the queue that `pod` is counted in."""
        group = self.claims.of(pod).group
        if not group:
            return pod.metadata.labels.get(QUEUE_LABEL) or self._queue_in(pod.metadata.namespace)
        return self._queue_by_group.get((pod.metadata.namespace, group), DEFAULT_QUEUE)

    def queue_of_group(self, group: PodGroup) -> str:
        """Return the queue of `group`: its own, else that of its namespace."""
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
