"""fairshare: queues are served by what they deserve, and cannot pin more than their quota.

The order and the gate are KAI-Scheduler's (v0.17, plugins/proportion/queue_order and
capacity_policy), from the shares that `bindery.scheduler.fairness` divides.
"""

from collections.abc import Mapping, Sequence

from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.verdicts import Refusal, SortKey
from bindery.scheduler.plugins.view import SessionView


class FairShare:
    """Orders queues by their shares; holds non-preemptible work to the quota up the tree."""

    name = "fairshare"

    def queue_key(self, session: SessionView, queue_row: int, job: Job) -> SortKey:
        """Return the key of a queue whose next job is `job`.

        Not above its fair share in all that it holds first; then who stays within its quota with
        the job; higher priority; who deserves something at all; smaller dominant share with the
        job, and without; smaller allocatable share.
        """
        request = total(task.shape.request for task in session.next_pods(job))
        return _key(session, queue_row, request, request)

    def victim_key(
        self,
        session: SessionView,
        queue_row: int,
        job: Job,  # noqa: ARG002
        released: Mapping[int, int],
    ) -> SortKey:
        """Return the same key for a queue that requests nothing and loses `released`."""
        change = {index: -amount for index, amount in released.items()}
        return _key(session, queue_row, {}, change)

    def over_capacity(
        self, session: SessionView, job: Job, tasks: Sequence[Task]
    ) -> Refusal | None:
        """Refuse work that cannot be evicted where it would not fit the quota."""
        pinned = total(task.shape.request for task in tasks if not task.is_preemptible)
        ledger, axis, quota = session.queue_ledger, session.state.axis, session.shares.quota
        for row in ledger.chains[session.queue_row(job)] if pinned else ():
            for index, amount in pinned.items():
                held = int(ledger.non_preemptible[index, row])
                if held + amount > quota[index, row]:
                    name = session.state.queues.entries[row].name
                    granted = axis.display(index, int(quota[index, row]))
                    return Refusal(
                        JobReason.NON_PREEMPTIBLE_OVER_QUOTA,
                        f"non-preemptible jobs of queue {name} hold {axis.display(index, held)} of "
                        f"its quota of {granted} {axis.names[index]}, and this one asks for "
                        f"{axis.display(index, amount)} more",
                        is_lasting=True,
                    )
        return None


def _key(
    session: SessionView, row: int, request: Mapping[int, int], change: Mapping[int, int]
) -> SortKey:
    """Return the key of the queue at `row`. `change`: what it would hold more, or less."""
    shares = session.shares
    return (
        shares.is_over(row),
        not shares.fits_quota(row, request),
        -session.state.queues.entries[row].priority,
        shares.is_undeserving(row, request),
        shares.dominant(row, change),
        shares.dominant(row),
        shares.size(row),
    )
