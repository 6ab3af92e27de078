"""tenancy: a job waits while its namespace may not use the queue, or not in this way."""

from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.plugins.view import SessionView


class Tenancy:
    """Holds jobs to the rules of queues about namespaces."""

    name = "tenancy"

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Refuse a job that its queue, or a queue above it, does not allow."""
        refusal = session.access_refusal(job)
        return Refusal(refusal.reason, refusal.text) if refusal is not None else None
