"""The parts of a gang that its controller or its segments make, beside its sub-groups.

Each part has a domain of its own below that of the group: the pods of a segment, or the child Job
of a JobSet that asks for an exclusive domain.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bindery.api.exclusive import ExclusiveUnit
from bindery.scheduler.model.constraints import Constraint, TreeKey
from bindery.scheduler.model.jobs import Job, Task, TaskStatus, Uid

_LEAVING = (TaskStatus.RELEASING, TaskStatus.STUCK, TaskStatus.SUCCEEDED, TaskStatus.FAILED)

IsMember = Callable[[Task], bool]
"""Whether a pod, of any job, belongs to a part."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some of the pods that are placed next."""

    tasks: Sequence[Task]
    constraint: Constraint | None
    is_member: IsMember


def split(job: Job, tasks: Sequence[Task]) -> list[Part]:
    """Return the parts of `tasks` of `job`, in their order; empty if they are not divided."""
    if not job.unit_count and not job.has_segments:
        return []
    divides = Divider(job)
    found: dict[Hashable, list[Task]] = {}
    for task in tasks:
        found.setdefault(divides.key(task), []).append(task)
    return [
        Part(members, divides.constraint(members[0]), divides.members(members[0]))
        for members in found.values()
    ]


class Divider:
    """Divides the pods of `job` into parts."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._segmented = {name: each for name, each in job.constraints() if each.segment}
        self._numbers: dict[str, Mapping[Uid, int]] = {}

    def key(self, task: Task) -> Hashable:
        """Return the part of `task`; equal for pods of one part."""
        if task.exclusive_unit is not None:
            return task.exclusive_unit
        return (task.sub_group, self._number(task)) if self._of(task) is not None else None

    def constraint(self, task: Task) -> Constraint | None:
        """Return the constraint of the part of `task`; None for pods in no part."""
        if task.exclusive_unit is not None:
            return of_unit(task.exclusive_unit)
        segmented = self._of(task)
        return None if segmented is None else segmented.segment

    def members(self, task: Task) -> IsMember:
        """Return the test for the pods of the part of `task`."""
        unit, key, job = task.exclusive_unit, self.key(task), self._job.key
        if unit is not None:
            return lambda each: each.exclusive_unit == unit
        return lambda each: each.job == job and self.key(each) == key

    def _of(self, task: Task) -> Constraint | None:
        return self._segmented.get(task.sub_group) or self._segmented.get("")

    def _number(self, task: Task) -> int:
        found = self._numbers.get(task.sub_group)
        if found is None:
            constraint = self._of(task)
            assert constraint is not None, "only pods in segments are numbered"
            members = [t for t in self._job.tasks.values() if t.sub_group == task.sub_group]
            found = _numbers(members, constraint.segment_size)
            self._numbers[task.sub_group] = found
        return found.get(task.uid, -1)


def of_unit(unit: ExclusiveUnit) -> Constraint:
    """Return the constraint of the pods of `unit`."""
    label = unit.node_label
    return Constraint(TreeKey(labels=(label,)), required=label, is_exclusive=True)


def _numbers(tasks: Iterable[Task], size: int) -> Mapping[Uid, int]:
    """Return pod -> number of its segment of `size` pods.

    Pods with one index each are numbered by it, so that a replaced pod has the segment of the old
    one. Others are numbered by their position in the order of ranks and names.
    """
    members = [task for task in tasks if task.status not in _LEAVING]
    if members and all(len(task.rank) == 1 for task in members):
        return {task.uid: task.rank[0] // size for task in members}
    members.sort(key=lambda task: task.order[1:])
    return {task.uid: position // size for position, task in enumerate(members)}
