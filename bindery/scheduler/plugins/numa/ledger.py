"""The ledger of zones: pods of a plan are predicted one after another.

It enters what each pod takes of the zones of its node, so that the next prediction counts it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.views import NodesView
from bindery.scheduler.plugins.numa.amounts import HeldZones
from bindery.scheduler.plugins.numa.asks import Ask
from bindery.scheduler.plugins.numa.predictor import Predictor
from bindery.scheduler.plugins.numa.reported_zones import ReportedZones
from bindery.scheduler.plugins.numa.table import NO_SLOT, ZoneTable


class Planned(NamedTuple):
    """What a planned pod takes."""

    slot: int
    part: HeldZones
    order: int
    """Grows with each prediction; the pods of a node should be bound in this order."""


class NumaLedger:
    """Follows a plan in the arrays of zones."""

    name = "numa"

    def __init__(self, zones: ReportedZones, predictor: Predictor, nodes: NodesView) -> None:
        self._zones, self._predictor = zones, predictor
        self._table: ZoneTable = zones.table
        self.slot_of_row: NDArray[np.intp] = zones.slots_of_rows(nodes)
        """Node row -> slot; `NO_SLOT` for a node without zones."""
        self._planned: dict[Uid, Planned] = {}
        self._evicted: dict[Uid, tuple[int, HeldZones]] = {}
        """Evicted pod -> slot and what it gives back."""
        self._slots: set[int] = set()

    def ask(self, operation: Operation) -> Ask | None:
        """Return what the pod of `operation` asks of zones; None for nothing."""
        return self._zones.asks.of(operation.task.shape)

    def planned(self, uid: Uid) -> Planned | None:
        """Return what a planned pod takes; None if it takes nothing of zones."""
        return self._planned.get(uid)

    def close(self) -> None:
        """Let the nodes of the plan be reconciled."""
        for slot in self._slots:
            self._zones.observation.mark(self._table.names[slot])

    def apply(self, operation: Operation) -> None:
        """Enter `operation`; refuse a pod that its node would refuse."""
        if not self._table.slots:
            return
        slot = int(self.slot_of_row[operation.row])
        ask = self.ask(operation) if slot != NO_SLOT else None
        if ask is None:
            return
        self._slots.add(slot)
        if operation.kind is OperationKind.EVICT:
            self._evict(operation.task.uid, slot)
        else:
            self._place(operation, ask, slot)

    def revert(self, operation: Operation) -> None:
        """Undo `operation`."""
        uid = operation.task.uid
        if operation.kind is OperationKind.EVICT:
            if uid in self._evicted:
                slot, part = self._evicted.pop(uid)
                self._move(slot, part, operation.kind, -1)
        elif uid in self._planned:
            slot, part, _ = self._planned.pop(uid)
            self._move(slot, part, operation.kind, 1)

    def _place(self, operation: Operation, ask: Ask, slot: int) -> None:
        promised = operation.kind is OperationKind.PIPELINE
        outcome = self._predictor.outcome(ask, slot, later=promised)
        if not outcome.admit:
            later = promised or self._predictor.outcome(ask, slot, later=True).admit
            raise LedgerRefusalError(
                f"node {self._table.names[slot]} would refuse it: {outcome.reason}",
                fits_later=not promised and later,
            )
        planned = Planned(slot, outcome.part, next(self._predictor.numbers))
        self._planned[operation.task.uid] = planned
        self._move(slot, outcome.part, operation.kind, -1)

    def _evict(self, uid: Uid, slot: int) -> None:
        part = self._zones.held(uid, slot)
        if part is None:  # its zones are not known, so its end frees none for sure
            return
        later = self._table.later.arrays
        part = part.within(later.totals[slot] - later.free[slot])
        self._evicted[uid] = slot, part
        self._move(slot, part, OperationKind.EVICT, 1)

    def _move(self, slot: int, part: HeldZones, kind: OperationKind, sign: int) -> None:
        """Give back (`sign` 1) or take (-1) a part, and note how now and later differ."""
        table = self._table
        if kind is OperationKind.ALLOCATE:
            table.now.move(slot, part, sign)
            if table.apart[slot]:
                table.later.move(slot, part, sign)
            else:
                table.later.copy(slot, table.now)
        else:  # only the time after all releases changes
            table.later.move(slot, part, sign)
            is_undone = (sign > 0) is (kind is OperationKind.PIPELINE)
            table.apart[slot] += -1 if is_undone else 1
        table.touched.append(slot)
