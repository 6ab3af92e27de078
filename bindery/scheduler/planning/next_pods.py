"""The choice of the next pods of a job: the missing pods of its gang, then one extra at a time.

Actions and plugins call it through the session. Pure: it reads the counts of the job, and its pods
in the order of the plugins. A gang takes the first pods that can be placed: an attempt bars the
others and asks again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from bindery.scheduler.model import gangs
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import Job, Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.planning.placement import Placement
from bindery.scheduler.planning.view import PlanningView


class Barred:
    """The pods that an attempt leaves out: single pods, and equal pods without room."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._pods: set[Uid] = set()
        self._fitting: dict[tuple[Shape, str], frozenset[Uid]] = {}
        """Shape and sub-group -> the only pods of it that may be taken."""

    def add(self, task: Task) -> None:
        """Leave out `task` alone."""
        self._pods.add(task.uid)

    def add_equal(self, task: Task, fitting: Iterable[Task] = ()) -> None:
        """Leave out `task` and all equal pods of its sub-group, except `fitting`.

        The second time, all of them: else they would become fewer pod by pod.
        """
        if self._placement.is_filtered(task.shape):
            self._pods.add(task.uid)
            return
        key = task.shape, task.sub_group
        few = () if key in self._fitting else fitting
        self._fitting[key] = frozenset(t.uid for t in few if (t.shape, t.sub_group) == key)

    def __contains__(self, task: Task) -> bool:
        if task.uid in self._pods:
            return True
        fitting = self._fitting.get((task.shape, task.sub_group))
        return fitting is not None and task.uid not in fitting


@dataclass(frozen=True, slots=True, eq=False)
class JobPart:
    """Pods of `job` that are placed together: its gang, a sub-group, or one extra pod."""

    job: Job
    candidates: Sequence[Task]
    """In the order of placement."""
    group: Group | None = None
    """The sub-group; None for the gang, and for an extra pod."""
    extra: Task | None = None

    @property
    def starts(self) -> frozenset[str]:
        """The sub-groups that start with it, of a job with stages."""
        group = self.group or self.job.tree
        if not self.job.stages or self.extra is not None or group is None:
            return frozenset()
        return frozenset(group.together())

    def next(self, barred: Barred | None = None) -> Sequence[Task] | None:
        """Return the missing pods, without `barred` ones; None if too few are left."""
        if self.extra is not None:
            return _pending([self.extra], barred) or None
        tasks = _pending(self.candidates, barred)
        if self.group is None:
            return _minimum(self.job, tasks)
        waiting = Counter(task.sub_group for task in tasks)
        counts = gangs.wanted(self.group, self.job.lacking, waiting)
        return None if counts is None else _of_leaves(tasks, counts)


def parts(job: Job, tasks: Sequence[Task]) -> Iterator[JobPart]:
    """Yield what `job` may take next: its gang; if that is complete, sub-groups and extra pods.

    `tasks`: its pending pods in the order of placement.
    """
    if not job.is_promised:
        yield JobPart(job, tasks)
        return
    short = list(gangs.optional(job.tree, job.lacking)) if job.tree is not None else []
    for group in short:
        yield JobPart(job, tasks, group)
    lacking = {leaf.name for group in short for leaf in group.leaves() if job.lacking(leaf) > 0}
    for task in tasks:
        if task.sub_group not in lacking:
            yield JobPart(job, tasks, extra=task)


def next_pods(session: PlanningView, job: Job, barred: Barred | None = None) -> Sequence[Task]:
    """Return the next pods of `job` to place together: its gang, or one extra pod.

    If a sub-group is incomplete, its missing pods come together as extra pods. Empty if too few are
    left without the `barred` pods.
    """
    chosen = (part.next(barred) for part in parts(job, session.calls.pods_in_order(job)))
    return next(filter(None, chosen), ())


def _pending(tasks: Sequence[Task], barred: Barred | None) -> Sequence[Task]:
    return [
        task
        for task in tasks
        if task.status is TaskStatus.PENDING and (barred is None or task not in barred)
    ]


def _minimum(job: Job, tasks: Sequence[Task]) -> Sequence[Task] | None:
    """Return the first of `tasks` that complete the gang of `job`; None if there are too few."""
    lacking = job.lacking_roles() if job.roles else {}
    if job.tree is None and not lacking:  # nearly all gangs: any of the pods will do
        return tasks[: job.missing] if job.missing <= len(tasks) else None
    chosen: dict[Uid, Task] = {}
    if job.tree is not None:
        waiting = Counter(task.sub_group for task in tasks)
        leaves = gangs.wanted(job.tree, job.lacking, waiting)
        if leaves is None:
            return None
        chosen = {task.uid: task for task in _of_leaves(tasks, leaves)}
    for task in chosen.values():
        lacking[task.role] = lacking.get(task.role, 0) - 1
    for task in tasks if lacking else ():
        if task.uid not in chosen and lacking.get(task.role, 0) > 0:
            lacking[task.role] -= 1
            chosen[task.uid] = task
    missing = max(0, job.missing - len(chosen))
    others = (task for task in tasks if task.uid not in chosen)
    rest = [task.uid for task in islice(others, missing)]
    if len(rest) < missing or any(count > 0 for count in lacking.values()):
        return None
    # In the order of `tasks` again: placement goes by it.
    uids = {*chosen, *rest}
    return [task for task in tasks if task.uid in uids]


def _of_leaves(tasks: Iterable[Task], counts: Mapping[str, int]) -> list[Task]:
    """Return the first `counts` (leaf name -> pods) of `tasks` of each leaf."""
    left = dict(counts)
    chosen = []
    for task in tasks:
        if left.get(task.sub_group, 0) > 0:
            left[task.sub_group] -= 1
            chosen.append(task)
    return chosen
