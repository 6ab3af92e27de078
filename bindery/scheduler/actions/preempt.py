"""preempt: inside one queue, jobs of higher priority take the place of lower ones."""

from collections.abc import Sequence

import numpy as np

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver import protection
from bindery.scheduler.solver.rules import Claim
from bindery.scheduler.solver.victims import Chunk, VictimTable


class PreemptRule:
    """Victims are preemptible, of the same queue, and of strictly lower priority."""

    name = "preempt"
    moves_all = False
    most_jobs = None

    def refuse(self, session: Session, claim: Claim) -> Refusal | None:
        """Refuse a job that has to wait longer first, or may not preempt."""
        return protection.delay(session, claim)

    def eligible(self, session: Session, claim: Claim, table: VictimTable) -> BoolColumn:
        """Return the chunks of lower priority in the queue that have run long enough."""
        queue = session.queue_row(claim.job)
        mask = (table.queue == queue) & (table.priority < session.priority(claim.job))
        return protection.unprotected(session, table, mask, queue, "preempt")

    def movable(self, session: Session, claim: Claim, table: VictimTable) -> BoolColumn:
        """Return the same chunks: others do not go, whatever they find."""
        return self.eligible(session, claim, table)

    def allows(self, session: Session, claim: Claim, chunk: Chunk) -> bool:  # noqa: ARG002
        """Every eligible chunk may go."""
        return True

    def accepts(self, session: Session, claim: Claim, gone: Sequence[Chunk]) -> bool:  # noqa: ARG002
        """Every plan is acceptable: the queue itself holds no more than before."""
        return True


class ConsolidationRule:
    """Running preemptible jobs move together, so that a preemptible one that waits fits."""

    name = "consolidation"
    moves_all = True

    def __init__(self, most_jobs: int) -> None:
        self.most_jobs = most_jobs

    def refuse(self, session: Session, claim: Claim) -> Refusal | None:
        """Refuse a job that is not preemptible itself, or has to wait longer first."""
        if not self.most_jobs:
            return Refusal("NothingMoves", "consolidation is off")
        if not all(task.is_preemptible for task in claim.tasks):
            return Refusal("NonPreemptible", "others are not moved for a non-preemptible job")
        return protection.delay(session, claim)

    def eligible(self, session: Session, claim: Claim, table: VictimTable) -> BoolColumn:  # noqa: ARG002
        """Return all chunks: nobody loses anything but the time of moving."""
        return np.ones(len(table.chunks), dtype=np.bool_)

    def movable(self, session: Session, claim: Claim, table: VictimTable) -> BoolColumn:
        """Return all chunks: every one of them must find another place."""
        return self.eligible(session, claim, table)

    def allows(self, session: Session, claim: Claim, chunk: Chunk) -> bool:  # noqa: ARG002
        """Every chunk but the claimant's own may move."""
        return chunk.job is not claim.job

    def accepts(self, session: Session, claim: Claim, gone: Sequence[Chunk]) -> bool:  # noqa: ARG002
        """Accept only plans in which every victim has another place."""
        return not gone
