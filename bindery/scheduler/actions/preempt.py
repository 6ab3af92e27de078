"""preempt: inside a queue, jobs of higher priority take the place of jobs of lower priority."""

from collections.abc import Iterator

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver import protection
from bindery.scheduler.solver.rules import Rule, UnitRefusal
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable


class PreemptRule(Rule):
    """Victims are preemptible, of the same queue, and of strictly lower priority."""

    name = "preempt"

    def against_claim(self, session: Session, claim: RoomClaim) -> Iterator[Refusal]:
        """Refuse a job that must wait longer first, or never preempts."""
        return protection.against_claim(session, claim)

    def eligible(self, session: Session, claim: RoomClaim, table: VictimTable) -> BoolColumn:
        """Return the units of lower priority in the queue that have run long enough."""
        queue = session.queue_row(claim.job)
        mask = (table.queue == queue) & (table.priority < session.priority(claim.job))
        return protection.unprotected(session, table, mask, queue, "preempt")

    def against_unit(
        self, session: Session, claim: RoomClaim, unit: EvictionUnit
    ) -> Iterator[UnitRefusal]:
        """Refuse units of other queues, without lower priority, or with too short a runtime."""
        if session.queue_row(unit.job) != session.queue_row(claim.job):
            yield UnitRefusal(JobReason.NOT_ALLOWED, lambda: "it runs in another queue")
        theirs, mine = session.priority(unit.job), session.priority(claim.job)
        if theirs >= mine:
            yield UnitRefusal(
                JobReason.PRIORITY_NOT_LOWER,
                lambda: f"its priority {theirs} is not below the {mine} of the one that waits",
            )
        yield from protection.against_unit(session, claim, unit, "preempt")
