"""Times that protect: how long a job waits before others go for it, how long one runs in peace.

The rules are KAI-Scheduler's (v0.17, plugins/minruntime, docs/preemption-delay). Extra pods of an
elastic job are not protected: only its core is.
"""

from typing import Literal

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.rules import Claim
from bindery.scheduler.solver.victims import VictimTable


def delay(session: Session, claim: Claim) -> Refusal | None:
    """Refuse a claim whose job has not waited for its preemption delay, or never preempts."""
    if any(task.never_preempts for task in claim.tasks):
        return Refusal(JobReason.NEVER_PREEMPTS, "its pods have preemptionPolicy Never")
    if session.never_preempts(claim.job):
        text = f"its PriorityClass {claim.job.priority_class} has preemptionPolicy Never"
        return Refusal(JobReason.NEVER_PREEMPTS, text)
    waited_s = session.now - session.pending_since(claim.job)
    if claim.job.preemption_delay_s > 0 and waited_s <= claim.job.preemption_delay_s:
        return Refusal(
            JobReason.PREEMPTION_DELAY, f"it waits {claim.job.preemption_delay_s:.0f} s first"
        )
    return None


def unprotected(
    session: Session,
    table: VictimTable,
    among: BoolColumn,
    own: int,
    action: Literal["preempt", "reclaim"],
) -> BoolColumn:
    """Return which units of `among` have run for as long as their queue protects them."""
    mask = among.copy()
    for queue, of_queue in table.by_queue.items():
        least_s = min_runtime_s(session, own, queue, action)
        if least_s:
            young = table.is_core & (session.now - table.started < least_s)
            mask[of_queue] &= ~young[of_queue]
    return mask


def min_runtime_s(session: Session, own: int, victim: int, action: str) -> float:
    """Return the runtime that protects jobs of the queue `victim` from one of the queue `own`.

    preempt: the value of the victim's queue, or of the nearest one above. reclaim: from the child
    of the lowest common ancestor on the victim's side upward.
    """
    entries, chain = session.state.queues.entries, session.queue_ledger.chains[victim]
    if action == "preempt":
        values = [entries[row].preempt_min_runtime_s for row in chain]
    else:
        mine = set(session.queue_ledger.chains[own])
        below = sum(row not in mine for row in chain)
        values = [entries[row].reclaim_min_runtime_s for row in chain[max(0, below - 1) :]]
    return next((value for value in values if value is not None), 0.0)
