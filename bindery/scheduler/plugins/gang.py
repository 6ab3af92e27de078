"""gang: a job is bound with at least its minimum of pods, or not at all.

`planning.next_pods` chooses pods so that this holds; the plugin orders jobs by it, and checks each
plan again before the commit.
"""

from bindery.api.names import name_problem
from bindery.api.states import INVALID
from bindery.scheduler.model.jobs import Job, TaskStatus
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shortages import shortage
from bindery.scheduler.model.verdicts import Refusal, SortKey
from bindery.scheduler.plugins.view import SessionView

_WAITING_FOR_GROUP = (
    "no PodGroup selects it yet; the grouper writes one for its controller, or for the gang that "
    "it names: if none comes, see the events of pod and controller, and whether the grouper runs"
)


class Gang:
    """Decides validity, readiness and order of jobs by their minimum.

    Jobs below their minimum go first, then jobs at it, then jobs above it (KAI-Scheduler's elastic
    rule).
    """

    name = "gang"

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Refuse a job without PodGroup, with an invalid one, or with too few pods."""
        if not job.exists:
            problem = name_problem(job.key.name)
            text = f"PodGroup {job.key.name} does not exist{f': {problem}' if problem else ''}"
            return Refusal(JobReason.POD_GROUP_DOES_NOT_EXIST, text)
        if job.awaits_group:
            marks = [task.mark_problem for task in job.tasks.values() if task.mark_problem]
            return Refusal(JobReason.WAITING_FOR_GROUP, "; ".join([*marks, _WAITING_FOR_GROUP]))
        if job.invalid is not None:
            return Refusal(INVALID, job.invalid)
        if not job.has_come:
            verb = "is" if job.gated_count == 1 else "are"
            gated = f", {job.gated_count} more {verb} gated" if job.gated_count else ""
            reason, text = shortage(job, session.state.nodes.nodes)
            return Refusal(reason, f"{text}{gated}")
        # Extra pods of a satisfied gang need not wait: the binder orders them after the gang.
        if not job.is_satisfied and job.placed.total > 0:
            return _await_outcome(job)
        return None

    def is_ready(self, session: SessionView, job: Job) -> bool:  # noqa: ARG002
        """Return whether the minimum is placed."""
        return job.is_satisfied

    def is_pipelined(self, session: SessionView, job: Job) -> bool:  # noqa: ARG002
        """Return whether the minimum is placed or promised."""
        return job.is_promised

    def job_key(self, session: SessionView, job: Job) -> SortKey:  # noqa: ARG002
        """Return 0 for a job below its minimum, 1 at it, 2 above it."""
        placed = job.placed.total
        if not job.is_satisfied:
            return (0,)
        return (1 if placed <= job.min_member else 2,)


def _await_outcome(job: Job) -> Refusal | None:
    """Refuse a gang while the outcome for some of its pods is open.

    Their BindRequest may still fail, for example because a pod was replaced or a scheduler was
    killed between two parts of the request. Pods planned now would then be bound without the gang.
    """
    binding = sum(task.status is TaskStatus.BINDING for task in job.tasks.values())
    if not binding:
        return None
    verb = "is" if binding == 1 else "are"
    text = f"{binding} of its pods {verb} being bound; the others wait for the outcome"
    return Refusal(JobReason.COMMIT_UNDER_WAY, text)
