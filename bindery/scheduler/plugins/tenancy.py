"""tenancy: a job waits while its namespace may not use the queue, or when its time is used up."""

from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.plugins.view import SessionView


class Tenancy:
    """Holds jobs to the rules of queues about namespaces and run times."""

    name = "tenancy"

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Refuse a job that its queue, or a queue above it, does not allow."""
        refusal = session.access_refusal(job)
        if refusal is not None:
            return Refusal(refusal.reason, refusal.text)
        limit = session.exceeded_limit(job)
        if limit is None:
            return None
        text = f"it has run for {limit.text()}; delete its workload, or raise the limit"
        return Refusal(JobReason.RUN_TIME_EXCEEDED, text)
