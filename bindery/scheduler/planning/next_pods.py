"""The choice of the next pods of a job: the missing pods of its gang, then one extra at a time.

Actions and plugins call it through the session. Pure: it reads the counts of the job, and its pods
in the order of the plugins. A gang takes the first pods that can be placed: an attempt bars the
others and asks again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from bindery.scheduler.model import gangs
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import Job, Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.planning.placement import Placement
from bindery.scheduler.planning.view import PlanningView


class Barred:
    """The pods that an attempt leaves out: single pods, or all equal pods."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._pods: set[Uid] = set()
        self._shapes: set[Shape] = set()

    def add(self, task: Task) -> None:
        """Leave out `task` alone."""
        self._pods.add(task.uid)

    def add_shape(self, task: Task) -> None:
        """Leave out `task` and all pods of its shape, because they fit on no node."""
        if self._placement.is_filtered(task.shape):
            self._pods.add(task.uid)
        else:
            self._shapes.add(task.shape)

    def __contains__(self, task: Task) -> bool:
        return task.shape in self._shapes or task.uid in self._pods


def kind(task: Task) -> tuple[Shape, bool]:
    """Return the properties of a pod that its queue limits depend on."""
    return task.shape, task.is_preemptible


@dataclass(frozen=True, slots=True)
class WantedPods:
    """Candidates for pods that are placed together: the first ones that fit, as many as needed."""

    candidates: Sequence[Task]
    """In the order of attempts."""
    _select: Callable[[Sequence[Task]], Sequence[Task] | None]

    def next(self, barred: Barred) -> Sequence[Task] | None:
        """Return the missing pods, without `barred` ones; None if too few are left.

        Empty if nothing is missing.
        """
        return self._select(_pending(self.candidates, barred))

    def all(self) -> Sequence[Task] | None:
        """Return the missing pods if all of them fit; None if there are too few."""
        return self._select(_pending(self.candidates, None))


def of_gang(job: Job, tasks: Sequence[Task]) -> WantedPods:
    """Return `tasks`, the pending pods of `job` in order, as candidates for its minimum.

    The minimum includes the sub-groups and roles.
    """
    return WantedPods(tasks, partial(_minimum, job))


def of_leaf(job: Job, leaf: Group, tasks: Sequence[Task]) -> WantedPods:
    """Return `tasks`, the pods of the sub-group `leaf` of `job` in order, as candidates for it."""
    return WantedPods(tasks, lambda pending: _first(pending, job.lacking(leaf)))


def of_one(task: Task) -> WantedPods:
    """Return `task` as the only candidate."""
    return WantedPods([task], lambda pending: _first(pending, task.status is TaskStatus.PENDING))


def of_all(tasks: Sequence[Task]) -> WantedPods:
    """Return all of `tasks` as candidates, of which none may be left out."""

    def select(pending: Sequence[Task]) -> Sequence[Task] | None:
        return _first(pending, sum(task.status is TaskStatus.PENDING for task in tasks))

    return WantedPods(tasks, select)


def next_pods(session: PlanningView, job: Job, barred: Barred | None = None) -> Sequence[Task]:
    """Return the next pods of `job` to place together: its gang, or one extra pod.

    If a sub-group is incomplete, its missing pods come together as extra pods. Empty if too few are
    left without the `barred` pods.
    """
    tasks = _pending(session.calls.pods_in_order(job), barred)
    minimum = _minimum(job, tasks)
    if minimum is None:
        return ()
    if minimum or job.tree is None:
        return minimum or tasks[:1]
    waiting = Counter(task.sub_group for task in tasks)
    short = list(gangs.optional(job.tree, job.lacking))
    for group in short:
        chosen = _of_leaves(tasks, gangs.wanted(group, job.lacking, waiting) or {})
        if chosen:
            return chosen
    lacking = {leaf.name for group in short for leaf in group.leaves()}
    return [task for task in tasks if task.sub_group not in lacking][:1]


def _pending(tasks: Sequence[Task], barred: Barred | None) -> Sequence[Task]:
    return [
        task
        for task in tasks
        if task.status is TaskStatus.PENDING and (barred is None or task not in barred)
    ]


def _first(pending: Sequence[Task], count: int) -> Sequence[Task] | None:
    count = max(0, count)
    return pending[:count] if count <= len(pending) else None


def _minimum(job: Job, tasks: Sequence[Task]) -> Sequence[Task] | None:
    """Return the first of `tasks` that complete the gang of `job`; None if there are too few."""
    lacking = job.lacking_roles() if job.roles else {}
    if job.tree is None and not lacking:  # nearly all gangs: any of the pods will do
        return _first(tasks, job.missing)
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
