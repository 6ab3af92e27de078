"""Reports of zones, capacities of nodes, and pods on nodes, as events show them.

Nothing is computed here. Events only mark nodes, and the next session reconciles marked nodes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from bindery.api import numaplacement
from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.nodetopologies import NodeResourceTopology
from bindery.kube.objects.watched import Node, Pod
from bindery.scheduler.model.jobs import Task, TaskStatus, Uid
from bindery.scheduler.plugins.numa.asks import Asks
from bindery.scheduler.plugins.numa.reconciliation import ComingPod, ObservedPods

Handed = tuple[Uid, str, Mapping[str, Any]]
"""Pod UID, node name and data for the binder."""


class Observation:
    """The reports, nodes and pods, as they are now."""

    def __init__(self) -> None:
        self.reports: dict[str, NodeResourceTopology] = {}
        self.nodes: dict[str, Node] = {}
        self.unread: set[str] = set()
        """The nodes whose report must be read again."""
        self.marked: dict[str, None] = {}
        """The nodes to reconcile, in order."""
        self._pods: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        """Node name -> UID -> pod, for pods that have not ended."""
        self._places: dict[str, str] = {}
        """Pod UID -> node name."""
        self._coming: dict[str, dict[str, ComingPod]] = {}
        """Node name -> UID -> pod at the binder."""

    def put_report(self, report: NodeResourceTopology, *, gone: bool) -> None:
        """Note a new state of a report."""
        name = report.metadata.name
        if gone:
            self.reports.pop(name, None)
        else:
            self.reports[name] = report
        self.unread.add(name)

    def put_node(self, node: Node, *, gone: bool) -> None:
        """Note a new state of a node."""
        name = node.metadata.name
        known = self.nodes.pop(name, None)
        if not gone:
            self.nodes[name] = node
        # Status writes are frequent, and only the capacity is compared with the report.
        if gone or known is None or known.status.capacity != node.status.capacity:
            self.unread.add(name)

    def put_pod(self, pod: Pod, *, gone: bool) -> None:
        """Note a new state of a pod."""
        uid, name = pod.metadata.uid, pod.spec.node_name
        gone = gone or not name or pod.status.phase in ENDED_POD_PHASES
        known = self._places.get(uid)
        if known is not None and (gone or known != name):
            del self._places[uid]
            del self._pods[known][uid]
            self.mark(known)
        if not gone:
            self._places[uid] = name
            self._pods[name][uid] = pod
            self.mark(name)

    def put_handed(self, handed: Iterable[Handed], tasks: Mapping[Uid, Task], asks: Asks) -> None:
        """Note the pods that are at the binder now."""
        coming: defaultdict[str, dict[str, ComingPod]] = defaultdict(dict)
        for uid, name, data in handed:
            task = tasks.get(uid)
            # A pod that is bound has a record of its own.
            if task is None or task.pod_node or task.status.has_ended:
                continue
            placement = numaplacement.from_data(data)
            if placement is not None:
                coming[name][uid] = ComingPod(placement, asks.of(task.shape))
        for name in coming.keys() | self._coming.keys():
            if coming.get(name) != self._coming.get(name):
                self.mark(name)
        self._coming = dict(coming)

    def mark(self, name: str) -> None:
        """Let the node `name` be reconciled, if it has a report."""
        if name in self.reports:
            self.marked[name] = None

    def pods(self, name: str, tasks: Mapping[Uid, Task]) -> ObservedPods:
        """Return the pods of the node `name`."""
        bound, coming = self._pods.get(name, {}), self._coming.get(name, {})
        uids = (uid for uid in (*bound, *coming) if _is_releasing(tasks.get(Uid(uid))))
        return ObservedPods(bound, coming, frozenset(uids))

    def coming(self, name: str, uid: str) -> ComingPod | None:
        """Return a pod at the binder; None if it is not there."""
        return self._coming.get(name, {}).get(uid)


def _is_releasing(task: Task | None) -> bool:
    return task is not None and task.status is TaskStatus.RELEASING
