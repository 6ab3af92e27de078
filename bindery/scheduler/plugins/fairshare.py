"""fairshare: orders queues by fair share, and limits non-preemptible jobs to the quota.

Order and gate are those of KAI-Scheduler (v0.17, plugins/proportion/queue_order and
capacity_policy), with the shares of `bindery.scheduler.fairness`.
"""

from collections.abc import Mapping, Sequence

from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.verdicts import Refusal, SortKey
from bindery.scheduler.plugins.view import SessionView


class FairShare:
    """Orders queues by their shares; limits non-preemptible pods to the quota at every level."""

    name = "fairshare"

    def queue_key(self, session: SessionView, queue_row: int, job: Job) -> SortKey:
        """Return the sort key of the queue at `queue_row` with the next job `job`."""
        adding = session.adding(job, session.next_pods(job))
        request = total(task.shape.request for task in adding)
        return session.shares.order_key(queue_row, request, request)

    def victim_key(
        self,
        session: SessionView,
        queue_row: int,
        job: Job,  # noqa: ARG002
        released: Mapping[int, int],
    ) -> SortKey:
        """Return the same key, without a request and after the loss of `released`."""
        change = {index: -amount for index, amount in released.items()}
        return session.shares.order_key(queue_row, {}, change)

    def over_capacity(
        self, session: SessionView, job: Job, tasks: Sequence[Task]
    ) -> Refusal | None:
        """Refuse non-preemptible `tasks` if a queue would exceed its quota."""
        # Preemptible pods may use more than the quota: reclaim takes it back.
        pinned_tasks = [task for task in tasks if not task.is_preemptible]
        if not pinned_tasks:
            return None
        pinned = total(task.shape.request for task in session.adding(job, pinned_tasks))
        ledger, axis, quota = session.queue_ledger, session.state.axis, session.shares.quota
        for row in ledger.chains[session.queue_row(job)]:
            for index, amount in pinned.items():
                held = int(ledger.non_preemptible[index, row])
                if held + amount > quota[index, row]:
                    name = session.state.queues.entries[row].name
                    granted = axis.display(index, int(quota[index, row]))
                    return Refusal(
                        JobReason.NON_PREEMPTIBLE_OVER_QUOTA,
                        f"non-preemptible jobs of queue {name} hold {axis.display(index, held)} of "
                        f"its quota of {granted} {axis.names[index]}, and this one requests "
                        f"{axis.display(index, amount)} more",
                        is_lasting=True,  # only pods count that cannot be evicted
                    )
        return None
