"""priority: queues, jobs and pods with a higher priority go first."""

from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal, SortKey
from bindery.scheduler.plugins.view import SessionView


class Priority:
    """Orders by `spec.priority` of queues, by PriorityClass of jobs and pods."""

    name = "priority"

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Refuse a job of a class that does not exist, rather than plan it out of its order."""
        if session.priority_is_known(job):
            return None
        text = f"PriorityClass {job.priority_class} does not exist"
        return Refusal(JobReason.PRIORITY_CLASS_DOES_NOT_EXIST, text)

    def queue_key(self, session: SessionView, queue_row: int, job: Job) -> SortKey:  # noqa: ARG002
        """Higher priority first."""
        return (-session.state.queues.entries[queue_row].priority,)

    def job_key(self, session: SessionView, job: Job) -> SortKey:
        """Higher priority first."""
        return (-session.priority(job),)

    def pod_key(self, session: SessionView, task: Task) -> SortKey:  # noqa: ARG002
        """Higher priority first."""
        return (-task.priority,)
