"""The units of eviction of a job: each extra pod is one, and the rest of its gang is one.

Extra pods go before the core, the last pods first. A core with non-preemptible pods stays, if the
quota of its queue has room for the other pods of the core too: otherwise one pod within the quota
would protect a large gang on borrowed room. While pods of the minimum are being bound, the core
stays, too. Used by `victims`, which turns units into columns.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import NO_ROW, Job, Task, TaskStatus, Uid
from bindery.scheduler.model.pinned_quota import PinnedQuota
from bindery.scheduler.planning.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class EvictionUnit:
    """Pods of one job that are evicted together."""

    job: Job
    tasks: tuple[Task, ...]
    is_core: bool
    """Whether the gang falls below its minimum if the unit is evicted."""
    is_pinned: bool = False
    """Whether it stays because of non-preemptible pods."""


def may_go(session: Session, task: Task) -> bool:
    """Return whether `task` may be evicted for any job."""
    return task.is_preemptible and _is_evictable(session, task)


def _is_evictable(session: Session, task: Task) -> bool:
    return task.row != NO_ROW and task.uid not in session.memory.spared


MayGo = Callable[[Session, Task], bool]


def units(
    session: Session, job: Job, quota: PinnedQuota, allowed: MayGo = may_go
) -> list[EvictionUnit]:
    """Return the units of eviction of `job`, in the order of eviction.

    Pods that are not `allowed` to go still count towards the minimum, so others can be extra pods.
    `quota`: takes the cores that non-preemptible pods protect.
    """
    running = [task for task in job.tasks.values() if task.status is TaskStatus.RUNNING]
    if not running:
        return []
    if len(running) > 1:  # most jobs have one pod, and keys are the largest cost here
        running.sort(key=session.calls.pod_sort_key, reverse=True)
    free = {task.uid for task in running if allowed(session, task)}
    extras = () if job.goes_whole else _extras(job, running, free)
    found = [
        EvictionUnit(job, tuple(extra), is_core=False, is_pinned=any(map(_is_pinned, extra)))
        for extra in extras
    ]
    gone = {task.uid for unit in found for task in unit.tasks}
    core = tuple(task for task in running if task.uid not in gone)
    if not core or _awaits_outcome(job, len(running)):
        return found
    is_pinned = _is_protected(core, quota)
    if not is_pinned:  # its non-preemptible pods go with the others
        free |= {task.uid for task in core if _is_pinned(task) and _is_evictable(session, task)}
    if all(task.uid in free for task in core):
        found.append(EvictionUnit(job, core, is_core=True, is_pinned=is_pinned))
    return found


def _awaits_outcome(job: Job, running: int) -> bool:
    """Return whether pods of its minimum are being bound: they would stay without the core."""
    if running >= job.min_member:
        return False
    return any(task.status is TaskStatus.BINDING for task in job.tasks.values())


def _is_pinned(task: Task) -> bool:
    return not task.is_preemptible


def _is_protected(core: Sequence[Task], quota: PinnedQuota) -> bool:
    """Return whether `core` stays because of non-preemptible pods."""
    others = [task for task in core if task.is_preemptible]
    if len(others) in (0, len(core)):  # nearly all gangs
        return not others
    return not quota.take(others[0].queue_row, others)


def _extras(job: Job, running: Sequence[Task], free: AbstractSet[Uid]) -> Iterable[list[Task]]:
    """Yield the groups of `free` pods that can go while the gang keeps its minimum."""
    surplus = job.placed.total - job.min_member
    spare_roles = {role: job.placed.roles[role] - least for role, least in job.roles.items()}
    spare_leaves: dict[str, int] = {}
    if job.tree is not None:
        pinned = {task.sub_group for task in running if task.uid not in free}
        for group in _optional(job, job.tree, pinned):
            members = {leaf.name for leaf in group.leaves()}
            tasks = [task for task in running if task.sub_group in members]
            if tasks and len(tasks) <= surplus and _roles_allow(tasks, spare_roles):
                surplus -= len(tasks)
                yield tasks
                running = [task for task in running if task not in tasks]
        spare_leaves = {leaf.name: -job.lacking(leaf) for leaf in job.tree.leaves()}
        # Pods of incomplete leaves count for nothing while the tree is satisfied without them.
        if job.tree.is_satisfied(job.lacking):
            useless = (leaf.name for leaf in _useless_leaves(job, job.tree))
            spare_leaves.update((name, job.placed.groups[name]) for name in useless)
    for task in running:
        spare = spare_leaves.get(task.sub_group, surplus)
        if task.uid not in free or surplus <= 0 or spare <= 0:
            continue
        if _roles_allow([task], spare_roles):
            surplus -= 1
            if task.sub_group in spare_leaves:
                spare_leaves[task.sub_group] -= 1
            yield [task]


def _optional(job: Job, group: Group, pinned: AbstractSet[str]) -> Iterable[Group]:
    """Yield satisfied groups beyond the minimum of `group`, the last of the spec first."""
    satisfied = [child for child in group.children if child.is_satisfied(job.lacking)]
    # A later stage that runs is worth as much as the first: the one is of no use without the other.
    surplus = sum(not child.after for child in satisfied) - group.needed_children
    for child in reversed(satisfied):
        if (
            surplus > 0
            and not child.after
            and pinned.isdisjoint(leaf.name for leaf in child.leaves())
        ):
            surplus -= 1
            yield child
        else:
            yield from _optional(job, child, pinned)


def _useless_leaves(job: Job, group: Group) -> Iterable[Group]:
    """Yield the leaves of the satisfied `group` with too few pods to count."""
    for child in group.children:
        if child.is_satisfied(job.lacking):
            yield from _useless_leaves(job, child)
        else:
            yield from child.leaves()


def _roles_allow(tasks: Sequence[Task], spare: dict[str, int]) -> bool:
    for task in tasks:
        if spare.get(task.role, 1) <= 0:
            return False
    # Counted only when all are allowed, so that a refused group changes nothing.
    for task in tasks:
        if task.role in spare:
            spare[task.role] -= 1
    return True
