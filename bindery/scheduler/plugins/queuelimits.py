"""queuelimits: no queue, and no queue above it, ever holds more than its limit.

Pods that are going count until they are gone, for gangs that would start at once; a gang that takes
their place may be promised it.
"""

from collections.abc import Sequence

import numpy as np

from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import ResourceAxis, total
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.plugins.view import SessionView


class QueueLimits:
    """The hard gate at the job's queue and every ancestor: allocated + request <= limit."""

    name = "queuelimits"

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Refuse a job whose queue does not exist, is closed or cannot be used."""
        problem = session.queue_problem(session.queue_row(job))
        return Refusal(*problem) if problem is not None else None

    def over_capacity(
        self, session: SessionView, job: Job, tasks: Sequence[Task]
    ) -> Refusal | None:
        """Refuse `tasks` if they would lift a queue above a limit."""
        ledger, axis = session.queue_ledger, session.state.axis
        request = total(session.state.nodes.least(task.shape.request) for task in tasks)
        reserved = session.reserved_in_queues
        for row in ledger.chains[session.queue_row(job)]:
            for index, amount in request.items():
                limit = session.shares.limit[index, row]
                held = int(ledger.allocated[index, row])
                kept = 0 if reserved is None else int(reserved[index, row])
                if held + kept + amount > limit:
                    name = session.state.queues.entries[row].name
                    granted = axis.display(index, int(limit))
                    return Refusal(
                        JobReason.OVER_LIMIT,
                        f"queue {name} holds {axis.display(index, held)} of its limit of "
                        f"{granted} {axis.names[index]}{_reserved(axis, index, kept)}, and the job "
                        f"asks for {axis.display(index, amount)} more",
                    )
        return None

    def waits_for_release(self, session: SessionView, job: Job, tasks: Sequence[Task]) -> bool:
        """Return whether a queue would be above a limit until pods that are going have gone.

        Their eviction may still be refused, and a pod may take as long to stop as its owner likes.
        """
        ledger, chain = session.queue_ledger, session.queue_ledger.chains[session.queue_row(job)]
        if not ledger.releasing[:, chain].any():
            return False
        asked = sorted({index for task in tasks for index in task.shape.request.indices})
        place = np.ix_(asked, chain)
        held, leaving = ledger.allocated[place], ledger.releasing[place]
        return bool(((leaving > 0) & (held + leaving > session.shares.limit[place])).any())


def _reserved(axis: ResourceAxis, index: int, amount: int) -> str:
    """Return what is said of the part of a limit that is kept for a gang which waits."""
    return f", {axis.display(index, amount)} are reserved" if amount else ""
