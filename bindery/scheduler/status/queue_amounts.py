"""Amounts in the status of queues, computed only for queues with changes.

Used by `queues.py` after each cycle. All amounts include the queues below, and come from the
columns of the cycle.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bindery.api import quantity
from bindery.api.gpus import MODEL_PREFIX
from bindery.api.names import GPU_RESOURCE
from bindery.kube.objects.queues import GangCounts, QueueStatus
from bindery.scheduler.fairness.division import Amounts
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.holdings import runs_or_waits
from bindery.scheduler.model.queues import rolled_up
from bindery.scheduler.model.resources import PODS
from bindery.scheduler.model.state import PlanState

_RECOUNT_EVERY = 60
"""Number of calls after which all gangs are counted again.

Gangs are counted when the amounts of a queue change, and two changes may cancel out."""


class QueueAmounts:
    """The amounts of all queues of `state`."""

    def __init__(self, state: PlanState) -> None:
        self._state = state
        self._asked = 0
        self._version = -1
        self._chains: tuple[tuple[int, ...], ...] = ()
        self._own: IntColumns = np.zeros((0, 0), dtype=np.int64)
        """[2 x resource, queue]: allocated, then pending amounts of each queue itself."""
        self._gangs: IntColumns = np.zeros((2, 0), dtype=np.int64)
        """[0, queue]: running gangs of the queue itself; [1, queue]: waiting ones."""
        self._columns: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._statuses: list[QueueStatus] = []

    def by_row(self, fair: Amounts, kept: IntColumns) -> Sequence[QueueStatus]:
        """Return the status of each queue without conditions, by row.

        A queue without changes gets the same object as before.
        `fair`, `kept`: [resource, queue], fair shares and kept room of the last cycle; newer
        resources and queues have 0.
        """
        queues, count = self._state.queues, len(self._state.axis)
        is_new = queues.version != self._version
        own = np.concatenate([queues.allocated, queues.pending])
        if is_new:
            self._version = queues.version
            self._chains = queues.chains()
            self._gangs = np.zeros((2, len(queues.entries)), dtype=np.int64)
        is_due = self._asked % _RECOUNT_EVERY == 0
        self._asked += 1
        self._recount(_all(own) if is_new or is_due else _changed(own, self._own))
        self._own = own
        sums = rolled_up(np.concatenate([own, self._gangs]), self._chains)
        allocated, pending, gangs = sums[:count], sums[count : 2 * count], sums[2 * count :]
        deserved = np.zeros_like(allocated)
        # The status has whole units; rounded down, siblings are never above their parent.
        deserved[: fair.shape[0], : fair.shape[1]] = np.floor(fair)
        waiting = np.zeros_like(allocated)
        waiting[: kept.shape[0], : kept.shape[1]] = kept
        amounts = [allocated, deserved, allocated + pending, pending, waiting]
        columns = np.concatenate([*amounts, gangs])
        changed = _all(columns) if is_new else _changed(columns, self._columns)
        self._columns = columns
        self._statuses = self._statuses[: len(self._chains)]
        self._statuses += [QueueStatus()] * (len(self._chains) - len(self._statuses))
        for row in changed.tolist():
            self._statuses[row] = self._status(row)
        return self._statuses

    def _recount(self, rows: NDArray[np.intp]) -> None:
        """Count the gangs of the queues at `rows` again."""
        wanted = set(rows.tolist())
        if not wanted:
            return
        self._gangs[:, rows] = 0
        row_of = self._state.queues.rows
        for job in self._state.jobs.values():
            row = row_of.get(job.queue)
            if row in wanted:
                self._gangs[:, row] += runs_or_waits(job)

    def _status(self, row: int) -> QueueStatus:
        count = len(self._state.axis)
        amounts = self._columns[: 5 * count, row].reshape(5, count)
        indices = self._listed(row, amounts)
        allocated, deserved, requested, pending = (self._texts(indices, own) for own in amounts[:4])
        kept = self._texts(np.flatnonzero(amounts[4]).tolist(), amounts[4])
        running, waiting = self._columns[5 * count :, row].tolist()
        return QueueStatus(
            allocated=allocated,
            fair_share=deserved,
            requested=requested,
            pending=pending,
            kept=kept,
            gangs=GangCounts(running=running, pending=waiting),
        )

    def _listed(self, row: int, amounts: IntColumns) -> list[int]:
        """Return the resources in the queue's status: those with a rule or a non-zero amount.

        GPUs of one model are listed only if the queue has a rule for the model.
        """
        ruled, names = self._state.queues.ruled(row), self._state.axis.names
        used = np.flatnonzero(amounts.any(axis=0)).tolist()
        found = {i for i in used if names[i] != PODS and not names[i].startswith(MODEL_PREFIX)}
        return sorted(found.union(ruled), key=names.__getitem__)

    def _texts(self, indices: Iterable[int], amounts: NDArray[np.int64]) -> dict[str, str]:
        names = self._state.axis.names
        return {
            "gpu" if names[i] == GPU_RESOURCE else names[i]: quantity.canonical(
                int(amounts[i]), names[i]
            )
            for i in indices
        }


def _all(columns: IntColumns) -> NDArray[np.intp]:
    return np.arange(columns.shape[1])


def _changed(new: IntColumns, old: IntColumns) -> NDArray[np.intp]:
    """Return the queues with different columns; all if the number of resources or queues grew."""
    if new.shape != old.shape:
        return _all(new)
    return np.flatnonzero((new != old).any(axis=0))
