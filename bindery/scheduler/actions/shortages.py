"""What follows from failed attempts to place equal pods for further ones. Used by `allocate`."""

from collections.abc import Mapping
from dataclasses import dataclass

from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.planning.session import Session


@dataclass(frozen=True, slots=True)
class Shortage:
    """How many equal pods fitted when a gang of them failed, and why no more."""

    fitted: int
    text: str


def shortage_of_equals(
    session: Session, job: Job, known: Mapping[Shape, Shortage]
) -> Shortage | None:
    """Return why the only pod of `job` fits nowhere; None if that takes an attempt.

    An attempt would come to the same result: on a full cluster, for each of thousands of equal
    jobs. `known`: shape -> the shortage that holds for pods of any job.
    """
    is_plain = job.tree is None and not job.roles and not job.stages and not job.is_constrained
    if not known or not is_plain or len(job.pending) != 1 or job.missing != 1:
        return None
    (task,) = job.pending.values()
    shortage, calls = known.get(task.shape), session.calls
    if shortage is None or shortage.fitted:
        return None
    tasks = [task]
    if calls.task_refusal(task) is not None or calls.over_capacity(job, tasks) is not None:
        return None
    if calls.has_own_domains(job, lambda: tasks):
        return None
    return shortage if session.placement.finder(job).speaks_for_others(task) else None
