"""What Queue objects should say about themselves, and whether they say it already. Pure.

Called by the loop after a cycle; `writer.py` writes it. Amounts are those of the queue and all
below it, worked out from the very columns that the cycle planned with.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from bindery.api import quantity
from bindery.api.names import GPU_RESOURCE, NODE_POOL_LABEL
from bindery.api.queue import READY, WARNING
from bindery.kube.objects import Condition, GangCounts, Meta, Queue, QueueStatus
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.fairness.division import Amounts
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.queues import QueueTable
from bindery.scheduler.model.resources import MODEL_PREFIX, PODS
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.queues.findings import Finding, Verdict, verdicts
from bindery.scheduler.times import timestamp

_MESSAGE_LENGTH = 1024


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
    _verdicts: dict[str, Verdict] = field(default_factory=dict)
    _version: int = -1
    """Of the queue table, when `_verdicts` were reached."""

    @property
    def has_news(self) -> bool:
        """Whether a queue has changed since `writes` was asked."""
        return self.cluster.state.queues.version != self._version

    def writes(self, fair: Amounts, now: float) -> Iterator[QueueWrite]:
        """Yield the objects that should say something else, by name.

        `fair`: [resource, queue], what each queue deserved in the last cycle. `now`: seconds since
        the epoch.
        """
        state = self.cluster.state
        if self.has_news:
            self._version, self._verdicts = state.queues.version, verdicts(state.queues)
        amounts = amounts_by_row(state, fair)
        for name, queue in sorted(self.cluster.queues.items()):
            row = state.queues.rows[name]
            conditions = _conditions(queue, self._verdicts[name], now)
            is_ours = queue.metadata.labels.get(NODE_POOL_LABEL, "") == self.node_pool
            wanted = queue.status
            if is_ours and row < fair.shape[1]:
                wanted = amounts(row)
            wanted = replace(wanted, conditions=conditions)
            if wanted != queue.status:
                is_urgent = conditions != (queue.status.conditions or [])
                yield QueueWrite(queue.metadata, queue.status, wanted, is_urgent)


def amounts_by_row(state: PlanState, fair: Amounts) -> Callable[[int], QueueStatus]:
    """Return a function of a queue's row to its status, without conditions.

    `fair`: as for `QueueStatuses.writes`; resources that are new since then count as none.
    """
    queues = state.queues
    chains = [queues.chain(row) for row in range(len(queues.entries))]
    allocated, pending = (_rolled_up(own, chains) for own in (queues.allocated, queues.pending))
    deserved = np.zeros_like(allocated)
    deserved[: fair.shape[0], : fair.shape[1]] = np.floor(fair)
    columns = (allocated, deserved, allocated + pending, pending)
    running, waiting = _gangs(state, chains)

    def status(row: int) -> QueueStatus:
        indices = _shown(queues, row, columns)
        allocated, deserved, requested, pending = (
            {_name(queues, i): _text(queues, i, column[i, row]) for i in indices}
            for column in columns
        )
        return QueueStatus(
            allocated=allocated,
            fair_share=deserved,
            requested=requested,
            pending=pending,
            gangs=GangCounts(running=running[row], pending=waiting[row]),
        )

    return status


def _rolled_up(own: IntColumns, chains: Sequence[tuple[int, ...]]) -> IntColumns:
    sums = np.zeros_like(own)
    for row, chain in enumerate(chains):
        sums[:, list(chain)] += own[:, [row]]
    return sums


def _gangs(state: PlanState, chains: Sequence[tuple[int, ...]]) -> tuple[list[int], list[int]]:
    """Return how many gangs run and wait in each queue and all below it."""
    running, waiting = [0] * len(chains), [0] * len(chains)
    for job in state.jobs.values():
        if job.is_satisfied:
            counts, is_counted = running, any(it.status.is_active for it in job.tasks.values())
        else:
            counts, is_counted = waiting, bool(job.pending)
        row = state.queues.rows.get(job.queue)
        if job.exists and is_counted and row is not None:
            for at in chains[row]:
                counts[at] += 1
    return running, waiting


def _shown(queues: QueueTable, row: int, columns: Sequence[IntColumns]) -> list[int]:
    """Return which resources a queue speaks of: those that it has rules for, or anything of.

    GPUs of a model are spoken of where the queue has rules for the model.
    """
    ruled = queues.ruled(row)
    used = np.logical_or.reduce([column[:, row] != 0 for column in columns])
    return [
        index
        for index, name in sorted(enumerate(queues.axis.names), key=lambda item: item[1])
        if index in ruled or (used[index] and name != PODS and not name.startswith(MODEL_PREFIX))
    ]


def _name(queues: QueueTable, index: int) -> str:
    name = queues.axis.names[index]
    return "gpu" if name == GPU_RESOURCE else name


def _text(queues: QueueTable, index: int, amount: np.int64) -> str:
    return quantity.canonical(int(amount), queues.axis.names[index])


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
    message = finding.message[:_MESSAGE_LENGTH]
    return Condition(type=kind, status=status, reason=finding.reason, message=message)


def _since(new: Condition, said: Sequence[Condition], now: float) -> Condition:
    """Return `new` with the time of its last turn: unchanged as long as its status is."""
    for old in said:
        if (old.type, old.status) == (new.type, new.status):
            return replace(new, last_transition_time=old.last_transition_time)
    return replace(new, last_transition_time=timestamp(now))
