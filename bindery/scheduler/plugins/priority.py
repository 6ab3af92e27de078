"""priority: queues, jobs and pods with a higher priority go first."""

from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal, SortKey
from bindery.scheduler.plugins.view import SessionView


class Priority:
    """Orders queues by `spec.priority`, jobs and pods by their PriorityClass."""

    name = "priority"

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Refuse a job with a missing PriorityClass."""
        if session.priority_is_known(job):
            return None
        # Without a class the job would be planned at a wrong place in the order.
        text = f"PriorityClass {job.priority_class} does not exist"
        return Refusal(JobReason.PRIORITY_CLASS_DOES_NOT_EXIST, text)

    def queue_key(self, session: SessionView, queue_row: int, job: Job) -> SortKey:  # noqa: ARG002
        """Return the negative priority of the queue: higher priority goes first."""
        return (-session.state.queues.entries[queue_row].priority,)

    def job_key(self, session: SessionView, job: Job) -> SortKey:
        """Return the negative priority of the job: higher priority goes first."""
        return (-session.priority(job),)

    def pod_key(self, session: SessionView, task: Task) -> SortKey:  # noqa: ARG002
        """Return the negative priority of the pod: higher priority goes first."""
        return (-task.priority,)
