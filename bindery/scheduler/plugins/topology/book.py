"""The trees over the nodes of a scheduler, kept up to date per event.

Events only note what has changed; `tree` applies it to the arrays before it returns one. Rows are
those of the scheduler's node table, which also knows which nodes belong to its pool.
"""

from collections.abc import Mapping

from bindery.kube.objects.topology import HyperNode, Topology
from bindery.kube.objects.watched import KubeObject, Node
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.model.constraints import TreeKey
from bindery.scheduler.model.hypernodes import HyperNodeTree
from bindery.scheduler.model.jobs import NO_ROW
from bindery.scheduler.model.trees import LabelTree, Tree
from bindery.scheduler.model.views import NodesView

_MOST_RAW_TREES = 256
"""How many trees of raw labels are kept: PodGroups name them, and may name any label."""


class TreeBook:
    """The trees by their keys. Those of labels are built when they are first asked for."""

    def __init__(self) -> None:
        self._topologies: dict[str, Topology] = {}
        self._rows: dict[str, int] = {}
        """Node name -> the row under which the trees know it."""
        self._names: dict[int, str] = {}
        """The inverse of `_rows`."""
        self._changed: set[str] = set()
        """Nodes that have changed since the trees were last brought up to date."""
        self._trees: dict[tuple[str, ...], LabelTree] = {}
        """Labels -> the tree of these levels."""
        self.hyper_nodes = HyperNodeTree()

    def observe(self, change: Change[KubeObject]) -> None:
        """Note a change of a node, Topology or HyperNode."""
        item, gone = change.object, change.type is EventType.DELETED
        name = item.metadata.name
        if isinstance(item, Node):
            old = change.previous
            if gone or not isinstance(old, Node) or old.metadata.labels != item.metadata.labels:
                self._changed.add(name)
        elif isinstance(item, Topology):
            if gone:
                self._topologies.pop(name, None)
            else:
                self._topologies[name] = item
        elif isinstance(item, HyperNode):
            if gone:
                self.hyper_nodes.remove(name)
            else:
                self.hyper_nodes.put(item)

    def levels(self, key: TreeKey) -> tuple[str, ...] | None:
        """Return the labels of the tree `key`, widest first; None if its Topology is not known."""
        if not key.topology:
            return key.labels
        topology = self._topologies.get(key.topology)
        if topology is None:
            return None
        return tuple(dict.fromkeys(level.node_label for level in topology.spec.levels))

    def tree(self, nodes: NodesView, key: TreeKey) -> Tree | None:
        """Return the tree `key` over the nodes of today; None if its Topology is not known."""
        self._catch_up(nodes)
        if key.is_of_hyper_nodes:
            self.hyper_nodes.resolve()
            return self.hyper_nodes
        labels = self.levels(key)
        if labels is None:
            return None
        tree = self._trees.get(labels)
        if tree is None:
            if len(self._trees) >= _MOST_RAW_TREES:
                self._trees.clear()
            tree = self._trees[labels] = LabelTree(labels)
            for row in self._rows.values():
                tree.put(row, _labels(nodes, row))
        return tree

    def _catch_up(self, nodes: NodesView) -> None:
        """Apply the changes of nodes to all trees."""
        # Rows are used again, so all that have been left are emptied first.
        for name in self._changed:
            row = self._rows.get(name, NO_ROW)
            if row != NO_ROW and nodes.rows.get(name, NO_ROW) != row:
                del self._rows[name]
                if self._names.get(row) == name:
                    del self._names[row]
                    self._set(row, "", None)
        for name in self._changed:
            row = nodes.rows.get(name, NO_ROW)
            if row != NO_ROW:
                self._rows[name], self._names[row] = row, name
                self._set(row, name, _labels(nodes, row))
        self._changed.clear()

    def _set(self, row: int, name: str, labels: Mapping[str, str] | None) -> None:
        for tree in self._trees.values():
            tree.put(row, labels)
        if labels is None:
            self.hyper_nodes.remove_node(row)
        else:
            self.hyper_nodes.put_node(row, name, labels)


def _labels(nodes: NodesView, row: int) -> Mapping[str, str] | None:
    node = nodes.nodes[row]
    return None if node is None else node.metadata.labels
