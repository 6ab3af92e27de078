"""runtimelimit: evicts gangs and pods that have run for as long as they may.

They are evicted through the Eviction API like all others: their pods get their grace period, and a
disruption budget may delay the end. The replacements of a gang wait, as plugin `tenancy` refuses a
gang that has used up its time. A pod without a PodGroup has the limit of its queue for itself.
"""

from collections.abc import Iterator

from bindery.scheduler.actions.evicting import end
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Commit


class RunTimeLimit:
    """Evicts the pods of jobs at the end of their time."""

    name = "runtimelimit"
    tries_jobs = False
    fills = False

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:  # noqa: ARG002
        """Yield the evictions of each job that has reached its limit."""
        if not session.has_run_time_limits:
            return
        for job in list(session.state.jobs.values()):
            commit = None
            with session.guarded(job):
                commit = _end(session, job)
            if commit is not None:
                yield commit


def _end(session: Session, job: Job) -> Commit | None:
    limit = session.exceeded_limit(job) if job.placed.total else None
    if limit is None:
        return None
    return end(session, job, f"it has run for {limit.text()}")
