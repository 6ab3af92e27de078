"""Jobs that could not run now even if nothing else ran.

Their reason is another than that of jobs that wait for others, so they have no turn. A new node or
a larger limit changes that. Called by `job_reports`, `insight.order` and `insight.ranking`.
"""

from collections.abc import Sequence

import numpy as np

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.holdings import held
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.planning.next_pods import Barred
from bindery.scheduler.planning.session import Session


class EmptyNodes:
    """The nodes that could take pods if they were empty; answers are kept for a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._takes: dict[Shape, bool] = {}

    def take(self, shape: Shape) -> bool:
        """Return whether any node, if it is empty, has room for a pod of `shape`."""
        found = self._takes.get(shape)
        if found is None:
            found = self._takes[shape] = bool(self.roomy(shape, self._session.order).any())
        return found

    def roomy(self, shape: Shape, rows: Rows) -> BoolColumn:
        """Return for each of `rows` whether the node, if it is empty, takes a pod of `shape`."""
        nodes = self._session.state.nodes
        roomy: BoolColumn = self._session.passing(shape)[rows]
        for index, amount in nodes.demands(shape.request, rows):
            roomy = roomy & (nodes.allocatable[index][rows] >= amount)
        return np.asarray(roomy)


class _SinglePods:
    """What `can_run` has found out about single pods in a session; thousands may be equal."""

    def __init__(self, _: Session) -> None:
        self.can_run: dict[tuple[Shape, str], bool] = {}
        """Shape and queue -> the answer."""


def can_run(session: Session, job: Job) -> bool:
    """Return whether more pods of `job` would fit if nothing else ran."""
    if job.key.is_group or len(job.pending) != 1:
        return _can_run(session, job)
    (task,) = job.pending.values()
    known, key = session.once(_SinglePods, _SinglePods).can_run, (task.shape, job.queue)
    if key not in known:
        known[key] = _can_run(session, job)
    return known[key]


def _can_run(session: Session, job: Job) -> bool:
    empty, barred = session.once(EmptyNodes, EmptyNodes), Barred(session.placement)
    equal = {(task.shape, task.sub_group): task for task in job.pending.values()}
    for (shape, _), task in equal.items():
        if not empty.take(shape):
            barred.add_equal(task)
    tasks = session.next_pods(job, barred)
    return bool(tasks) and not _exceeds_limit(session, job, tasks)


def _exceeds_limit(session: Session, job: Job, tasks: Sequence[Task]) -> bool:
    """Return whether `tasks` and the holdings of `job` exceed a limit of its queue or above."""
    least = session.state.nodes.least
    own = held(job, least)
    asked = total(least(task.shape.request) for task in tasks)
    return any(
        own.get(index, 0) + amount > session.shares.limit[index, row]
        for row in session.queue_ledger.chains[session.queue_row(job)]
        for index, amount in asked.items()
    )
