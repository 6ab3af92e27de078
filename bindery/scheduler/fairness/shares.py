"""The fair share of each queue in one session, and its holdings relative to it.

Made once a session from the queue table. The queue ledger has the holdings at any moment.
"""

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from bindery.api import quantity
from bindery.api.gpus import MODEL_PREFIX
from bindery.api.names import GPU_RESOURCE
from bindery.scheduler.fairness.division import Amounts, Demand, QueueTree, fair_shares
from bindery.scheduler.ledgers.queues import QueueLedger
from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.queuechains import ChainFlaw
from bindery.scheduler.model.resources import PODS, ResourceAxis
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.usage.formula import Moment
from bindery.scheduler.usage.source import PastUsage

NOTHING = 1000.0
"""Factor on the holdings of a queue without a share (KAI-Scheduler's value)."""


class Shares:
    """Quota, weight, limit and fair share of every queue; arrays are [resource, queue]."""

    def __init__(
        self,
        state: PlanState,
        ledger: QueueLedger,
        total: NDArray[np.int64],
        past: PastUsage,
        now: float,
        *,
        hopeless: IntColumns | None = None,
    ) -> None:
        """`total`: the amounts to divide [resource].

        `hopeless`: pending amounts that no share is for, [resource, queue] of each queue itself.
        """
        queues, axis = state.queues, state.axis
        self._ledger = ledger
        self._axis, self._entries = axis, list(queues.entries)
        self.quota, self.weight, self.limit = queues.rules()
        self.total: Amounts = total.astype(np.float64)
        """[resource]: the amounts to divide."""
        pending = queues.pending if hopeless is None else queues.pending - hopeless
        self.pending = ledger.rolled_up(pending).astype(np.float64)
        self.request: Amounts = ledger.allocated + self.pending
        """Held and pending amounts, with all queues below."""
        _ask_for_models(axis, self.request, self.pending)
        # The number of pods is not scarce, so it is not divided.
        self.counted = np.array([name != PODS for name in axis.names])
        """[resource]: whether it is divided."""
        self.request[~self.counted] = 0.0
        demand = Demand(
            quota=self.quota,
            weight=self.weight,
            limit=self.limit,
            request=self.request,
            usage=past.account(self._moment(now)),
        )
        unit = np.array([float(quantity.scale(name)) for name in axis.names])
        unit[axis.index("cpu")] = 1.0
        self.fair: Amounts = fair_shares(
            _tree(state, ledger), demand, self.total, unit, past.k_value
        )
        self.allocatable: Amounts = np.where(
            np.isinf(self.quota),
            self.limit,
            np.minimum(self.limit, np.maximum(self.quota, self.fair)),
        )
        """The most that a queue may keep if other queues want their share."""
        self._common = [axis.index(name) for name in ("cpu", "memory", GPU_RESOURCE)]
        """Axis positions of the resources for `is_over`."""
        # A GPU with a model is on the axis twice: as GPU, and as GPU of its model.
        of_model = np.array([name.startswith(MODEL_PREFIX) for name in axis.names])
        self._of_model = of_model
        self._requested: dict[tuple[int, ...], BoolColumn] = {}
        """The answers of `requested`, which is asked several times for each victim."""
        self._whole: Amounts = np.where(
            np.isinf(self.allocatable) & ~of_model[:, None], self.total[:, None], self.allocatable
        )
        """The denominator of a queue's part: the total where there is no limit. A GPU model without
        rules for the queue does not count, because it counts as GPU already."""
        divided = self.counted & (self.total > 0)
        most = self.total[divided, None]
        self._sizes = (np.minimum(self._whole[divided], most) / most).sum(axis=0)

    def _moment(self, now: float) -> Moment:
        return Moment(
            now=now,
            queues=[entry.name for entry in self._entries],
            resources=self._axis.names,
            held=self._ledger.allocated.astype(np.float64),
            capacity=self.total,
            gone=frozenset(entry.name for entry in self._entries if not entry.exists),
        )

    def by_queue(self) -> dict[str, dict[str, float]]:
        """Return the fair shares by queue and resource: devices, cores, bytes."""
        return {
            entry.name: self._axis.in_wholes(self.fair[:, row])
            for row, entry in enumerate(self._entries)
        }

    def requested(self, resources: Collection[int]) -> BoolColumn:
        """Return the divided resources that a request for `resources` concerns: mask [resource].

        `resources`: axis positions. A request for GPUs concerns the GPUs of every model. Do not
        write to the mask.
        """
        key = tuple(resources)
        mask = self._requested.get(key)
        if mask is None:
            mask = np.zeros(len(self.counted), dtype=np.bool_)
            mask[list(resources)] = True
            if self._axis.index(GPU_RESOURCE) in resources:
                mask |= self._of_model
            mask = self._requested[key] = np.asarray(mask & self.counted)
        return mask

    def dominant(self, row: int, added: Mapping[int, int] | None = None) -> float:
        """Return the largest part, over all resources, of its allocatable share that a queue holds.

        If the share is unlimited, the part of the total counts (KAI-Scheduler's rule). `added`:
        change of the holdings (position on the resource axis -> units).
        """
        held = self._ledger.allocated[:, row].astype(np.float64)
        for index, amount in (added or {}).items():
            held[index] += amount
        return self.part(row, held)

    def part(self, row: int, held: NDArray[np.float64]) -> float:
        """Return the largest part, over all resources, that `held` is of the queue's share."""
        share = self._whole[:, row]
        ratio = np.divide(held, share, out=held * NOTHING, where=share > 0)
        return float(np.max(ratio[self.counted], initial=0.0))

    def size(self, row: int) -> float:
        """Return the size of the allocatable share: the sum of its parts of the totals."""
        return float(self._sizes[row])

    def is_undeserving(self, row: int, added: Mapping[int, int]) -> bool:
        """Return whether the queue, with `added`, holds a resource without a share of it."""
        held = self._ledger.allocated[:, row].copy()
        for index, amount in added.items():
            held[index] += amount
        return bool(((held > 0) & (self.allocatable[:, row] <= 0) & self.counted).any())

    def is_over(self, row: int) -> bool:
        """Return whether the queue exceeds its fair shares of cores, of memory and of GPUs.

        KAI-Scheduler's rule: a queue within any of these shares is served in its turn.
        """
        held, fair = self._ledger.allocated[self._common, row], self.fair[self._common, row]
        return bool((held > fair).all())

    def fits_quota(self, row: int, added: Mapping[int, int]) -> bool:
        """Return whether the queue stays within its quota with `added` (axis position -> units)."""
        held, quota = self._ledger.allocated[:, row].copy(), self.quota[:, row]
        for index, amount in added.items():
            held[index] += amount
        return not ((held > quota) & self.counted).any()


def _ask_for_models(axis: ResourceAxis, request: Amounts, pending: Amounts) -> None:
    """Add pending GPUs to the request of every model: a pod without a model takes any of them."""
    for index, name in enumerate(axis.names):
        if name.startswith(MODEL_PREFIX):
            request[index] += pending[axis.index(GPU_RESOURCE)]


def _tree(state: PlanState, ledger: QueueLedger) -> QueueTree:
    entries = state.queues.entries
    parent = [chain[1] if len(chain) > 1 else -1 for chain in ledger.chains]
    for row in range(len(entries)):
        if state.queues.flaw(row) is ChainFlaw.CYCLE:  # its jobs wait; the division needs a tree
            parent[row] = -1
    by_age = sorted(range(len(entries)), key=lambda row: (entries[row].created, entries[row].name))
    seniority = np.empty(len(entries), dtype=np.int64)
    seniority[by_age] = np.arange(len(entries))
    return QueueTree(
        parent=np.array(parent, dtype=np.intp),
        priority=np.array([entry.priority for entry in entries], dtype=np.int64),
        seniority=seniority,
    )
