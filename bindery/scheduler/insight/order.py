"""The position of a job among the waiting jobs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bindery.scheduler.model.jobs import Job, JobKey, Task
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.work_list import WorkList

_SHOWN_AHEAD = 5
_PASSING = frozenset({JobReason.COMMIT_FAILED, JobReason.COMMIT_UNDER_WAY})
"""Temporary reasons."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the order of serving; 1 is first."""

    place: int
    of: int
    """Number of jobs that wait for their turn."""
    place_in_queue: int
    of_queue: int
    """Number of them in the same queue."""
    ahead: tuple[JobKey, ...]
    """The first of the jobs before it, in order."""


class Turns:
    """The order of serving of the jobs that still wait in a session.

    Jobs that could not run on an empty cluster are left out: no other job waits for them. Made at
    the end of a cycle, so the pods that the cycle placed count in the order of queues.
    """

    def __init__(self, session: Session) -> None:
        waiting = [
            each
            for each in session.state.waiting.values()
            if each.pending and each not in session.failed and can_ever_run(session, each)
        ]
        self.order = [each.key for each in WorkList(session, waiting)]
        """The jobs, in order."""
        self._queues = {each.key: each.queue for each in waiting}

    def position(self, job: Job) -> Position | None:
        """Return the position of `job`; None if it does not wait for its turn."""
        if job.key not in self._queues:
            return None
        place = self.order.index(job.key)
        same = [key for key in self.order if self._queues[key] == job.queue]
        ahead = self.order[:place]
        return Position(
            place=place + 1,
            of=len(self.order),
            place_in_queue=same.index(job.key) + 1,
            of_queue=len(same),
            ahead=tuple(ahead[:_SHOWN_AHEAD]),
        )


def can_ever_run(session: Session, job: Job) -> bool:
    """Return whether more pods of `job` would fit if nothing else ran."""
    refusals = [plugin.invalid(session, job) for plugin in session.plugins.validity]
    # A job with a temporary refusal keeps its turn.
    if any(refusal is not None and refusal.reason not in _PASSING for refusal in refusals):
        return False
    tasks = session.next_pods(job)
    if not tasks or any(session.task_refusal(task) is not None for task in tasks):
        return False
    fits = {shape: _fits_somewhere(session, shape) for shape in {task.shape for task in tasks}}
    return all(fits.values()) and not _exceeds_limit(session, job, tasks)


def _fits_somewhere(session: Session, shape: Shape) -> bool:
    """Return whether any node, if empty, has room for a pod of `shape`."""
    nodes, rows = session.state.nodes, session.order
    roomy = np.ones(len(rows), dtype=np.bool_)
    for index, amount in nodes.demands(shape.request, rows):
        roomy &= nodes.allocatable[index][rows] >= amount
    for failure in session.placement.failures(shape):
        roomy &= ~failure.nodes[rows]
    return bool(roomy.any())


def _exceeds_limit(session: Session, job: Job, tasks: Sequence[Task]) -> bool:
    """Return whether `tasks` and the holdings of `job` exceed a limit of its queue or above."""
    held = total(task.shape.request for task in job.tasks.values() if task.status.holds_room)
    asked = total(task.shape.request for task in tasks)
    return any(
        held.get(index, 0) + amount > session.shares.limit[index, row]
        for row in session.queue_ledger.chains[session.queue_row(job)]
        for index, amount in asked.items()
    )
