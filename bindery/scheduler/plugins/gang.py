"""gang: a job is bound with its minimum of pods or not at all."""

from bindery.api.podgroup import INVALID
from bindery.scheduler.model.jobs import Job, TaskStatus
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.verdicts import Refusal, SortKey
from bindery.scheduler.plugins.view import SessionView


class Gang:
    """Validity, readiness and order by `minMember`.

    A job below its minimum goes before one that only wants more; at its minimum before above it
    (KAI-Scheduler's elastic rule).
    """

    name = "gang"

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:  # noqa: ARG002
        """Refuse a job whose PodGroup is missing or wrong, or that has too few pods."""
        if not job.exists:
            return Refusal(
                JobReason.POD_GROUP_DOES_NOT_EXIST, f"PodGroup {job.key.name} does not exist"
            )
        if job.invalid is not None:
            return Refusal(INVALID, job.invalid)
        if not job.has_come:
            come = job.placed.total + job.waiting.total
            gated = f", {job.gated_count} more are gated" if job.gated_count else ""
            needed = f"of the {job.min_member} pods it needs have come"
            if come >= job.min_member:
                needed = "pods have come, which is not enough of every role and sub-group"
            return Refusal(JobReason.NOT_ENOUGH_PODS, f"{come} {needed}{gated}")
        if not job.is_satisfied and job.placed.total > 0:
            return _await_outcome(job)
        return None

    def is_ready(self, session: SessionView, job: Job) -> bool:  # noqa: ARG002
        """Whether the minimum is placed."""
        return job.is_satisfied

    def is_pipelined(self, session: SessionView, job: Job) -> bool:  # noqa: ARG002
        """Whether the minimum is placed or promised."""
        return job.is_promised

    def job_key(self, session: SessionView, job: Job) -> SortKey:  # noqa: ARG002
        """Below the minimum first, then at it, then above it."""
        placed = job.placed.total
        if not job.is_satisfied:
            return (0,)
        return (1 if placed <= job.min_member else 2,)


def _await_outcome(job: Job) -> Refusal | None:
    """Refuse to complete a gang by pods that are only about to be bound.

    Their BindRequest may yet fail or be cleared, as when a pod in it was replaced or a scheduler
    was killed between two of its parts: the others would then be bound without them.
    """
    binding = sum(task.status is TaskStatus.BINDING for task in job.tasks.values())
    if not binding:
        return None
    text = f"{binding} of its pods are about to be bound: the rest waits for what becomes of them"
    return Refusal(JobReason.COMMIT_UNDER_WAY, text)
