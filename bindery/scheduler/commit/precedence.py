"""Prerequisites of Statements: extra pods of a gang must not be bound before its minimum.

Used by drafts.py for each Statement of a session; stale.py uses `bound_pods`. Invariant: the pods
of a Statement without a prerequisite and the gang's bound pods together are the gang's minimum.
So no extra pod is bound before the minimum, whatever other requests fail.
"""

from collections.abc import Sequence

from bindery.kube.objects.bindrequests import StatementSpec
from bindery.scheduler.cache.holds import Holds, owner_and_commit
from bindery.scheduler.model.jobs import Job, JobKey, Tally, Task, TaskStatus


class Precedence:
    """The prerequisites of the Statements of one session. `holds`: requests in progress."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._bound: dict[JobKey, Tally] = {}
        self._whole: dict[tuple[JobKey, str], str] = {}
        """(job, sub-group or "" for the job) -> this session's Statement that completes it."""

    def needed_before(self, job: Job, tasks: Sequence[Task]) -> str | None:
        """Return the id of the prerequisite Statement of `tasks`, which are all placed.

        None means that they need none, or that no Statement would help.
        """
        # All placed pods of the gang are in this Statement, or the pod has no PodGroup.
        if not job.key.is_group or job.placed.total == len(tasks):
            return None
        bound, own = self._bound_of(job), _tally(tasks)
        for leaf in job.tree.leaves() if job.tree is not None else ():
            if leaf.name in own.groups and job.lacking_of(leaf, bound, own) > 0:
                return self._whole.get((job.key, leaf.name)) or self._under_way(job, leaf.name)
        if job.is_met_by(bound, own):
            return None
        return self._whole.get((job.key, "")) or self._under_way(job)

    def completes(self, job: Job, tasks: Sequence[Task]) -> bool:
        """Return whether `tasks` complete a gang whose pods are not interchangeable.

        In a gang without roles and sub-groups each pod may fail alone, as any other pod can
        complete the gang instead.
        """
        if not job.roles and job.tree is None:
            return False
        bound = self._bound_of(job)
        return not job.is_met_by(bound) and job.is_met_by(bound, _tally(tasks))

    def note(self, job: Job, tasks: Sequence[Task], statement: str) -> None:
        """Record that `statement`, with `tasks`, completes `job` and their sub-groups."""
        for name in {"", *(task.sub_group for task in tasks)}:
            self._whole.setdefault((job.key, name), statement)

    def _bound_of(self, job: Job) -> Tally:
        if job.key not in self._bound:
            self._bound[job.key] = bound_pods(job, self._holds)
        return self._bound[job.key]

    def _under_way(self, job: Job, sub_group: str | None = None) -> str | None:
        """Return the newest Statement in progress that completes `job` or a sub-group.

        If there are only requests of extra pods, return the newest of those: it fails if its own
        prerequisite fails, so the new Statement fails with it.
        """
        binding = [task for task in job.tasks.values() if task.status is TaskStatus.BINDING]
        pods = (task.uid for task in binding if sub_group in (None, task.sub_group))
        specs = [spec for uid in pods if (spec := self._holds.spec_for(uid)) is not None]
        newest = max(specs, key=lambda spec: (not _is_extra(spec), _count(spec)), default=None)
        return newest.id if newest is not None else None


def bound_pods(job: Job, holds: Holds) -> Tally:
    """Return the pods that `job` certainly has: bound pods and succeeded pods."""
    return _tally([task for task in job.tasks.values() if _is_bound(task, holds)])


def _is_bound(task: Task, holds: Holds) -> bool:
    if task.status is TaskStatus.BINDING:
        hold = holds.get(task.uid)
        return hold is not None and hold.is_bound
    return task.status in (TaskStatus.RUNNING, TaskStatus.SUCCEEDED)


def _tally(tasks: Sequence[Task]) -> Tally:
    tally = Tally()
    for task in tasks:
        tally.count(task, 1)
    return tally


def _is_extra(spec: StatementSpec) -> bool:
    """Return whether the request has only extra pods, each of which may fail alone."""
    alone = spec.parts == 1 and len(spec.pods) == 1
    return spec.min_bound == 0 or (alone and spec.after is not None)


def _count(spec: StatementSpec) -> tuple[int, str]:
    """Return the sort key of a Statement: its commit number, then its id."""
    _, count = owner_and_commit(spec.id)
    return count, spec.id
