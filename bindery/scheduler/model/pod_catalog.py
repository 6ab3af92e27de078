"""The labels of all pods, nodes and namespaces, for plugins with rules about other pods.

Such a plugin passes it every change. Pods of all schedulers count.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bindery.api.names import NAMESPACE_NAME_LABEL
from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.resources import NAMESPACES, NODES, PODS, Resource
from bindery.kube.objects.watched import KubeObject, Node, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.model.jobs import NO_ROW, Task, TaskStatus, Uid
from bindery.scheduler.model.label_domains import LabelDomains, NodeLabels
from bindery.scheduler.model.label_index import LabelIndex
from bindery.scheduler.model.pod_rules import PodSet
from bindery.scheduler.model.views import NodesView

WATCHED: Final[tuple[Resource[Any], ...]] = (PODS, NODES, NAMESPACES)


class NamespaceLabels(dict[str, Mapping[str, str]]):
    """The labels of namespaces; a namespace that is not known has its name as a label."""

    def __missing__(self, name: str) -> Mapping[str, str]:
        return {NAMESPACE_NAME_LABEL: name}


class PodCatalog:
    """The labels of pods, nodes and namespaces."""

    def __init__(self) -> None:
        self.pods = LabelIndex()
        self.nodes = NodeLabels()
        self.namespaces = NamespaceLabels()
        self._topology: LabelDomains | None = None

    def observe(self, change: Change[KubeObject]) -> None:
        """Process a change of a pod, node or namespace."""
        item, gone = change.object, change.type is EventType.DELETED
        if isinstance(item, Pod):
            uid = Uid(item.metadata.uid)
            if gone or item.status.phase in ENDED_POD_PHASES:
                self.pods.remove(uid)
            else:
                self.pods.put(uid, item.metadata.namespace, item.metadata.labels)
        elif isinstance(item, Node):
            if gone:
                self.nodes.remove(item.metadata.name)
            else:
                self.nodes.put(item)
        elif gone:
            self.namespaces.pop(item.metadata.name, None)
        else:
            own = {NAMESPACE_NAME_LABEL: item.metadata.name}
            self.namespaces[item.metadata.name] = {**item.metadata.labels, **own}

    def in_set(self, pods: PodSet) -> Iterator[Uid]:
        """Yield the pods of a set."""
        return self.pods.in_set(pods, self.namespaces)

    def topology(self, nodes: NodesView) -> LabelDomains:
        """Return the domains of the present nodes."""
        if self._topology is None or not self._topology.is_current(nodes):
            self._topology = LabelDomains(nodes, self.nodes)
        return self._topology


def places(task: Task) -> Iterator[tuple[int, str, int, int, int]]:
    """Yield the places of a pod by the plan: node row, node name, and whether it is one of the
    pods that are held, leaving and promised there, each 0 or 1.
    """
    if task.status is TaskStatus.PIPELINED:
        yield task.row, "", 0, 0, 1
        if task.node_name:  # it moves: it still holds its old place
            yield NO_ROW, task.node_name, 1, 1, 0
    elif task.status.holds_room:
        yield task.row, task.node_name, 1, int(task.status is TaskStatus.RELEASING), 0
