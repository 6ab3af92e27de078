"""Which pods of a job are placed next: what its gang lacks, then one extra at a time.

Asked through the session, by actions and plugins. Pure: it reads the job's counts and the order in
which the session's plugins would place its pods.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from bindery.scheduler.model import gangs
from bindery.scheduler.model.jobs import Job, Task, Uid

if TYPE_CHECKING:
    from bindery.scheduler.session import Session


def next_pods(session: "Session", job: Job) -> list[Task]:
    """Return the pods of `job` that are placed next, together: its gang, or one extra pod.

    Of a job with sub-groups, extra pods come as a whole sub-group where one is not complete.
    """
    minimum = minimum_pods(session, job)
    if minimum or job.tree is None:
        return minimum or session.pods_in_order(job)[:1]
    tasks, waiting = session.pods_in_order(job), job.waiting.groups
    short = list(gangs.optional(job.tree, job.lacking))
    for group in short:
        chosen = _of_leaves(tasks, gangs.wanted(group, job.lacking, waiting) or {})
        if chosen:
            return chosen
    lacking = {leaf.name for group in short for leaf in group.leaves()}
    return [task for task in tasks if task.sub_group not in lacking][:1]


def minimum_pods(session: "Session", job: Job) -> list[Task]:
    """Return the pods that fill up the sub-groups, roles and minimum of `job`."""
    tasks, lacking = session.pods_in_order(job), job.lacking_roles()
    chosen: dict[Uid, Task] = {}
    if job.tree is not None:
        leaves = gangs.wanted(job.tree, job.lacking, job.waiting.groups) or {}
        chosen = {task.uid: task for task in _of_leaves(tasks, leaves)}
    for task in chosen.values():
        lacking[task.role] = lacking.get(task.role, 0) - 1
    for task in tasks if lacking else ():
        if task.uid not in chosen and lacking.get(task.role, 0) > 0:
            lacking[task.role] -= 1
            chosen[task.uid] = task
    others = (task for task in tasks if task.uid not in chosen)
    rest = islice(others, max(0, job.missing - len(chosen)))
    uids = {*chosen, *(task.uid for task in rest)}
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
