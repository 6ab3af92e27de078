"""Computes the status of Queue objects that must be written. Pure.

Called by `queue_writer.py` after a cycle. `queue_findings.py` computes faults and warnings,
`queue_amounts.py` the amounts. This module compares them with the objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from bindery.api.names import NODE_POOL_LABEL
from bindery.api.shown import shown_message
from bindery.api.times import timestamp
from bindery.kube.objects.queues import READY, WARNING, Queue, QueueStatus
from bindery.kube.objects.watched import Condition, Meta
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.planning.reports import CycleReport
from bindery.scheduler.status.queue_amounts import QueueAmounts
from bindery.scheduler.status.queue_findings import QueueFinding, Verdict, verdicts


@dataclass(frozen=True, slots=True)
class QueueWrite:
    """A Queue object whose status must change."""

    meta: Meta
    present: QueueStatus
    """Its present status."""
    wanted: QueueStatus
    """Its new status."""
    is_urgent: bool
    """Whether its conditions change; such writes are not delayed."""


@dataclass
class QueueStatuses:
    """Computes the status of the queues of `cluster`, with amounts for those of `node_pool`.

    Each pool's scheduler counts other pods, so only the scheduler of the pool in the queue's label
    writes its amounts. Conditions follow from the Queue objects alone: all schedulers write the
    same.
    """

    cluster: Cluster
    node_pool: str
    _verdicts: dict[str, Verdict] = field(default_factory=dict, init=False)
    _version: int = field(default=-1, init=False)
    """Version of the queue table for `_verdicts`."""
    _settled: dict[str, tuple[Queue, QueueStatus]] = field(default_factory=dict, init=False)
    """Queue name -> an object and amounts that agree, to skip the comparison."""

    def __post_init__(self) -> None:
        self._amounts = QueueAmounts(self.cluster.state)

    @property
    def has_news(self) -> bool:
        """Whether a queue has changed since the last call of `writes`."""
        return self.cluster.state.queues.version != self._version

    def writes(self, report: CycleReport, now: float) -> list[QueueWrite]:
        """Return the needed writes after the cycle of `report`, sorted by name."""
        table = self.cluster.state.queues
        if self.has_news:
            self._version, self._verdicts = table.version, verdicts(table)
            self._settled.clear()
        fair = report.fair
        by_row = self._amounts.by_row(fair, report.kept)
        found = []
        for name, queue in self.cluster.queues.items():
            row = table.rows[name]
            is_ours = queue.metadata.labels.get(NODE_POOL_LABEL, "") == self.node_pool
            # A queue newer than the cycle has no fair share yet: its amounts stay as they are.
            amounts = by_row[row] if is_ours and row < fair.shape[1] else queue.status
            settled_queue, settled_amounts = self._settled.get(name, (None, None))
            if settled_queue is queue and settled_amounts is amounts:
                continue
            conditions = _conditions(queue, self._verdicts[name], now)
            wanted = replace(amounts, conditions=conditions)
            if wanted == queue.status:
                self._settled[name] = queue, amounts
            else:
                is_urgent = conditions != (queue.status.conditions or [])
                found.append(QueueWrite(queue.metadata, queue.status, wanted, is_urgent))
        return sorted(found, key=lambda write: write.meta.name)


# ---- conditions -----------------------------------------------------------------------------


def _conditions(queue: Queue, verdict: Verdict, now: float) -> list[Condition]:
    """Return the complete list of conditions of `queue`."""
    present = queue.status.conditions or []
    fault = verdict.fault
    ready = fault or QueueFinding("Valid", "")
    found = [_condition(READY, "True" if fault is None else "False", ready)]
    if verdict.warnings:
        text = "; ".join(warning.message for warning in verdict.warnings)
        found.append(_condition(WARNING, "True", QueueFinding(verdict.warnings[0].reason, text)))
    others = [condition for condition in present if condition.type not in (READY, WARNING)]
    return [*others, *(_since(condition, present, now) for condition in found)]


def _condition(kind: str, status: str, finding: QueueFinding) -> Condition:
    message = shown_message(finding.message)
    return Condition(type=kind, status=status, reason=finding.reason, message=message)


def _since(new: Condition, present: Sequence[Condition], now: float) -> Condition:
    """Return `new` with its transition time: the old time if the status is the same."""
    for old in present:
        if (old.type, old.status) == (new.type, new.status):
            return replace(new, last_transition_time=old.last_transition_time)
    return replace(new, last_transition_time=timestamp(now))
