"""What running gangs hold beside the room of their pods: kept room, and exclusive domains.

Other jobs cannot use it, so reclaim counts it in the queue of the gang as it counts pods. It ends
with the gang: the amounts of a gang without pods are nothing.
"""

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.holdings import running_pods
from bindery.scheduler.model.jobs import Job, TaskStatus
from bindery.scheduler.planning.session import Session

Amounts = NDArray[np.int64]
"""Units by position on the resource axis: [resource]."""


class HeldRoom:
    """The amounts beside pods, as of the first question in a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._none: Amounts = np.zeros(len(session.state.axis), dtype=np.int64)
        self._of_jobs: dict[Job, Amounts] = {}
        for each in session.reservations.all:
            if each.stage:
                row = session.queue_row(each.job)
                self._add(each.job, each.queue_needs[:, row])
        for key, rows in session.calls.held_domains().items():
            job = session.state.jobs[key]
            self._add(job, self._beside_pods(job, rows))

    def of_queue(self, row: int) -> Amounts:
        """Return what gangs of the queue at `row`, and of queues below it, hold beside pods."""
        held, chains = self._none, self._session.queue_ledger.chains
        for job in self._of_jobs:
            if row in chains[self._session.queue_row(job)]:
                held = held + self.of(job)
        return held

    def of(self, job: Job) -> Amounts:
        """Return what `job` holds beside its pods in the plan so far."""
        return self._of_jobs.get(job, self._none) if running_pods(job) else self._none

    def _add(self, job: Job, amounts: Amounts) -> None:
        self._of_jobs[job] = self._of_jobs.get(job, self._none) + amounts

    def _beside_pods(self, job: Job, rows: BoolColumn) -> Amounts:
        """Return the allocatable amounts of `rows` less its own and other schedulers' pods."""
        nodes = self._session.state.nodes
        offered = np.maximum(nodes.allocatable - nodes.foreign, 0)[:, rows].sum(axis=1)
        for task in job.tasks.values():
            here = task.status.holds_room or task.status is TaskStatus.PIPELINED
            if here and rows[task.row]:
                request = nodes.charge(task.row, task.shape.request)
                np.subtract.at(offered, list(request.indices), request.amounts)
        return np.asarray(np.maximum(offered, 0))
