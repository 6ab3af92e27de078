"""Which pods of a job a claim is made for: the first that could be placed if room were made.

A claim for which there is no plan tells which of its pods found no room; the next claim of the same
attempt does without the pods that need as much.
"""

from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.planning.next_pods import Barred
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.rules import Claim


def next_claim(session: Session, job: Job, barred: Barred) -> Claim | None:
    """Return the claim for the pods of `job` that are placed next, without those that are `barred`
    or that a plugin refuses; None if the others are too few.
    """
    while tasks := session.next_pods(job, barred):
        refused = [task for task in tasks if session.task_refusal(task) is not None]
        if not refused:
            return Claim(job, tuple(tasks))
        for task in refused:
            barred.add(task)
    return None


def do_without(barred: Barred, claim: Claim, lost: Task | None) -> bool:
    """Bar the pods of which `claim` cannot have any; return whether it is known which these are.

    `lost`: a pod of it for which no room can be made, where the search tells.
    """
    if lost is None and len({task.shape for task in claim.tasks}) == 1:
        lost = claim.tasks[0]
    if lost is not None:
        barred.add_shape(lost)
    return lost is not None
