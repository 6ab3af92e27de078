"""The ledger of topology spread constraints: the counts of all constraints of a session.

The counts of a shape are made when it is first planned; from then on they follow every operation on
a pod that one of its constraints selects.
"""

from collections.abc import Iterator

import numpy as np

from bindery.kube.objects.taints import tolerates
from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import NO_ROW, TaskStatus
from bindery.scheduler.model.label_domains import NO_DOMAIN
from bindery.scheduler.model.labels import node_affinity_mask
from bindery.scheduler.model.nodes import taints
from bindery.scheduler.model.pod_catalog import PodCatalog, places
from bindery.scheduler.model.pod_rules import PodSet, Spread
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.plugins.topologyspread.counts import SpreadCounts
from bindery.scheduler.plugins.topologyspread.rules import SpreadRules
from bindery.scheduler.plugins.view import SessionView

_Counted = tuple[SpreadRules, SpreadCounts]


class SpreadLedger:
    """The constraints of the shapes that were planned in this session."""

    name = "topologyspread"

    def __init__(self, catalog: PodCatalog, session: SessionView, state: PlanState) -> None:
        self._catalog, self._session, self._state = catalog, session, state
        self._topology = catalog.topology(state.nodes)
        self._anchored: dict[tuple[str, str], list[_Counted]] = {}
        """Label key and value -> constraints that select only pods with one of these labels."""
        self._loose: list[_Counted] = []
        """The other constraints."""
        self._of_shape: dict[Shape, list[_Counted]] = {}
        """Shape -> the constraints that select its pods."""
        self._rules: dict[Shape, SpreadRules] = {}
        self._exists: BoolColumn | None = None

    # -- the ledger ------------------------------------------------------------------------------

    def apply(self, operation: Operation) -> None:
        """Count a planned or evicted pod; refuse a node in a domain with too many."""
        shape = operation.task.shape
        if shape.unruled is None:
            return
        is_eviction = operation.kind is OperationKind.EVICT
        rules = None if is_eviction else self.rules(shape)
        if rules is not None and not rules.is_open(operation.row):
            raise LedgerRefusalError("its topology spread constraints keep it away")
        self._count(shape, operation.row, -1 if is_eviction else 1)

    def revert(self, operation: Operation) -> None:
        """Undo the counts of `operation`."""
        shape = operation.task.shape
        if shape.unruled is not None:
            is_eviction = operation.kind is OperationKind.EVICT
            self._count(shape, operation.row, 1 if is_eviction else -1)

    def rules(self, shape: Shape) -> SpreadRules | None:
        """Return the rules for pods of `shape`; None if there are none."""
        if not shape.rules.spread:
            return None
        rules = self._rules.get(shape)
        if rules is None:
            rules = self._rules[shape] = self._made_rules(shape)
        return rules

    # -- inside ----------------------------------------------------------------------------------

    def _count(self, shape: Shape, row: int, number: int) -> None:
        for rules, counts in self._selecting(shape):
            rules.add(counts, row, number)

    def _selecting(self, shape: Shape) -> list[_Counted]:
        found = self._of_shape.get(shape)
        if found is None:
            candidates = list(self._loose)
            for label in shape.labels.items():
                candidates += self._anchored.get(label, ())
            found = self._of_shape[shape] = [
                (rules, counts)
                for rules, counts in candidates
                if counts.spread.pods.includes(shape.namespace, shape.labels, {})
            ]
        return found

    def _made_rules(self, shape: Shape) -> SpreadRules:
        counts = [
            self._made_counts(spread, counted)
            for is_hard in (True, False)
            for spread, counted in self._counted_nodes(shape, is_hard=is_hard)
        ]
        rules = SpreadRules(shape, counts, self._session.passing(shape))
        for each in counts:
            # As in kube-scheduler, a selector that selects everything counts nothing.
            if not each.spread.pods.selector.is_empty:
                for index in self._indexes(each.spread.pods):
                    index.append((rules, each))
        self._of_shape.clear()  # its pods may be selected by the new constraints
        return rules

    def _indexes(self, pods: PodSet) -> Iterator[list[_Counted]]:
        anchor = pods.selector.anchor
        if anchor is None:
            yield self._loose
        else:
            for value in anchor.values:
                yield self._anchored.setdefault((anchor.key, value), [])

    def _made_counts(self, spread: Spread, counted: BoolColumn) -> SpreadCounts:
        counts = SpreadCounts(spread, self._topology.domains(spread.topology_key), counted)
        if spread.pods.selector.is_empty:
            return counts
        tasks = self._state.tasks
        for uid in self._catalog.in_set(spread.pods):
            task = tasks.get(uid)
            if task is None or task.status is TaskStatus.STUCK:  # it is being deleted too
                continue
            for row, node_name, held, leaving, promised in places(task):
                at = row if row != NO_ROW else self._state.nodes.rows.get(node_name, NO_ROW)
                if at != NO_ROW:
                    counts.add(at, held - leaving + promised)
        return counts

    def _counted_nodes(self, shape: Shape, *, is_hard: bool) -> Iterator[tuple[Spread, BoolColumn]]:
        """Yield the constraints of one kind, each with a mask of the nodes that count for it.

        A node without a label of one of them counts for none. Only nodes of this pool count.
        """
        spreads = [spread for spread in shape.rules.spread if spread.is_hard is is_hard]
        if self._exists is None:
            self._exists = self._state.nodes.exists
        common = self._exists.copy()
        for spread in spreads:
            common &= self._topology.domains(spread.topology_key).of_row != NO_DOMAIN
        for spread in spreads:
            counted = common.copy()
            if spread.honors_affinity:
                counted &= node_affinity_mask(
                    self._session.labels, shape.node_selector, shape.node_affinity
                )
            if spread.honors_taints:
                counted &= self._tolerated(shape)
            yield spread, counted

    def _tolerated(self, shape: Shape) -> BoolColumn:
        """Return a mask of the nodes without taints that keep pods of `shape` away."""
        nodes = self._state.nodes.nodes
        tolerated = (
            node is None or all(tolerates(shape.tolerations, taint) for taint in taints(node))
            for node in nodes
        )
        return np.fromiter(tolerated, np.bool_, len(nodes))
