"""The queue in which each task counts.

Owned by tasks.py. A pod without a place counts in the queue of its job. A bound pod stays in the
queue that it was bound in, whatever its owner changes afterwards, unless the job was assigned to
another queue.
"""

from collections.abc import Mapping

from bindery.scheduler.cache.holds import Hold, Holds
from bindery.scheduler.model.jobs import Job, JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.state import PlanState

MOST_UNKNOWN_QUEUES = 256
"""Maximum number of rows of queues that do not exist and that no pod or job names."""


def drop_unknown_queues(state: PlanState) -> bool:
    """Drop the rows of queues that do not exist and are not named, if there are too many.

    Return whether all sums are now empty. Users may name any queue, and each takes a column.
    """
    queues = state.queues
    if sum(not entry.exists for entry in queues.entries) <= MOST_UNKNOWN_QUEUES:
        return False
    named = {task.queue for task in state.tasks.values()}
    for job in state.jobs.values():
        named |= {job.queue, job.named_queue}
    dead = sum(not entry.exists and entry.name not in named for entry in queues.entries)
    if dead <= MOST_UNKNOWN_QUEUES:
        return False
    queues.compact(named)
    return True


class TaskQueues:
    """The queues in which pods were bound, as seen by this process.

    `trusts_records`: whether only Bindery can write the records on pods.
    """

    def __init__(self, jobs: Mapping[JobKey, Job], holds: Holds, *, trusts_records: bool) -> None:
        self._jobs = jobs
        self._holds = holds
        self._trusts_records = trusts_records
        self._bound_in: dict[Uid, str] = {}
        """Bound pod -> the queue in which this process saw its binding."""

    def queue_of(self, job: Job, task: Task) -> str:
        """Return the queue in which `task` of `job` counts; its status must be up to date."""
        if not task.status.holds_room:
            return job.queue
        if task.status is TaskStatus.BINDING:
            hold = self._holds.get(task.uid) or Hold(task.node_name)
            is_assigned = job.is_assigned and hold.pod_group == job.uid
            return job.named_queue if is_assigned or not hold.queue else hold.queue
        if job.is_assigned and task.recorded_group == job.uid:
            return job.named_queue
        seen = self._bound_in.get(task.uid, "")
        # Where owners can write records, this process's own observation comes first.
        if self._trusts_records:
            return task.recorded_queue or seen or job.named_queue
        return seen or task.recorded_queue or job.named_queue

    def note_binding(self, uid: Uid, before: Task | None) -> None:
        """Remember the queue of a pod that has just been bound; `before` is its old task."""
        if uid in self._bound_in:
            return
        hold = self._holds.get(uid)
        if hold is not None and hold.queue:
            self._bound_in[uid] = hold.queue
        elif before is not None and before.is_ours and not before.pod_node:
            job = self._jobs[before.job]
            if job.exists:
                self._bound_in[uid] = job.queue

    def forget(self, uid: Uid) -> None:
        """Forget a pod that has gone."""
        self._bound_in.pop(uid, None)


def is_to_record(job: Job, task: Task) -> bool:
    """Return whether the record on the pod must be changed to the queue that `job` now has."""
    return job.is_assigned and bool(task.recorded_queue) and task.queue != task.recorded_queue
