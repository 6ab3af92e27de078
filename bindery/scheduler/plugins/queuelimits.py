"""queuelimits: no queue holds more than its limit, at any level of the tree.

Releasing pods count until they have gone. Until then, a gang that takes their place has a promise.
"""

import math
from collections.abc import Sequence

import numpy as np

from bindery.scheduler.model.holdings import held
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.reasons import ABOVE_LIMIT_ALONE, JobReason
from bindery.scheduler.model.resources import ResourceAxis, total
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.plugins.view import SessionView


class QueueLimits:
    """Checks allocated + request <= limit for the job's queue and every ancestor."""

    name = "queuelimits"

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Refuse a job if its queue does not exist, is closed or is invalid."""
        problem = session.queue_problem(session.queue_row(job))
        return Refusal(*problem) if problem is not None else None

    def over_capacity(
        self, session: SessionView, job: Job, tasks: Sequence[Task]
    ) -> Refusal | None:
        """Refuse `tasks` if a queue would exceed a limit."""
        ledger, limits = session.queue_ledger, session.shares.limits
        chain = [row for row in ledger.chains[session.queue_row(job)] if limits[row]]
        if not chain:  # most queues have no limit
            return None
        axis = session.state.axis
        # What a request for GPU memory amounts to depends on the node: count the least possible.
        adding = session.adding(job, tasks)
        request = total(session.state.nodes.least(task.shape.request) for task in adding)
        # Reservations keep part of a limit for the first gang that does not fit (backfill).
        reserved = session.reserved_in_queues
        for row in chain:
            for index, amount in request.items():
                limit = limits[row].get(index, math.inf)
                allocated = int(ledger.allocated[index, row])
                kept = 0 if reserved is None else int(reserved[index, row])
                if allocated + kept + amount > limit:
                    name = session.state.queues.entries[row].name
                    granted = axis.display(index, int(limit))
                    asked = f"the job requests {axis.display(index, amount)} more"
                    if held(job, session.state.nodes.least).get(index, 0) + amount > limit:
                        asked = f"{asked}, {ABOVE_LIMIT_ALONE}"
                    return Refusal(
                        JobReason.OVER_LIMIT,
                        f"queue {name} holds {axis.display(index, allocated)} of its limit of "
                        f"{granted} {axis.names[index]}{_reserved(axis, index, kept)}, and {asked}",
                    )
        return None

    def waits_for_release(self, session: SessionView, job: Job, tasks: Sequence[Task]) -> bool:
        """Return whether a queue would exceed a limit until its releasing pods have gone.

        Their eviction may still be refused, and their grace period may be long.
        """
        ledger, chain = session.queue_ledger, session.queue_ledger.chains[session.queue_row(job)]
        if not ledger.releasing[:, chain].any():  # the usual case, for every gang of a cycle
            return False
        requested = sorted(
            {index for task in tasks for index in task.shape.request.in_queues.indices}
        )
        place = np.ix_(requested, chain)
        # `allocated` no longer has the releasing pods, so they are added here.
        allocated, leaving = ledger.allocated[place], ledger.releasing[place]
        return bool(((leaving > 0) & (allocated + leaving > session.shares.limit[place])).any())


def _reserved(axis: ResourceAxis, index: int, amount: int) -> str:
    """Return the part of the message about reservations for waiting gangs."""
    return f", {axis.display(index, amount)} are reserved" if amount else ""
