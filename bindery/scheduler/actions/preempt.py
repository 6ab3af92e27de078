"""preempt: inside one queue, jobs of higher priority take the place of lower ones."""

from collections.abc import Sequence

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver import protection
from bindery.scheduler.solver.rules import Claim
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable


class PreemptRule:
    """Victims are preemptible, of the same queue, and of strictly lower priority."""

    name = "preempt"
    moves_all = False
    most_jobs = None

    def refuse(self, session: Session, claim: Claim) -> Refusal | None:
        """Refuse a job that has to wait longer first, or may not preempt."""
        return protection.delay(session, claim)

    def eligible(self, session: Session, claim: Claim, table: VictimTable) -> BoolColumn:
        """Return the units of lower priority in the queue that have run long enough."""
        queue = session.queue_row(claim.job)
        mask = (table.queue == queue) & (table.priority < session.priority(claim.job))
        return protection.unprotected(session, table, mask, queue, "preempt")

    def movable(self, session: Session, claim: Claim, table: VictimTable) -> BoolColumn:
        """Return the same units: others do not go, whatever they find."""
        return self.eligible(session, claim, table)

    def allows(self, session: Session, claim: Claim, unit: EvictionUnit) -> bool:  # noqa: ARG002
        """Every eligible unit may go."""
        return True

    def accepts(self, session: Session, claim: Claim, gone: Sequence[EvictionUnit]) -> bool:  # noqa: ARG002
        """Every plan is acceptable: the queue itself holds no more than before."""
        return True
