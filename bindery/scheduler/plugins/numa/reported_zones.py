"""The zones of nodes by their reports and by later changes of pods, before any plan.

    observation.py     keeps reports, nodes and pods, from events
    inclusion.py       decides which pods of a node its last report includes
    reconciliation.py  computes the free amounts of a node from both
    table.py           has the free amounts of all nodes in arrays; this module writes them

Only changed nodes are reconciled, so that cached predictions of all other nodes stay valid.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.watched import Meta
from bindery.nodecore.prediction import plain
from bindery.nodecore.prediction.zones import NodeZones
from bindery.scheduler.model.jobs import NO_ROW, Task, Uid
from bindery.scheduler.model.problems import ObjectProblem
from bindery.scheduler.model.views import NodesView
from bindery.scheduler.plugins.numa.amounts import HeldZones
from bindery.scheduler.plugins.numa.asks import Ask, Asks
from bindery.scheduler.plugins.numa.inclusion import NodeHistory, elsewhere, renewed
from bindery.scheduler.plugins.numa.observation import Handed, Observation
from bindery.scheduler.plugins.numa.reconciliation import held_by, reconcile
from bindery.scheduler.plugins.numa.reports import ReportError, ZoneReport, read
from bindery.scheduler.plugins.numa.table import NO_SLOT, ZoneTable

INVALID_REPORT: Final = "InvalidNodeResourceTopology"
"""The reason of the event at a node whose report cannot be used."""

_MOST_AFTERS: Final = 1 << 16


class ReportedZones:
    """Writes the zones of changed nodes into `table` before each session."""

    def __init__(self) -> None:
        self.observation = Observation()
        self.table = ZoneTable()
        self.asks = Asks()
        self.problems: list[ObjectProblem] = []
        """Reports that cannot be used, for events; each once."""
        self._reported: dict[str, str] = {}
        """Node name -> the last problem of its report."""
        self._histories: dict[str, NodeHistory] = {}
        """Node name -> its pods and reports."""
        self._leaving: dict[str, frozenset[str]] = {}
        """Node name -> the pods that count as leaving."""
        self._afters: dict[tuple[Any, ...], NodeZones] = {}
        """Pod and zones of a node -> its zones with the pod."""
        self._slots_of_rows: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._elsewhere = 0
        self._rows_version: tuple[int, int, int] = (-1, -1, -1)

    @property
    def has_zones(self) -> bool:
        """Whether there is any report."""
        return bool(self.observation.reports)

    def read_reports(self, *, in_session: bool = False) -> bool:
        """Read the changed reports; return whether a node has other zones than before.

        `in_session`: a node that does not exist now will not come with the same list.
        """
        version, observed = self.table.version, self.observation
        for name in sorted(observed.unread):
            if in_session or name in observed.nodes or name not in observed.reports:
                observed.unread.discard(name)
                self._take_over(name, self._read(name))
        return self.table.version != version

    def slots_of_rows(self, nodes: NodesView) -> NDArray[np.intp]:
        """Return node row -> slot; `NO_SLOT` for a node without zones. Do not write to it."""
        version = nodes.version, self.table.version, len(nodes.nodes)
        if version != self._rows_version:
            found = np.full(len(nodes.nodes), NO_SLOT, dtype=np.intp)
            for name, slot in self.table.slots.items():
                row = nodes.rows.get(name, NO_ROW)
                if row != NO_ROW:
                    found[row] = slot
            self._slots_of_rows, self._rows_version = found, version
        return self._slots_of_rows

    def settle(self, tasks: Mapping[Uid, Task], handed: Iterable[Handed]) -> None:
        """Write the nodes that have changed since the last session into the table."""
        observed = self.observation
        observed.put_handed(handed, tasks, self.asks)
        for name, leaving in self._leaving.items():
            # An eviction may have been refused, which no event of the pod shows.
            if leaving != observed.pods(name, tasks).leaving:
                observed.mark(name)
        for name in observed.marked:
            slot = self.table.slot(name)
            if slot == NO_SLOT:
                continue
            known, pods = self._histories[name], observed.pods(name, tasks)
            admit = partial(self._after, self.table.kinds[slot])
            node = reconcile(known, pods, self.table.axis, self.asks.of_pod, admit)
            self._histories[name] = node.history
            self._elsewhere += len(elsewhere(known, node.history))
            self._leaving[name] = pods.leaving
            self.table.settle(slot, node.now, node.later, node.releases)
        self._leaving = {name: pods for name, pods in self._leaving.items() if pods}
        observed.marked.clear()
        self.table.trim()

    def take_elsewhere(self) -> int:
        """Return the number of pods that got other zones than predicted, since the last call."""
        found, self._elsewhere = self._elsewhere, 0
        return found

    def held(self, uid: str, slot: int) -> HeldZones | None:
        """Return what the pod `uid` holds of the zones of its node; None if it is not known."""
        name = self.table.names[slot]
        coming = self.observation.coming(name, uid)
        record = coming.record if coming is not None else None
        return held_by(self._histories[name], uid, record, self.table.axis)

    def zone_ids(self, slot: int) -> tuple[int, ...]:
        """Return the number of the NUMA node of each zone."""
        return self._histories[self.table.names[slot]].report.ids

    def _read(self, name: str) -> ZoneReport | None:
        """Return the report of the node `name`; None if there is none that can be used."""
        node, stored = self.observation.nodes.get(name), self.observation.reports.get(name)
        if stored is not None and node is None:
            kind = NODE_RESOURCE_TOPOLOGIES
            text = f"there is no node {name}"
            self._report(stored.metadata, kind.api_version, kind.kind, text)
            return None
        try:
            found = read(stored, node.status.capacity or {}) if stored and node else None
        except ReportError as error:
            assert node is not None, "it was read"
            text = f"its NodeResourceTopology is not used: {error}"
            self._report(node.metadata, NODES.api_version, NODES.kind, text)
            return None
        self._reported.pop(name, None)
        return found

    def _report(self, meta: Meta, api_version: str, kind: str, text: str) -> None:
        if self._reported.get(meta.name) != text:
            self._reported[meta.name] = text
            self.problems.append(ObjectProblem(api_version, kind, meta, INVALID_REPORT, text))

    def _take_over(self, name: str, report: ZoneReport | None) -> None:
        """Give the node `name` the zones of `report`; None for a node without zones."""
        if report is None:
            self._histories.pop(name, None)
            self._leaving.pop(name, None)
            self.table.remove(name)
            return
        self.table.put(name, report.zones)
        known = self._histories.get(name)
        self._histories[name] = renewed(known, report) if known else NodeHistory(report)
        self.observation.mark(name)

    def _after(self, kind: int, node: NodeZones, ask: Ask) -> NodeZones:
        """Return the zones after the kubelet has admitted a pod. `kind`: that of the node."""
        free = tuple(tuple(counts.values()) for counts in node.free)
        key = ask, kind, free, node.split, node.groups
        after = self._afters.get(key)
        if after is None:
            predicted = plain.predict(node, ask.request)
            after = predicted.after
            if not predicted.admit:  # it runs, so the report is behind
                after = plain.take(node, ask.request, 0)
            if len(self._afters) >= _MOST_AFTERS:
                self._afters.clear()
            self._afters[key] = after
        return after
