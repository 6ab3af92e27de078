"""The scheduler plugin numa: predicts what the topology manager of each node will decide.

It watches NodeResourceTopologies, which exporters write, and asks nodecore whether a node can align
a pod to its NUMA zones. Nodes that would refuse a pod get none, and nodes that give it few and near
zones are preferred. A ledger predicts the pods of a gang one after another. The prediction goes to
the binder, which records it on the pod. Nodes without a report, and pods that ask for nothing of
zones, are not affected.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bindery.api import numaplacement
from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES, NodeResourceTopology
from bindery.kube.objects.resources import NODES, PODS, Resource
from bindery.kube.objects.watched import KubeObject, Node, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.node_refusals import node_refusal
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import NodeFailure, Rows
from bindery.scheduler.plugins.findings import OTHER_ZONES, Findings, NodeAnswer
from bindery.scheduler.plugins.numa.ledger import NumaLedger
from bindery.scheduler.plugins.numa.predictor import Predictor
from bindery.scheduler.plugins.numa.reasons import Reasons
from bindery.scheduler.plugins.numa.reported_zones import ReportedZones
from bindery.scheduler.plugins.numa.table import NO_SLOT
from bindery.scheduler.plugins.view import SessionView

_ADMITTED = frozenset({"Running", "Succeeded"})


class Outcomes:
    """The answers of nodes about pods with predicted zones, since the last call of `take`.

    Each pod counts once, when its state changes while this process watches it.
    """

    def __init__(self) -> None:
        self._answers: list[NodeAnswer] = []

    def note(self, pod: Pod, previous: KubeObject | None, *, gone: bool) -> None:
        """Note a new state of a pod."""
        if gone or not isinstance(previous, Pod) or previous.status.phase == pod.status.phase:
            return
        if previous.metadata.uid != pod.metadata.uid or _is_decided(previous):
            return
        record = pod.metadata.annotations.get(NUMA_ZONES_ANNOTATION)
        if numaplacement.from_record(record, pod.metadata.uid) is None:
            return
        refusal = node_refusal(pod)
        if refusal is not None:
            self._answers.append(NodeAnswer(refusal.reason))
        elif pod.status.phase in _ADMITTED:
            self._answers.append(NodeAnswer(""))

    def take(self) -> tuple[NodeAnswer, ...]:
        """Return the answers since the last call."""
        taken = tuple(self._answers)
        self._answers.clear()
        return taken


def _is_decided(pod: Pod) -> bool:
    return pod.status.phase in _ADMITTED or pod.status.phase == "Failed"


_NO_ROOM: Final = "cannot align it to their NUMA zones"


class Numa:
    """Keeps pods off nodes that would refuse them, and near to their memory and devices."""

    name = numaplacement.PLUGIN

    def __init__(self) -> None:
        self._zones = ReportedZones()
        self._predictor = Predictor(self._zones.table)
        self._outcomes = Outcomes()
        self._reasons = Reasons(self._zones.table)
        self._last: NumaLedger | None = None

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return the kinds of reports, and of nodes and pods."""
        return (NODE_RESOURCE_TOPOLOGIES, NODES, PODS)

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change; return whether a node may have other zones than before."""
        item, gone = change.object, change.type is EventType.DELETED
        if isinstance(item, Pod):
            self._zones.observation.put_pod(item, gone=gone)
            self._outcomes.note(item, change.previous, gone=gone)
            return False
        if isinstance(item, Node):
            self._zones.observation.put_node(item, gone=gone)
        elif isinstance(item, NodeResourceTopology):
            self._zones.observation.put_report(item, gone=gone)
        return self._zones.read_reports()

    def take_findings(self) -> Findings:
        """Return what was found since the last call: unusable reports, and wrong predictions."""
        problems = tuple(self._zones.problems)
        self._zones.problems.clear()
        elsewhere = [NodeAnswer(OTHER_ZONES)] * self._zones.take_elsewhere()
        return Findings(problems, (*self._outcomes.take(), *elsewhere))

    def ledger(self, session: SessionView, state: PlanState) -> NumaLedger:
        """Return the ledger of zones for `session`."""
        zones = self._zones
        if self._last is not None:
            self._last.close()  # the plan of the last session is gone
        zones.read_reports(in_session=True)
        if zones.has_zones:
            zones.settle(state.tasks, session.handed_over(self.name))
        self._last = NumaLedger(zones, self._predictor, state.nodes)
        return self._last

    # -- nodes -------------------------------------------------------------------------------------

    def node_failures(self, session: SessionView, shape: Shape) -> Iterator[NodeFailure]:
        """Yield the nodes that would refuse pods of `shape` even if they were empty."""
        ask = self._zones.asks.of(shape) if self._zones.has_zones else None
        if ask is not None:
            slots = session.ledger(NumaLedger).slot_of_row
            hopeless = self._predictor.hopeless(ask)
            nodes = np.zeros(len(slots), dtype=np.bool_)
            known = slots != NO_SLOT
            nodes[known] = hopeless[slots[known]]
            reason = self._reasons.common(
                ask, np.flatnonzero(hopeless), self._predictor.empty_nodes()
            )
            text = "have too small NUMA zones"
            yield NodeFailure(f"{text} ({reason})" if reason else text, nodes)

    def keeps_room_for(self, shape: Shape) -> bool:
        """Return whether pods of `shape` ask for something of zones."""
        return self._zones.has_zones and self._zones.asks.of(shape) is not None

    def has_room(self, session: SessionView, shape: Shape, rows: Rows, later: bool) -> BoolColumn:
        """Return for each of `rows` whether the node would admit one more pod of `shape`."""
        ask = self._zones.asks.of(shape)
        slots = session.ledger(NumaLedger).slot_of_row[rows]
        if ask is None or not self._zones.table.slots:
            return np.ones(len(rows), dtype=np.bool_)
        found = self._predictor.vectors(ask)
        admitted = (found.later if later else found.now)[slots]
        if len(slots) == 1:  # the usual case, after a placement
            return admitted if slots[0] != NO_SLOT else np.ones(1, dtype=np.bool_)
        return np.asarray(admitted | (slots == NO_SLOT))

    def no_room_text(self, shape: Shape) -> str:
        """Return the text for the nodes that would refuse the pod, with their common reason."""
        ask = self._zones.asks.of(shape)
        if ask is None:
            return _NO_ROOM
        later = self._predictor.vectors(ask).later
        refused = np.flatnonzero(~later & ~self._predictor.hopeless(ask))
        reason = self._reasons.common(ask, refused, self._zones.table.later.arrays)
        return f"{_NO_ROOM} ({reason})" if reason else _NO_ROOM

    def explain_wait(self, session: SessionView, job: Job, task: Task, message: str) -> str | None:  # noqa: ARG002  # the protocol's
        """Return why some nodes cannot align `task`."""
        if not self.keeps_room_for(task.shape):
            return None
        ask = self._zones.asks.of(task.shape)
        assert ask is not None, "asked above"
        slots = session.ledger(NumaLedger).slot_of_row
        may_run = session.passing(task.shape)
        refused = ~self._predictor.vectors(ask).now
        hopeless = self._predictor.hopeless(ask)
        known = slots != NO_SLOT
        rows = np.flatnonzero(known)
        asked = refused[slots[rows]] & (may_run[rows] | hopeless[slots[rows]])
        return self._reasons.text(ask, slots[rows[asked]])

    def node_scores(
        self, session: SessionView, shape: Shape, rows: Rows
    ) -> NDArray[np.float64] | None:
        """Return 0 to 100: few zones, then aligned, then near; None if zones do not matter."""
        ask = self._zones.asks.of(shape) if self._zones.table.slots else None
        if ask is None:
            return None
        slots = session.ledger(NumaLedger).slot_of_row[rows]
        found = self._predictor.vectors(ask)
        if len(slots) == 1 and found.now[slots[0]] and slots[0] != NO_SLOT:
            return found.scores[slots]
        scores = np.where(found.now[slots], found.scores[slots], found.later_scores[slots])
        return np.where(slots == NO_SLOT, 0.0, scores)

    # -- binding -----------------------------------------------------------------------------------

    def bind_data(self, session: SessionView, task: Task, row: int) -> Mapping[str, Any] | None:  # noqa: ARG002  # the protocol's
        """Return the zones that `task` is expected to get; None for none."""
        planned = session.ledger(NumaLedger).planned(task.uid)
        if planned is None:
            return None
        ids = self._zones.zone_ids(planned.slot)
        data = self._predictor.data(planned.part, ids)
        return {**data, numaplacement.ORDER: planned.order} if data["zones"] else None

    def bind_effects(
        self,
        pod: Pod,
        node_name: str,  # noqa: ARG002  # the protocol's
        data: Mapping[str, Any],
    ) -> Iterable[KubeObject]:
        """Return `pod` with the record of the binder."""
        placement = numaplacement.from_data(data) if data else None
        if placement is None:
            return
        meta = pod.metadata
        annotations = {**meta.annotations, NUMA_ZONES_ANNOTATION: placement.record(meta.uid)}
        meta = msgspec.structs.replace(meta, annotations=annotations)
        yield msgspec.structs.replace(pod, metadata=meta)
