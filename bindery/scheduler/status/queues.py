"""What Queue objects should say about themselves, and whether they say it already. Pure.

Asked by `queue_writer.py` after a cycle. `queue_findings.py` finds faults, `queue_amounts.py` what
they hold; this module compares that with what the objects say.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from bindery.api.names import NODE_POOL_LABEL
from bindery.api.queue import READY, WARNING
from bindery.api.shown import shown
from bindery.api.times import timestamp
from bindery.kube.objects import Condition, Meta, Queue, QueueStatus
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.fairness.division import Amounts
from bindery.scheduler.status.queue_amounts import QueueAmounts
from bindery.scheduler.status.queue_findings import Finding, Verdict, verdicts


@dataclass(frozen=True, slots=True)
class QueueWrite:
    """A Queue object that should say something else."""

    meta: Meta
    said: QueueStatus
    """What it says."""
    wanted: QueueStatus
    """What it should say."""
    is_urgent: bool
    """Whether its conditions change: that is not held back."""


@dataclass
class QueueStatuses:
    """What the queues of `cluster` should say. `node_pool`: whose queues' amounts are written.

    Other pools' schedulers count other pods: amounts of a queue have one writer, the scheduler of
    the pool that its label names. Conditions follow from the Queue objects alone, so everybody who
    writes them writes the same.
    """

    cluster: Cluster
    node_pool: str
    _verdicts: dict[str, Verdict] = field(default_factory=dict, init=False)
    _version: int = field(default=-1, init=False)
    """Of the queue table, when `_verdicts` were reached."""
    _settled: dict[str, tuple[Queue, QueueStatus]] = field(default_factory=dict, init=False)
    """By name: the object and the amounts that were found to agree."""

    def __post_init__(self) -> None:
        self._amounts = QueueAmounts(self.cluster.state)

    @property
    def has_news(self) -> bool:
        """Whether a queue has changed since `writes` was asked."""
        return self.cluster.state.queues.version != self._version

    def writes(self, fair: Amounts, now: float) -> list[QueueWrite]:
        """Return the objects that should say something else, by name.

        `fair`: [resource, queue], what each queue deserved in the last cycle. `now`: seconds since
        the epoch.
        """
        table = self.cluster.state.queues
        if self.has_news:
            self._version, self._verdicts = table.version, verdicts(table)
            self._settled.clear()
        by_row = self._amounts.by_row(fair)
        found = []
        for name, queue in self.cluster.queues.items():
            row = table.rows[name]
            is_ours = queue.metadata.labels.get(NODE_POOL_LABEL, "") == self.node_pool
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
    """Return the whole list of conditions that `queue` should have."""
    said = queue.status.conditions or []
    fault = verdict.fault
    ready = fault or Finding("Valid", "")
    found = [_condition(READY, "True" if fault is None else "False", ready)]
    if verdict.warnings:
        text = "; ".join(warning.message for warning in verdict.warnings)
        found.append(_condition(WARNING, "True", Finding(verdict.warnings[0].reason, text)))
    others = [condition for condition in said if condition.type not in (READY, WARNING)]
    return [*others, *(_since(condition, said, now) for condition in found)]


def _condition(kind: str, status: str, finding: Finding) -> Condition:
    message = shown(finding.message)
    return Condition(type=kind, status=status, reason=finding.reason, message=message)


def _since(new: Condition, said: Sequence[Condition], now: float) -> Condition:
    """Return `new` with the time of its last turn: unchanged as long as its status is."""
    for old in said:
        if (old.type, old.status) == (new.type, new.status):
            return replace(new, last_transition_time=old.last_transition_time)
    return replace(new, last_transition_time=timestamp(now))
