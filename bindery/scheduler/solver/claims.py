"""The choice of pods for a claim: the first pods of a job that could be placed if there were room.

If no plan exists for a claim, the search may report the pod without room. The next claim of the
same attempt leaves out all pods that need as much.
"""

from collections.abc import Sequence

from bindery.scheduler.model import gangs
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.planning.next_pods import Barred
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.staging import awaited, first_groups, groups_of
from bindery.scheduler.solver.rules import RoomClaim


def next_claim(session: Session, job: Job, barred: Barred) -> RoomClaim | None:
    """Return the claim for the next pods of `job`; None if too few can be planned.

    Pods that a plugin refuses are added to `barred`, and barred pods are left out.
    """
    while tasks := session.next_pods(job, barred):
        session.timer.check()
        # Barring one pod can bring in others, so the choice is repeated.
        refused = [task for task in tasks if session.calls.task_refusal(task) is not None]
        if not refused:
            later = _later(session, job, tasks)
            return RoomClaim(job, (*tasks, *later)) if later is not None else None
        for task in refused:
            barred.add(task)
    return None


def starts(job: Job, tasks: Sequence[Task]) -> frozenset[str]:
    """Return the sub-groups of `job` that start with `tasks`, its next pods."""
    if not job.stages:
        return frozenset()
    if not job.is_satisfied:
        return first_groups(job)
    names = {task.sub_group for task in tasks}
    short = gangs.optional(job.tree, job.lacking) if job.tree is not None else ()
    found = (group for group in short if names <= {leaf.name for leaf in group.leaves()})
    return frozenset(name for group in found for name in groups_of(group))


def _later(session: Session, job: Job, tasks: Sequence[Task]) -> list[Task] | None:
    """Return the future pods of the stages that run at the same time as `tasks`.

    None if no nodes could ever take them. The caller clears them when it has tried the claim.
    """
    starting = starts(job, tasks)
    stages = awaited(job, starting) if starting else []
    if any(session.futures.problem(job, stage) is not None for stage in stages):
        return None
    return [task for stage in stages for task in session.futures.of(job, stage)]


def do_without(barred: Barred, claim: RoomClaim, lost: Task | None) -> bool:
    """Bar all pods that need as much as `lost`; return False if the pod without room is unknown.

    `lost`: a pod of `claim` for which no room can be made; None if the search does not know it.
    """
    # If all pods are equal, any of them is the one without room.
    if lost is None and len({task.shape for task in claim.tasks}) == 1:
        lost = claim.tasks[0]
    if lost is None or lost.is_future:  # a later stage cannot do without its pods
        return False
    barred.add_shape(lost)
    return True
