"""The figures in the status of a PodGroup: counts of pods, its queue, the time of its state. Pure.

They are computed from the tasks and the present status, so that a restarted scheduler continues
them.
"""

from dataclasses import dataclass

from bindery.api.states import GangState
from bindery.api.times import seconds, timestamp
from bindery.kube.objects.podgroups import PodCounts, PodGroup, PodGroupStatus
from bindery.scheduler.model.jobs import Job, TaskStatus

_PENDING = frozenset({TaskStatus.PENDING, TaskStatus.GATED})


@dataclass(frozen=True, slots=True)
class GangFigures:
    """The figures in the status of one gang."""

    pods: PodCounts
    assigned_queue: str
    since: str | None
    ran_seconds: float

    def is_shown_by(self, status: PodGroupStatus) -> bool:
        """Return whether `status` has these figures; times are not compared."""
        return (self.pods, self.assigned_queue) == (status.pods, status.assigned_queue)

    def to_wire(self) -> dict[str, object]:
        """Return the fields of the status; all counts, as a merge patch keeps what is left out."""
        counts = ("pending", "bound", "running", "succeeded", "failed")
        pods = {name: getattr(self.pods, name) for name in counts}
        times = {"since": self.since, "ranSeconds": self.ran_seconds}
        return {"pods": pods, "assignedQueue": self.assigned_queue, **times}


def figures(job: Job, group: PodGroup, state: GangState, now: float) -> GangFigures:
    """Return the figures of `group` in `state`. `now`: seconds since the epoch."""
    status = group.status
    pods = status.pods if state is GangState.FINISHED and not job.tasks else _counts(job)
    if state == (status.state or GangState.WAITING) and status.since:
        return GangFigures(pods, job.queue, status.since, status.ran_seconds)
    since = now
    if state is GangState.RUNNING:  # the last of its pods to be bound completed it
        bound = (task.bound_at for task in job.tasks.values() if task.bound_at is not None)
        since = min(now, max(bound, default=now))
    return GangFigures(pods, job.queue, timestamp(since), _ran_s(status, now))


def _ran_s(status: PodGroupStatus, now: float) -> float:
    """Return the seconds that the gang ran before it left the state in `status`."""
    since = seconds(status.since)
    if status.state != GangState.RUNNING or since is None:
        return status.ran_seconds
    return status.ran_seconds + max(0.0, round(now - since))


def _counts(job: Job) -> PodCounts:
    pending = bound = running = succeeded = failed = 0
    for task in job.tasks.values():
        status = task.pod_status
        if status in _PENDING:
            pending += 1
        elif status is TaskStatus.SUCCEEDED:
            succeeded += 1
        elif status is TaskStatus.FAILED:
            failed += 1
        else:
            bound += 1
            running += task.runs
    return PodCounts(
        pending=pending, bound=bound, running=running, succeeded=succeeded, failed=failed
    )
