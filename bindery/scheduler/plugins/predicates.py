"""predicates: the hard filters by a pod's spec and a node's state.

Readiness, cordon, taints, node selector, required node affinity and declared features have the
meaning of kube-scheduler's plugins NodeUnschedulable, TaintToleration, NodeAffinity and
NodeDeclaredFeatures. Free room is checked by the node ledger, not by a plugin.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from bindery.kube.objects.taints import tolerates
from bindery.kube.objects.watched import Node, Taint
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.labels import term_mask
from bindery.scheduler.model.nodereading import declares, is_ready
from bindery.scheduler.model.nodes import taints
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import NodeFailure
from bindery.scheduler.model.views import NodesView
from bindery.scheduler.plugins.view import SessionView

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class Predicates:
    """Filters nodes by readiness, cordon, taints, selector, affinity, features, in this order."""

    name = "predicates"

    def __init__(self) -> None:
        self._states: _NodeStates | None = None

    def node_failures(self, session: SessionView, shape: Shape) -> Iterator[NodeFailure]:
        """Yield the reasons against nodes for pods of `shape`."""
        nodes = session.state.nodes.nodes
        states = self._of_nodes(session.state.nodes)
        yield NodeFailure("are not ready", states.not_ready)
        # As in Kubernetes, a cordon is a taint that a pod can tolerate.
        if not tolerates(shape.tolerations, _CORDON):
            yield NodeFailure("are cordoned", states.cordoned)
        yield from states.taint_failures(shape)
        for key, value in shape.node_selector.items():
            matches = session.labels.equals(key, value)
            yield NodeFailure(f"do not match node selector {key}={value}", ~matches)
        required = shape.node_affinity.required if shape.node_affinity else None
        if required is not None:
            # Terms are alternatives, and no term selects no node, as in Kubernetes.
            masks = [term_mask(session.labels, term) for term in required.node_selector_terms]
            matches = np.logical_or.reduce(masks) if masks else np.zeros(len(nodes), np.bool_)
            yield NodeFailure("do not match node affinity", ~matches)
        for feature in shape.required_features:
            lacking = _mask(nodes, partial(_lacks, feature))
            yield NodeFailure(f"do not declare feature {feature}", lacking)

    def _of_nodes(self, nodes: NodesView) -> "_NodeStates":
        if self._states is None or self._states.version != nodes.version:
            self._states = _NodeStates(nodes)
        return self._states


class _NodeStates:
    """What the filters read of all nodes, as of one version of the node table.

    All shapes share it: a tenant can create pods of thousands of shapes.
    """

    def __init__(self, nodes: NodesView) -> None:
        self.version = nodes.version
        self._count = len(nodes.nodes)
        self.not_ready = _mask(nodes.nodes, lambda node: not is_ready(node))
        self.cordoned = _mask(nodes.nodes, lambda node: node.spec.unschedulable)
        by_taints: defaultdict[tuple[Taint, ...], list[int]] = defaultdict(list)
        for row, node in enumerate(nodes.nodes):
            if node is not None and node.spec.taints:
                by_taints[taints(node)].append(row)
        self._by_taints = dict(by_taints)

    def taint_failures(self, shape: Shape) -> Iterator[NodeFailure]:
        """Yield the reasons against tainted nodes for pods of `shape`."""
        untolerated: defaultdict[str, list[int]] = defaultdict(list)
        for on_node, rows in self._by_taints.items():
            for taint in on_node:
                if not tolerates(shape.tolerations, taint):
                    value = f": {taint.value}" if taint.value else ""
                    untolerated[f"{taint.key}{value}"] += rows
                    break  # one reason per node, as in kube-scheduler
        for text, rows in sorted(untolerated.items()):
            mask = np.zeros(self._count, dtype=np.bool_)
            mask[rows] = True
            yield NodeFailure(f"had untolerated taint {{{text}}}", mask)


def _lacks(feature: str, node: Node) -> bool:
    return not declares(node, feature)


def _mask(nodes: Sequence[Node | None], test: Callable[[Node], bool]) -> BoolColumn:
    return np.fromiter((n is not None and test(n) for n in nodes), np.bool_, len(nodes))
