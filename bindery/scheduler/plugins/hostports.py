"""hostports: no two pods on a node have the same host port.

Ports conflict as in kube-scheduler's plugin NodePorts (Kubernetes 1.36): the same number and
protocol, and the same address or one that stands for all. Sidecars count, other init containers do
not. Pods of all schedulers count.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.ledgers.base import (
    Ledger,
    LedgerRefusalError,
    Operation,
    OperationKind,
)
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.host_ports import HostPort, host_ports
from bindery.scheduler.model.jobs import NO_ROW, Uid
from bindery.scheduler.model.pod_catalog import places
from bindery.scheduler.model.row_rules import ClosedRows, RowRules
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.view import SessionView

Ports = frozenset[HostPort]

_NOW, _LATER = 0, 1
_CHANGES = {
    OperationKind.ALLOCATE: (1, 1),
    OperationKind.PIPELINE: (1, 1),
    OperationKind.EVICT: (0, -1),
}
"""Operation -> its change of the pods on the node, now and after all releasing pods have gone."""


class PortLedger:
    """How many pods on each node conflict with the ports of pods that are planned."""

    name = "hostports"

    def __init__(self, ports: dict[Uid, Ports], state: PlanState) -> None:
        """`ports`: the host ports of all pods that have some."""
        self._ports, self._state = ports, state
        self._conflicts: dict[Ports, NDArray[np.int64]] = {}
        """Wanted ports -> conflicting pods: [now or later, node row]."""

    def apply(self, operation: Operation) -> None:
        """Count a planned or evicted pod; refuse a node on which its ports are in use."""
        wanted = operation.task.shape.host_ports
        if not wanted:
            return
        if operation.kind is not OperationKind.EVICT:
            now, later = self.conflicts(wanted)[:, operation.row]
            if later if operation.kind is OperationKind.PIPELINE else now:
                raise LedgerRefusalError("its host ports are in use", fits_later=not later)
        self._count(operation, 1)

    def revert(self, operation: Operation) -> None:
        """Undo the counts of `operation`."""
        if operation.task.shape.host_ports:
            self._count(operation, -1)

    def conflicts(self, wanted: Ports) -> NDArray[np.int64]:
        """Return the number of pods with one of the `wanted` ports: [now or later, node row]."""
        counts = self._conflicts.get(wanted)
        if counts is None:
            counts = self._conflicts[wanted] = self._counted(wanted)
        return counts

    def _counted(self, wanted: Ports) -> NDArray[np.int64]:
        rows = self._state.nodes.rows
        counts = np.zeros((2, len(self._state.nodes.nodes)), dtype=np.int64)
        for uid, ports in self._ports.items():
            task = self._state.tasks.get(uid)
            if task is None or not _conflict(wanted, ports):
                continue
            for row, node_name, held, leaving, promised in places(task):
                at = row if row != NO_ROW else rows.get(node_name, NO_ROW)
                if at != NO_ROW:
                    counts[:, at] += (held + promised, held - leaving + promised)
        return counts

    def _count(self, operation: Operation, times: int) -> None:
        now, later = _CHANGES[operation.kind]
        for wanted, counts in self._conflicts.items():
            if _conflict(wanted, operation.task.shape.host_ports):
                counts[:, operation.row] += (times * now, times * later)


class HostPorts:
    """Keeps the host ports of pods between sessions, and makes a ledger for each session."""

    name = "hostports"

    def __init__(self) -> None:
        self._ports: dict[Uid, Ports] = {}

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return pods."""
        return (PODS,)

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change of a pod; return False, because this plugin has no `node_failures`."""
        if isinstance(change.object, Pod):
            pod, uid = change.object, Uid(change.object.metadata.uid)
            has_gone = change.type is EventType.DELETED or pod.status.phase in ENDED_POD_PHASES
            ports = frozenset() if has_gone else host_ports(pod.spec)
            if ports:
                self._ports[uid] = ports
            else:
                self._ports.pop(uid, None)
        return False

    def supported_needs(self) -> Collection[Need]:
        """Return the need for host ports."""
        return (Need.HOST_PORTS,)

    def ledger(self, session: SessionView, state: PlanState) -> Ledger:  # noqa: ARG002
        """Return the ledger for a session."""
        return PortLedger(self._ports, state)

    def nominated_rules(
        self, session: SessionView, shape: Shape, nominated: Mapping[int, Sequence[Uid]]
    ) -> RowRules | None:
        """Return the rules that close nodes for whose nominated pods a port of `shape` is kept."""
        wanted = shape.host_ports
        closed = [
            row
            for row, pods in nominated.items()
            if any(_conflict(wanted, self._ports.get(uid, frozenset())) for uid in pods)
        ]
        if not closed:
            return None
        text = "keep its host ports for nominated pods"
        return ClosedRows(len(session.state.nodes.nodes), closed, text)

    def keeps_room_for(self, shape: Shape) -> bool:
        """Return whether pods of `shape` have host ports."""
        return bool(shape.host_ports)

    def has_room(self, session: SessionView, shape: Shape, rows: Rows, later: bool) -> BoolColumn:
        """Return for each of `rows` whether the ports of `shape` are free."""
        conflicts = session.ledger(PortLedger).conflicts(shape.host_ports)
        return np.asarray(conflicts[_LATER if later else _NOW, rows] == 0)

    def no_room_text(self, shape: Shape) -> str:  # noqa: ARG002
        """Return the text for nodes on which a port is in use."""
        return "have its host ports in use"


def _conflict(some: Ports, others: Ports) -> bool:
    return any(one.conflicts(other) for one in some for other in others)
