"""Domains: the nodes with one value of a node label, such as a zone.

Covers all nodes of the cluster, also nodes of other node pools, which have no row: a pod there
counts for the domain of its node.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bindery.kube.objects.watched import Node
from bindery.scheduler.model.jobs import NO_ROW
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.model.views import NodesView

NO_DOMAIN = -1
"""The domain of a node without the label."""


class NodeLabels:
    """The labels of all nodes, by name."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self.version = 0
        """Grows when labels change."""

    def put(self, node: Node) -> None:
        """Add or update a node."""
        if self._labels.get(node.metadata.name) != node.metadata.labels:
            self._labels[node.metadata.name] = node.metadata.labels
            self.version += 1

    def remove(self, name: str) -> None:
        """Remove a node."""
        if self._labels.pop(name, None) is not None:
            self.version += 1

    def get(self, name: str) -> Mapping[str, str]:
        """Return the labels of a node; empty if it is not known."""
        return self._labels.get(name, {})


class Domains:
    """The domains of one label key."""

    def __init__(self, key: str, nodes: NodesView) -> None:
        self.key = key
        self._ids: dict[str, int] = {}
        values = [None if n is None else n.metadata.labels.get(key) for n in nodes.nodes]
        ids = (NO_DOMAIN if value is None else self.id(value) for value in values)
        self.of_row: NDArray[np.intp] = np.fromiter(ids, np.intp, len(values))
        """Node row -> domain."""
        self._sorted_rows: Rows = np.argsort(self.of_row, kind="stable")
        self._starts = np.searchsorted(
            self.of_row[self._sorted_rows], np.arange(len(self._ids) + 1)
        )

    @property
    def count(self) -> int:
        """The number of domains so far."""
        return len(self._ids)

    def id(self, value: str) -> int:
        """Return the domain of a label value."""
        return self._ids.setdefault(value, len(self._ids))

    def rows(self, domain: int) -> Rows:
        """Return the rows of a domain; none if all its nodes are without a row."""
        if not 0 <= domain < len(self._starts) - 1:
            return self._sorted_rows[:0]
        return self._sorted_rows[self._starts[domain] : self._starts[domain + 1]]


class LabelDomains:
    """The domains of all label keys, for one state of the nodes."""

    def __init__(self, nodes: NodesView, labels: NodeLabels) -> None:
        self._nodes, self._labels = nodes, labels
        self._state = self._present(nodes)
        self._domains: dict[str, Domains] = {}

    def is_current(self, nodes: NodesView) -> bool:
        """Return whether `nodes` and labels are still those for which it was built."""
        return self._nodes is nodes and self._state == self._present(nodes)

    def domains(self, key: str) -> Domains:
        """Return the domains of `key`."""
        domains = self._domains.get(key)
        if domains is None:
            domains = self._domains[key] = Domains(key, self._nodes)
        return domains

    def domain(self, key: str, row: int, node_name: str) -> int:
        """Return the domain of the node at `row`, or of the node with this name without a row."""
        domains = self.domains(key)
        if row == NO_ROW:
            row = self._nodes.rows.get(node_name, NO_ROW)
        if row != NO_ROW:
            return int(domains.of_row[row])
        value = self._labels.get(node_name).get(key)
        return NO_DOMAIN if value is None else domains.id(value)

    def _present(self, nodes: NodesView) -> tuple[int, int, int]:
        return nodes.version, self._labels.version, len(nodes.nodes)
