"""reclaim without victims whose loss takes a queue below its quota. Tried first, by `MakeRoom`.

A gang goes as a whole, so the last victim of a plan may take its queue far below the quota, and the
gang does not fit into the quota again. KAI-Scheduler compares only what is held before each loss
(v0.17, plugins/proportion/reclaimable). Decision 054.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.actions.reclaim import ReclaimRule, levels_apart
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import TaskStatus
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.rules import UnitRefusal
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable


class QuotaKeepingReclaim(ReclaimRule):
    """The rule of reclaim for one search, which leaves every queue its quota."""

    has_spared = False
    """Whether a unit was refused for a quota, so that `ReclaimRule` may find a plan."""

    def eligible(self, session: Session, claim: RoomClaim, table: VictimTable) -> BoolColumn:
        """Return the units of reclaim whose loss takes no queue below its quota."""
        mask, held = super().eligible(session, claim, table), session.queue_ledger.allocated
        for queue, of_queue in table.by_queue.items():
            for row in self._rows(session, claim, queue):
                least = _least(session, claim, row)
                kept = np.flatnonzero(least > 0)
                # Mostly no unit is that large, and there are thousands of units.
                if (held[kept, row] - table.most_lost[queue][kept] >= least[kept]).all():
                    continue
                units = of_queue[mask[of_queue]]
                left = held[kept, row, None] - table.lost[np.ix_(kept, units)]
                is_below = (left < least[kept, None]).any(axis=0)
                mask[units[is_below]] = False
                self.has_spared |= bool(is_below.any())
        return mask

    def against_unit(
        self, session: Session, claim: RoomClaim, unit: EvictionUnit
    ) -> Iterator[UnitRefusal]:
        """Refuse also units whose loss takes a queue below its quota, after the plan so far."""
        yield from super().against_unit(session, claim, unit)
        lost = np.zeros(len(session.state.axis))
        queue = session.queue_row(unit.job)
        running = unit.job.tasks.values() if unit.is_core else unit.tasks  # its extra pods go, too
        for task in running:
            if task.status is TaskStatus.RUNNING:
                charged = session.state.nodes.charge(task.row, task.shape.request)
                for index, amount in zip(charged.indices, charged.amounts, strict=True):
                    lost[index] += amount
        if unit.is_core and (beside := session.account.of(unit.job)) is not None:
            lost += beside
        held, rows = session.queue_ledger.allocated, list(self._rows(session, claim, queue))
        if any((held[:, row] - lost < _least(session, claim, row)).any() for row in rows):
            self.has_spared = True
            yield UnitRefusal(
                JobReason.WITHIN_SHARE, lambda: "without it, its queue would be below its quota"
            )

    def _rows(self, session: Session, claim: RoomClaim, queue: int) -> Iterator[int]:
        """Yield `queue` and the queues above it that are not above the claimant's queue."""
        levels = levels_apart(session, session.queue_row(claim.job), queue)
        for row in session.queue_ledger.chains[queue] if levels is not None else ():
            yield row
            if levels is not None and row == levels[1]:
                return


def _least(session: Session, claim: RoomClaim, row: int) -> NDArray[np.float64]:
    """Return the amounts that the queue at `row` must still hold: [resource], 0 for nothing.

    Only requested resources count. The queue keeps its quota of each resource of which it holds at
    least the quota. A queue that exceeds no quota keeps all that it holds. An unlimited quota keeps
    nothing.
    """
    held, quota = session.queue_ledger.allocated[:, row], session.shares.quota[:, row]
    counted = session.shares.requested(claim.resources) & np.isfinite(quota)
    least = np.where(held >= quota, quota, 0.0)
    if not (held > quota)[counted].any():
        least = np.where(quota > 0, held, 0.0)
    return np.where(counted, least, 0.0)
