"""The choice of pods for a claim: the first pods of a job that could be placed if there were room.

If no plan exists for a claim, the search may report the pod without room. The next claim of the
same attempt leaves out all pods that need as much.
"""

from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.planning.next_pods import Barred
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.rules import Claim


def next_claim(session: Session, job: Job, barred: Barred) -> Claim | None:
    """Return the claim for the next pods of `job`; None if too few can be planned.

    Pods that a plugin refuses are added to `barred`, and barred pods are left out.
    """
    while tasks := session.next_pods(job, barred):
        # Barring one pod can bring in others, so the choice is repeated.
        refused = [task for task in tasks if session.task_refusal(task) is not None]
        if not refused:
            return Claim(job, tuple(tasks))
        for task in refused:
            barred.add(task)
    return None


def do_without(barred: Barred, claim: Claim, lost: Task | None) -> bool:
    """Bar all pods that need as much as `lost`; return False if the pod without room is unknown.

    `lost`: a pod of `claim` for which no room can be made; None if the search does not know it.
    """
    # If all pods are equal, any of them is the one without room.
    if lost is None and len({task.shape for task in claim.tasks}) == 1:
        lost = claim.tasks[0]
    if lost is not None:
        barred.add_shape(lost)
    return lost is not None
