"""Node selectors and node affinity, evaluated over all nodes at once.

A requirement is a mask over node rows. A term is the AND of its requirements, a selector the OR of
its terms, as in `v1.NodeSelector`. A session has one set of label columns.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from bindery.kube.objects.podspec import NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.model.views import NodesView

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class LabelColumns:
    """Node rows by label and value, indexed on first use.

    Users choose the labels in selectors: a label of no node takes neither memory nor a loop.
    """

    def __init__(self, nodes: NodesView) -> None:
        self._nodes = nodes.nodes
        self._keys: frozenset[str] | None = None
        """All labels of nodes."""
        self._rows: dict[str, dict[str, Rows]] = {}
        """Label -> value -> the rows with it."""

    def equals(self, key: str, value: str) -> BoolColumn:
        """Return a new mask of the nodes with the label `key` and `value`."""
        rows = self._index(key).get(value)
        return self._mask(() if rows is None else (rows,))

    def has(self, key: str) -> BoolColumn:
        """Return a new mask of the nodes with the label `key`."""
        return self._mask(self._index(key).values())

    def compares(self, key: str, operator: str, bound: str) -> BoolColumn:
        """Return a mask of nodes with an integer label `key` above (Gt) or below (Lt) `bound`."""
        limit = _integer(bound)
        values = ((_integer(text), rows) for text, rows in self._index(key).items())
        if limit is None:
            return self._mask(())
        if operator == "Gt":
            return self._mask(rows for v, rows in values if v is not None and v > limit)
        return self._mask(rows for v, rows in values if v is not None and v < limit)

    def every(self) -> BoolColumn:
        """Return a mask of all rows."""
        return np.ones(len(self._nodes), dtype=np.bool_)

    def named(self, names: Collection[str]) -> BoolColumn:
        """Return a mask of the nodes with one of `names`."""
        mask = self._mask(())
        if names:
            wanted = frozenset(names)
            for row, node in enumerate(self._nodes):
                mask[row] = node is not None and node.metadata.name in wanted
        return mask

    def _index(self, key: str) -> Mapping[str, Rows]:
        """Return value -> rows of the label `key`."""
        if self._keys is None:
            labels = (node.metadata.labels for node in self._nodes if node is not None)
            self._keys = frozenset().union(*labels)
        if key not in self._keys:
            return {}
        index = self._rows.get(key)
        if index is None:
            found = defaultdict[str, list[int]](list)
            for row, node in enumerate(self._nodes):
                value = node.metadata.labels.get(key) if node is not None else None
                if value is not None:
                    found[value].append(row)
            index = {value: np.array(rows, dtype=np.intp) for value, rows in found.items()}
            self._rows[key] = index
        return index

    def _mask(self, parts: Iterable[Rows]) -> BoolColumn:
        mask = np.zeros(len(self._nodes), dtype=np.bool_)
        for rows in parts:
            mask[rows] = True
        return mask


def node_affinity_mask(
    columns: LabelColumns, selector: Mapping[str, str], affinity: NodeAffinity | None
) -> BoolColumn:
    """Return a mask of the nodes that a node selector and required node affinity select."""
    mask = columns.every()
    for key, value in selector.items():
        mask &= columns.equals(key, value)
    required = affinity.required if affinity is not None else None
    if required is not None:
        # Terms are alternatives, and no term selects no node, as in Kubernetes.
        terms = [term_mask(columns, term) for term in required.node_selector_terms]
        mask &= np.logical_or.reduce(terms) if terms else columns.named(())
    return mask


def term_mask(columns: LabelColumns, term: NodeSelectorTerm) -> BoolColumn:
    """Return a mask of the nodes that `term` selects; a term without requirements selects none."""
    masks = [_expression_mask(columns, item) for item in term.match_expressions or ()]
    masks += [_field_mask(columns, item) for item in term.match_fields or ()]
    if not masks:
        return columns.named(())
    return np.asarray(np.logical_and.reduce(masks))


def _expression_mask(columns: LabelColumns, item: NodeSelectorRequirement) -> BoolColumn:
    values = item.values or []
    match item.operator:
        case "In":
            return _any_of(columns, item.key, values)
        case "NotIn":
            return ~_any_of(columns, item.key, values)
        case "Exists":
            return columns.has(item.key)
        case "DoesNotExist":
            return ~columns.has(item.key)
        case "Gt" | "Lt" if len(values) == 1:
            return columns.compares(item.key, item.operator, values[0])
        case _:
            return columns.named(())  # as in Kubernetes, an invalid requirement matches no node


def _field_mask(columns: LabelColumns, item: NodeSelectorRequirement) -> BoolColumn:
    """Evaluate a field requirement; Kubernetes allows only `metadata.name` with In and NotIn."""
    if item.key != "metadata.name" or item.operator not in ("In", "NotIn"):
        return columns.named(())
    mask = columns.named(item.values or [])
    return mask if item.operator == "In" else ~mask


def _any_of(columns: LabelColumns, key: str, values: Sequence[str]) -> BoolColumn:
    masks = [columns.equals(key, value) for value in values]
    return np.logical_or.reduce(masks) if masks else columns.named(())


def _integer(text: str | None) -> int | None:
    """Return `text` as Go's `strconv.ParseInt` reads it; None if it is no integer."""
    # Python's int() also accepts underscores, which label values may have.
    return int(text) if text is not None and _INTEGER.fullmatch(text) else None
