"""Times that protect running jobs: the preemption delay of claimants and the minimum runtime.

The rules are KAI-Scheduler's (v0.17, plugins/minruntime, docs/preemption-delay). Only the core of
an elastic job is protected, its extra pods are not.
"""

from collections.abc import Iterator
from typing import Literal

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.rules import UnitRefusal
from bindery.scheduler.solver.units import EvictionUnit
from bindery.scheduler.solver.victims import VictimTable

Action = Literal["preempt", "reclaim"]
"""The actions that evict pods which then wait."""


def against_claim(session: Session, claim: RoomClaim) -> Iterator[Refusal]:
    """Refuse a claim whose job has not waited for its preemption delay, or never preempts."""
    delay_s, why = claim.job.preemption_delay_s, _never_preempts(session, claim)
    if why:
        yield Refusal(JobReason.NEVER_PREEMPTS, f"{why} has preemptionPolicy Never")
    elif delay_s > 0 and session.now - session.pending_since(claim.job) <= delay_s:
        yield Refusal(JobReason.PREEMPTION_DELAY, f"it waits {delay_s:.0f} s first")


def _never_preempts(session: Session, claim: RoomClaim) -> str:
    """Return what keeps others from being evicted for `claim`; "" for nothing.

    The PodGroup decides; without a policy of its own, its pods and its PriorityClass do.
    """
    policy = claim.job.preemption_policy
    if policy is not None:
        return "its PodGroup" if policy == "Never" else ""
    if any(task.never_preempts for task in claim.tasks):
        return "one of its pods"
    return (
        f"its PriorityClass {claim.job.priority_class}" if session.never_preempts(claim.job) else ""
    )


def against_unit(
    session: Session, claim: RoomClaim, unit: EvictionUnit, action: Action
) -> Iterator[UnitRefusal]:
    """Refuse the core of a gang that has not run for as long as its queue protects it."""
    if not unit.is_core:
        return
    row = session.queue_row(unit.job)
    least_s = min_runtime_s(session, session.queue_row(claim.job), row, action)
    # Without a minimum, which is usual, the pods of the job need not be visited.
    runs_s = session.now - session.running_since(unit.job) if least_s else 0.0
    if runs_s < least_s:
        yield UnitRefusal(
            JobReason.MIN_RUNTIME,
            lambda: (
                f"it has run for {runs_s:.0f} s, and queue "
                f"{session.state.queues.entries[row].name} protects jobs for {least_s:.0f} s"
            ),
        )


def unprotected(
    session: Session,
    table: VictimTable,
    among: BoolColumn,
    own: int,
    action: Action,
) -> BoolColumn:
    """Return the units of `among` (mask) that have run for the minimum runtime of their queue."""
    mask = among.copy()
    for queue, of_queue in table.by_queue.items():
        least_s = min_runtime_s(session, own, queue, action)
        if least_s:
            young = table.is_core & (session.now - table.started < least_s)
            mask[of_queue] &= ~young[of_queue]
    return mask


def min_runtime_s(session: Session, own: int, victim: int, action: Action) -> float:
    """Return the minimum runtime, in seconds, of jobs in queue `victim` against queue `own` (rows).

    preempt: the value of the victim's queue, else of the nearest ancestor with a value. reclaim:
    the same, from the child of the lowest common ancestor on the victim's side upward.
    """
    entries, chain = session.state.queues.entries, session.queue_ledger.chains[victim]
    if action == "preempt":
        values = [entries[row].preempt_min_runtime_s for row in chain]
    else:
        mine = set(session.queue_ledger.chains[own])
        below = sum(row not in mine for row in chain)
        values = [entries[row].reclaim_min_runtime_s for row in chain[max(0, below - 1) :]]
    return next((value for value in values if value is not None), 0.0)
