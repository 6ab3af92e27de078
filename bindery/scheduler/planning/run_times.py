"""The run time limits of jobs: of their PodGroup, of their queue and the queues above it."""

import math
from dataclasses import dataclass

import numpy as np

from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import Job, TaskStatus
from bindery.scheduler.model.queues import QueueTable
from bindery.scheduler.model.state import PlanState


@dataclass(frozen=True, slots=True)
class RunTimeLimit:
    """The limit that applies to a job. `source`: the object that has it."""

    limit_s: float
    source: str

    def text(self) -> str:
        """Return the limit as the end of a sentence."""
        return f"the limit of {self.limit_s:g} s of {self.source}"


def exceeded(queues: QueueTable, job: Job, now: float) -> RunTimeLimit | None:
    """Return the limit that `job` has reached; None if it may go on. `now`: epoch seconds."""
    limit_s, queue = queues.run_time_limit(queues.rows[job.queue])
    source = f"queue {queue}"
    if job.run_time_limit_s <= limit_s:
        limit_s, source = job.run_time_limit_s, "its PodGroup"
    if limit_s == math.inf or job.run_time_s(now) < limit_s:
        return None
    return RunTimeLimit(limit_s, source)


def spent_requests(state: PlanState, now: float) -> IntColumns:
    """Return what pending pods of jobs ask for that have used up their time: [resource, queue].

    Such jobs never start again, so no share of their queue is for them.
    """
    asked = np.zeros_like(state.queues.pending)
    for job in state.waiting.values():
        if exceeded(state.queues, job, now) is None:
            continue
        for task in job.pending.values():
            if task.is_ours and task.status is TaskStatus.PENDING:
                request = task.shape.request.in_queues
                asked[list(request.indices), task.queue_row] += request.amounts
    return asked
