"""What the pods of one job hold, and whether the job runs or waits. Pure.

The plugins queuelimits and dra and `planning.hopeless` compare it with limits. `insight.shares`
and the status of queues count gangs by it.
"""

from collections.abc import Callable, Iterable

from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.resources import Request, total


def held(job: Job, least: Callable[[Request], Request]) -> dict[int, int]:
    """Return what the pods of `job` hold, as queues count it: position on the axis -> units.

    `least`: returns a request with its smallest amounts, as those of GPU memory depend on the node.
    """
    holding = (task for task in job.tasks.values() if task.status.holds_room)
    return total(least(task.shape.request) for task in holding)


def runs_or_waits(job: Job) -> tuple[int, int]:
    """Return 1 for a gang or single pod that runs, and 1 for one that waits; else 0.

    One that has ended, or whose pods do not exist, does neither.
    """
    if not job.exists:
        return 0, 0
    if not job.is_scheduled:
        return 0, int(bool(job.pending))
    return int(any(task.status.is_active for task in job.tasks.values())), 0


def running_pods(job: Job) -> int:
    """Return the number of pods that run or will soon."""
    return job.placed.total - job.succeeded.total


def is_elastic(job: Job) -> bool:
    """Return whether `job` is a gang with a minimum, so that its further pods are extra pods."""
    return job.key.is_group and (job.min_member > 0 or job.tree is not None)


def is_exclusive(job: Job) -> bool:
    """Return whether `job`, or a part of it, asks for a domain of its own."""
    return job.unit_count > 0 or any(each.is_exclusive for _, each in job.constraints())


def sharing(jobs: Iterable[Job], job: Job) -> list[Job]:
    """Return those of `jobs` that share exclusive domains with `job`, in the order of their keys.

    Pods without a PodGroup are jobs of their own, and their annotations may make them one unit.
    """
    units = {task.exclusive_unit for task in job.tasks.values()} - {None}
    if job.key.is_group or not units:
        return [job]
    found = (
        each
        for each in jobs
        if each.unit_count and not units.isdisjoint(t.exclusive_unit for t in each.tasks.values())
    )
    return sorted(found, key=lambda each: each.key)
