"""The fair share of each queue in one session, and its holdings relative to it.

Made once a session from the queue table. The queue ledger has the holdings at any moment.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeVar

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
_MOST_KEYS: Final = 10_000
"""Keys that are remembered, a few MB. A search for many victims asks for each amount once."""

Held = TypeVar("Held", IntColumns, Amounts)


class Shares:
    """Quota, weight, limit and fair share of every queue; arrays are [resource, queue]."""

    def __init__(
        self,
        state: PlanState,
        ledger: QueueLedger,
        total: NDArray[np.int64],
        past: PastUsage,
        now: float,
        changes: Callable[[], IntColumns | None] = lambda: None,
    ) -> None:
        """`total`: the amounts to divide [resource].

        `changes`: returns by how much what queues want differs from what their pods request,
        [resource, queue] of each queue itself.
        """
        queues, axis = state.queues, state.axis
        self._state, self._ledger, self._past, self._now = state, ledger, past, now
        self._changes = changes
        self._axis, self._entries = axis, list(queues.entries)
        self.quota, self.weight, self.limit = queues.rules()
        self.total: Amounts = total.astype(np.float64)
        """[resource]: the amounts to divide."""
        # The number of pods is not scarce, so it is not divided.
        self.counted = np.array([name != PODS for name in axis.names])
        """[resource]: whether it is divided."""
        self._common = [axis.index(name) for name in ("cpu", "memory", GPU_RESOURCE)]
        """Axis positions of the resources for `_is_over`."""
        # A GPU with a model is on the axis twice: as GPU, and as GPU of its model.
        self._of_model = np.array([name.startswith(MODEL_PREFIX) for name in axis.names])
        self._order_keys: dict[Hashable, tuple[float, ...]] = {}
        """The answers of `order_key`: each action asks for all queues, which hold the same."""
        self._requested: dict[tuple[int, ...], BoolColumn] = {}
        """The answers of `requested`, which is asked several times for each victim."""

    def divide(self) -> None:
        """Divide by what queues hold and want now; without it, the first question divides."""
        self.fair  # noqa: B018

    @cached_property
    def pending(self) -> Amounts:
        """What waiting pods want, with all queues below."""
        pending, changes = self._state.queues.pending, self._changes()
        return self._ledger.rolled_up(pending if changes is None else pending + changes).astype(
            np.float64
        )

    @cached_property
    def request(self) -> Amounts:
        """Held and pending amounts, with all queues below."""
        request: Amounts = self._ledger.allocated + self.pending
        _ask_for_models(self._axis, request, self.pending)
        request[~self.counted] = 0.0
        return request

    @cached_property
    def fair(self) -> Amounts:
        """The fair shares."""
        demand = Demand(
            quota=self.quota,
            weight=self.weight,
            limit=self.limit,
            request=self.request,
            usage=self._past.account(self._moment(self._now)),
        )
        unit = np.array([float(quantity.scale(name)) for name in self._axis.names])
        unit[self._axis.index("cpu")] = 1.0
        tree = _tree(self._state, self._ledger)
        return fair_shares(tree, demand, self.total, unit, self._past.k_value)

    @cached_property
    def allocatable(self) -> Amounts:
        """The most that a queue may keep if other queues want their share."""
        return np.where(
            np.isinf(self.quota),
            self.limit,
            np.minimum(self.limit, np.maximum(self.quota, self.fair)),
        )

    @cached_property
    def limits(self) -> Sequence[Mapping[int, float]]:
        """Queue row -> the limits of the queue: position on the resource axis -> units."""
        return [
            {index: self.limit[index, row] for index in np.flatnonzero(is_limited).tolist()}
            for row, is_limited in enumerate(np.isfinite(self.limit).T)
        ]

    @cached_property
    def entitled(self) -> Amounts:
        """The fair shares, and at least the quotas within the limits.

        A fair share ends at the pods that exist. A claim also has pods of later stages, and the
        queue may hold domains beside its pods: within its quota it is entitled to both.
        """
        quota = np.where(np.isinf(self.quota), 0.0, np.minimum(self.quota, self.limit))
        return np.maximum(self.fair, quota)

    @cached_property
    def _whole(self) -> Amounts:
        """The denominator of a queue's part: the total where there is no limit.

        A GPU model without rules for the queue does not count, because it counts as GPU already.
        """
        return np.where(
            np.isinf(self.allocatable) & ~self._of_model[:, None],
            self.total[:, None],
            self.allocatable,
        )

    @cached_property
    def _sizes(self) -> Amounts:
        """Queue -> the size of its share."""
        divided = self.counted & (self.total > 0)
        most = self.total[divided, None]
        return np.asarray((np.minimum(self._whole[divided], most) / most).sum(axis=0))

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

    def order_key(
        self, row: int, request: Mapping[int, int], change: Mapping[int, int]
    ) -> tuple[float, ...]:
        """Return the key of the queue for the order in which queues are served.

        In this order: queues not above their fair share; queues within their quota with the
        request; higher priority; queues entitled to every resource that they hold with the
        request; smaller dominant share with the change, then without it; smaller allocatable
        share. `request`, `change`: position on the resource axis -> units.
        """
        held = self._ledger.allocated[:, row]
        known = row, held.tobytes(), tuple(request.items()), tuple(change.items())
        key = self._order_keys.get(known)
        if key is None:
            if len(self._order_keys) >= _MOST_KEYS:
                self._order_keys.clear()
            key = self._order_keys[known] = self._order_key(row, held, request, change)
        return key

    def _order_key(
        self, row: int, held: IntColumns, request: Mapping[int, int], change: Mapping[int, int]
    ) -> tuple[float, ...]:
        wanted, now = _with(held, request), held.astype(np.float64)
        return (
            self._is_over(row, held),
            bool(((wanted > self.quota[:, row]) & self.counted).any()),
            -self._entries[row].priority,
            bool(((wanted > 0) & (self.allocatable[:, row] <= 0) & self.counted).any()),
            self.part(row, _with(now, change)),
            self.part(row, now),
            float(self._sizes[row]),
        )

    def _is_over(self, row: int, held: IntColumns) -> bool:
        """Return whether the queue exceeds its fair shares of cores, of memory and of GPUs.

        KAI-Scheduler's rule: a queue within any of these shares is served in its turn.
        """
        return bool((held[self._common] > self.fair[self._common, row]).all())

    def part(self, row: int, held: NDArray[np.float64]) -> float:
        """Return the largest part, over all resources, that `held` is of the queue's share.

        If the share is unlimited, the part of the total counts (KAI-Scheduler's rule).
        """
        share = self._whole[:, row]
        ratio = np.divide(held, share, out=held * NOTHING, where=share > 0)
        return float(np.max(ratio[self.counted], initial=0.0))


def _with(held: Held, added: Mapping[int, int]) -> Held:
    """Return a copy of `held` with `added` (position on the resource axis -> units)."""
    changed = held.copy()
    for index, amount in added.items():
        changed[index] += amount
    return changed


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
