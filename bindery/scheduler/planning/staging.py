"""Which later stages of a gang run at the same time as others, and until when room is kept.

Pure: reads the counts and the objects of the job, so a restarted scheduler finds the same.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from bindery.api.times import seconds
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import Job, Task, TaskStatus
from bindery.scheduler.model.stages import COMPLETE, Stage


def first_groups(job: Job) -> frozenset[str]:
    """Return the names of the sub-groups that start with the gang."""
    return frozenset(_together(job.tree)) if job.tree is not None else frozenset()


def groups_of(group: Group) -> frozenset[str]:
    """Return the names of the sub-groups that start with `group`."""
    return frozenset(_together(group))


def _together(group: Group) -> Iterator[str]:
    yield group.name
    for child in group.children:
        if not child.after:
            yield from _together(child)


def awaited(job: Job, starting: Collection[str] = ()) -> list[Stage]:
    """Return the stages without their pods that run together with what runs now.

    A stage whose predecessors have all ended runs with nothing, so nothing waits for its room.

    `starting`: the sub-groups that are about to start; they count as running. A stage that waits
    for others to complete is not awaited before they have.
    """
    if not job.stages or not (starting or job.placed.total):
        return []
    running, found = set(starting), []
    for stage in job.stages:
        if stage.name in running or stage.group.is_satisfied(job.lacking):
            continue
        if _is_next(job, stage, running):
            running.update(groups_of(stage.group))
            found.append(stage)
    return found


def _is_next(job: Job, stage: Stage, running: Collection[str]) -> bool:
    """Return whether the pods of `stage` come next, and while those of another group run.

    `running`: groups that start now or are awaited themselves.
    """
    runs_with_others = False
    for other, condition in stage.after:
        group = _group(job, other)
        if condition == COMPLETE:
            if not is_complete(job, group):
                return False
        elif other in running:
            runs_with_others = True
        elif group.is_satisfied(job.lacking):
            runs_with_others |= any(job.runs(leaf) for leaf in group.leaves())
        else:
            return False
    return runs_with_others


def is_complete(job: Job, group: Group) -> bool:
    """Return whether enough pods of `group` have succeeded."""
    return group.is_satisfied(lambda leaf: job.lacking_of(leaf, job.succeeded))


def _group(job: Job, name: str) -> Group:
    return job.groups[name]


def kept_until(job: Job, stages: Sequence[Stage], max_timeout_s: float) -> dict[str, float | None]:
    """Return stage -> the time at which its room is released; None: not known yet.

    The time is minus infinity if the pods of the sub-groups before the stage no longer exist.

    Times are in seconds since the epoch. The time counts from the binding of the last pod of these
    sub-groups. `stages`: the awaited stages, in order.
    """
    found: dict[str, float | None] = {}
    for stage in stages:
        leaves = {
            leaf.name
            for other, condition in stage.after
            if condition != COMPLETE
            for leaf in _group(job, other).leaves()
        }
        earlier = [found[other] for other, _ in stage.after if other in found]
        before = (task for task in job.tasks.values() if task.sub_group in leaves)
        timeout_s = min(job.stage_timeout_s, max_timeout_s)
        found[stage.name] = _latest([*_ends(before, timeout_s), *earlier])
    return found


def _ends(tasks: Iterable[Task], timeout_s: float) -> Iterator[float | None]:
    for task in tasks:
        if task.status.is_active or task.status is TaskStatus.SUCCEEDED:
            bound_at = task.bound_at if task.bound_at is not None else _created(task)
            yield bound_at + timeout_s if bound_at is not None else None


def _created(task: Task) -> float | None:
    """Return when a bound pod without a time of its binding was created."""
    return seconds(task.created) if task.pod_node else None


def _latest(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return max(known, default=-math.inf) if len(known) == len(times) else None


def gathering(job: Job) -> tuple[Stage, int] | None:
    """Return the first later stage of which only some pods exist, and the number of its pods that
    wait; None if there is none.
    """
    for stage in job.stages:
        count = sum(job.waiting.groups[leaf.name] for leaf in stage.group.leaves())
        has_come = stage.group.is_satisfied(
            lambda leaf: job.lacking_of(leaf, job.placed, job.promised, job.waiting)
        )
        if count and not has_come:
            return stage, count
    return None
