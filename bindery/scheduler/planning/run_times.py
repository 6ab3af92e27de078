"""The run time limits of jobs: of their PodGroup, and of their queue and the queues above it."""

import math
from dataclasses import dataclass

from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.queues import QueueTable


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
