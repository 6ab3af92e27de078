"""Which Statement another one builds on: a gang's further pods are nothing before it is whole.

Asked by drafts.py for each Statement of a session; stale.py asks it what is bound. The one
invariant: of a Statement that names none before it, the pods and those that are bound already are
all that the gang needs, so that whatever else fails, it is not half there.
"""

from collections.abc import Sequence

from bindery.scheduler.cache.holds import Holds, Spec, owner_and_commit
from bindery.scheduler.model.jobs import Job, JobKey, Tally, Task, TaskStatus


class Precedence:
    """What the Statements of one session build on. `holds`: the requests that are under way."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._bound: dict[JobKey, Tally] = {}
        self._whole: dict[tuple[JobKey, str], str] = {}
        """Job and sub-group (none: the job) -> the Statement of this session that made it whole."""

    def needed_before(self, job: Job, tasks: Sequence[Task]) -> str | None:
        """Return the id of the Statement that one of `tasks`, all placed, is to come after.

        None: it can stand alone, or there is none that would help.
        """
        # Without others it completes the gang by itself; a pod without a PodGroup always does.
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
        """Return whether `tasks` complete a gang in which no other pod could do it in their place.

        Where all pods count the same, each may fail alone: another completes the gang as well.
        """
        if not job.roles and job.tree is None:
            return False
        bound = self._bound_of(job)
        return not job.is_met_by(bound) and job.is_met_by(bound, _tally(tasks))

    def note(self, job: Job, tasks: Sequence[Task], statement: str) -> None:
        """Note that `statement`, with `tasks`, makes `job`, or sub-groups of it, whole."""
        for name in {"", *(task.sub_group for task in tasks)}:
            self._whole.setdefault((job.key, name), statement)

    def _bound_of(self, job: Job) -> Tally:
        if job.key not in self._bound:
            self._bound[job.key] = bound_pods(job, self._holds)
        return self._bound[job.key]

    def _under_way(self, job: Job, sub_group: str | None = None) -> str | None:
        """Return the newest Statement of an earlier cycle that makes `job`, or a sub-group, whole.

        If there is none, what is under way is lost with the one on which it builds: what builds on
        it goes the same way.
        """
        binding = [task for task in job.tasks.values() if task.status is TaskStatus.BINDING]
        pods = (task.uid for task in binding if sub_group in (None, task.sub_group))
        specs = [spec for uid in pods if (spec := self._holds.spec_for(uid)) is not None]
        newest = max(specs, key=lambda spec: (not _is_extra(spec), _count(spec)), default=None)
        return newest.statement.id if newest is not None else None


def bound_pods(job: Job, holds: Holds) -> Tally:
    """Return what `job` has for sure: pods that are bound, or have succeeded already."""
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


def _is_extra(spec: Spec) -> bool:
    """Return whether the request is one of pods that each are only one more of their gang."""
    alone = spec.statement.parts == 1 and len(spec.pods) == 1
    return spec.min_bound == 0 or (alone and spec.statement.after is not None)


def _count(spec: Spec) -> tuple[int, str]:
    """Return the number of the commit after which the Statement is named, and its name."""
    _, count = owner_and_commit(spec.statement.id)
    return count, spec.statement.id
