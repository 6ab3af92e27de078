"""Finds the node rows with access to a volume or a storage class.

The index is valid for one version of the node table. Local disks have many volumes with one node
each, so the usual requirement `key In [values]` is answered from an index, without a loop over
nodes.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bindery.kube.objects.podspec import NodeSelectorRequirement, NodeSelectorTerm
from bindery.kube.objects.selectors import LabelSelector
from bindery.kube.objects.storage import PersistentVolume, TopologyTerm
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.labels import LabelColumns, term_mask
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.model.views import NodesView

ZONE_LABELS: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_NEWER: Final = dict(zip(ZONE_LABELS[2:], ZONE_LABELS[:2], strict=True))


class NodeIndex:
    """Rows of nodes by their labels, as of one version of the node table."""

    def __init__(self, nodes: NodesView) -> None:
        self.version = nodes.version
        self._nodes = nodes.nodes
        self._columns = LabelColumns(nodes)
        self._rows: dict[str, dict[str, Rows]] = {}
        """Label -> value -> rows."""
        self._zoned: BoolColumn | None = None

    def all(self) -> BoolColumn:
        """Return a new mask with all rows."""
        return np.ones(len(self._nodes), dtype=np.bool_)

    def none(self) -> BoolColumn:
        """Return a new mask without rows."""
        return np.zeros(len(self._nodes), dtype=np.bool_)

    def reach(self, volume: PersistentVolume) -> Rows | None:
        """Return the rows allowed by the node affinity of `volume`; None for all."""
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return None
        found = [self._term(term) for term in affinity.required.node_selector_terms]
        # Terms are alternatives and may have rows in common.
        return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.intp)

    def zones(self, volume: PersistentVolume) -> BoolColumn | None:
        """Return a mask of the rows in the zone and region of the labels of `volume`; None for all.

        Nodes without any such label pass, as in kube-scheduler's `volumezone`.
        """
        wanted = [
            (key, volume.metadata.labels[key])
            for key in ZONE_LABELS
            if key in volume.metadata.labels
        ]
        if not wanted:
            return None
        mask = self.all()
        for key, text in wanted:
            values = text.split("__")  # the separator of Kubernetes for a volume in several zones
            inside = self._mask(self._any_of(key, values))
            # A volume may have the old label while its nodes have the new one.
            if key in _NEWER:
                inside |= self._mask(self._any_of(_NEWER[key], values))
            mask &= inside
        return mask | ~self._has_zone()

    def topologies(self, terms: Sequence[TopologyTerm]) -> BoolColumn:
        """Return a mask of the rows in one of `terms` (allowedTopologies); no term means all."""
        if not terms:
            return self.all()
        mask = self.none()
        for term in terms:
            inside = self.all()
            for item in term.match_label_expressions or ():
                inside &= self._mask(self._any_of(item.key, item.values))
            mask |= inside
        return mask

    def selected(self, selector: LabelSelector) -> BoolColumn:
        """Return a mask of the rows selected by `selector`."""
        mask = self.all()
        for key, value in (selector.match_labels or {}).items():
            mask &= self._mask(self._any_of(key, [value]))
        for item in selector.match_expressions or ():
            requirement = NodeSelectorRequirement(
                key=item.key, operator=item.operator, values=item.values
            )
            mask &= term_mask(self._columns, NodeSelectorTerm(match_expressions=[requirement]))
        return mask

    def _term(self, term: NodeSelectorTerm) -> Rows:
        items = term.match_expressions or ()
        if len(items) == 1 and items[0].operator == "In" and not term.match_fields:
            return self._any_of(items[0].key, items[0].values or ())
        return np.flatnonzero(term_mask(self._columns, term))

    def _any_of(self, key: str, values: Iterable[str]) -> Rows:
        rows = self._label(key)
        found = [rows[value] for value in dict.fromkeys(values) if value in rows]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.intp)

    def _label(self, key: str) -> dict[str, Rows]:
        rows = self._rows.get(key)
        if rows is None:
            lists: defaultdict[str, list[int]] = defaultdict(list)
            for row, node in enumerate(self._nodes):
                if node is not None and key in node.metadata.labels:
                    lists[node.metadata.labels[key]].append(row)
            rows = {value: np.array(each, dtype=np.intp) for value, each in lists.items()}
            self._rows[key] = rows
        return rows

    def _mask(self, rows: NDArray[np.intp]) -> BoolColumn:
        mask = self.none()
        mask[rows] = True
        return mask

    def _has_zone(self) -> BoolColumn:
        if self._zoned is None:
            masks = [self._columns.has(key) for key in ZONE_LABELS]
            self._zoned = np.asarray(np.logical_or.reduce(masks))
        return self._zoned
