"""What gangs hold beside the room of their pods, charged to their queues.

That is the room of later stages and exclusive domains: other jobs cannot use either. Both are added
to the amounts of the queue ledger. So shares, limits, the order of queues and reclaim count them as
they count pods, and both end with the gang.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.ledgers.base import Operation
from bindery.scheduler.ledgers.queues import QueueLedger
from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.holdings import is_exclusive, sharing
from bindery.scheduler.model.jobs import NO_ROW, Job, JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.resources import PODS, total
from bindery.scheduler.planning.reservations import Reservation
from bindery.scheduler.planning.view import PlanningView

Amounts = NDArray[np.int64]
"""Units by position on the resource axis: [resource]."""


class _Session(PlanningView, Protocol):
    @property
    def queue_ledger(self) -> QueueLedger:
        """The amounts of queues."""

    def guarded(self, job: Job) -> AbstractContextManager[Any]:
        """Return a context in which errors count for `job`."""

    @property
    def offered(self) -> IntColumns:
        """What nodes offer to queues: [resource, node]."""


@dataclass(frozen=True, slots=True, eq=False)
class _Charge:
    row: int
    """The queue."""
    amounts: Amounts
    preemptible: bool


class GangAccount:
    """The charges beside pods. As a ledger, it only notes which gangs have changed.

    Charges follow from the pods and the reservations of the plan. They are computed when the queue
    ledger is read, so undoing an operation restores them exactly.
    """

    name = "what gangs hold beside their pods"

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._queues = session.queue_ledger
        self._charges: dict[JobKey, _Charge] = {}
        self._changed: set[JobKey] | None = None
        """The gangs whose charges may have changed; None for all."""
        self._queues.unsettled = self._settle
        session.reservations.on_change = self._note

    def apply(self, operation: Operation) -> None:
        """Note that the gang of a pod has changed."""
        job = self._session.state.jobs[operation.task.job]
        if job.is_constrained and is_exclusive(job):
            self._note(sharing(self._session.state.jobs.values(), job))

    def revert(self, operation: Operation) -> None:
        """Note that the gang of a pod has changed."""
        self.apply(operation)

    def of(self, job: Job) -> Amounts | None:
        """Return what `job` holds beside its pods in the plan so far; None for nothing."""
        self._settle()
        charge = self._charges.get(job.key)
        return charge.amounts if charge is not None else None

    def by_job(self) -> dict[JobKey, Amounts]:
        """Return what each gang holds beside its pods in the plan so far."""
        self._settle()
        return {key: charge.amounts for key, charge in self._charges.items()}

    def by_queue(self) -> IntColumns:
        """Return the charges of each queue with all queues below: [resource, queue]."""
        self._settle()
        found = np.zeros_like(self._queues.releasing)
        for charge in self._charges.values():
            found[:, list(self._queues.chains[charge.row])] += charge.amounts[:, None]
        return found

    def of_queue(self, row: int) -> Amounts:
        """Return the charges of the queue at `row` and of all queues below."""
        self._settle()
        chains = self._queues.chains
        found = (each.amounts for each in self._charges.values() if row in chains[each.row])
        return sum(found, np.zeros(len(self._session.state.axis), dtype=np.int64))

    def without(self, gone: Collection[Uid]) -> IntColumns:
        """Return the charges that end with the pods `gone`: [resource, queue]."""
        self._settle()
        found, jobs = np.zeros_like(self._queues.releasing), self._session.state.jobs
        for key, charge in self._charges.items():
            if all(task.uid in gone for task in _present(jobs[key])):
                found[:, list(self._queues.chains[charge.row])] += charge.amounts[:, None]
        return found

    def changes_of_pending(self) -> IntColumns | None:
        """Return by how much what queues want differs from what waiting pods request, for shares.

        Pods for which room is kept do not count beside the room. A gang that waits for an exclusive
        domain wants all of it. [resource, queue] of each queue itself; None for no change.
        """
        rooms, waiting = self._session.reservations.of_stages(), self._session.state.waiting
        asking = [job for job in waiting.values() if job.is_constrained and is_exclusive(job)]
        if not rooms and not asking:
            return None
        found = np.zeros_like(self._queues.releasing)
        for each in rooms:
            coming = (t for t in each.job.pending.values() if t.sub_group in each.leaves)
            row = self._session.queue_row(each.job)
            for index, amount in total(task.shape.request for task in coming).items():
                found[index, row] -= min(amount, int(each.queue_needs[index, row]))
        for job in asking:
            with self._session.guarded(job):
                for rows, tasks in self._session.calls.asked_domains(job):
                    found[:, self._session.queue_row(job)] += self.beside(rows, tasks)
        return found

    def beside(self, rows: BoolColumn, tasks: Iterable[Task]) -> Amounts:
        """Return what an exclusive domain of the nodes at `rows` has beside `tasks` in it."""
        offered = self._session.offered[:, rows].sum(axis=1)
        for index, amount in total(task.shape.request for task in tasks).items():
            offered[index] -= amount
        offered[self._session.state.axis.index(PODS)] = 0
        return np.asarray(np.maximum(offered, 0))

    def _note(self, jobs: Iterable[Job]) -> None:
        if self._changed is not None:
            self._changed.update(job.key for job in jobs)
        self._queues.unsettled = self._settle

    def _settle(self) -> None:
        """Charge what gangs hold now."""
        if self._queues.unsettled is None:
            return
        self._queues.unsettled = None
        held = self._session.calls.held_domains()
        rooms = self._session.reservations.of_stages()
        changed = self._changed
        if changed is None:
            changed = {*held, *(each.job.key for each in rooms)}
        self._changed = set()
        for key in changed:
            job = self._session.state.jobs.get(key)
            if (old := self._charges.pop(key, None)) is not None:
                self._queues.charge(old.row, -old.amounts, preemptible=old.preemptible)
            amounts = self._beside_pods(job, held, rooms) if job is not None else None
            if job is not None and amounts is not None and amounts.any():
                preemptible = all(task.is_preemptible for task in _present(job))
                new = _Charge(self._session.queue_row(job), amounts, preemptible)
                self._charges[key] = new
                self._queues.charge(new.row, amounts, preemptible=preemptible)

    def _beside_pods(
        self, job: Job, held: Mapping[JobKey, BoolColumn], rooms: Sequence[Reservation]
    ) -> Amounts:
        """Return what `job` holds beside its pods; kept room in its own domain counts once."""
        amounts: Amounts = np.zeros(len(self._session.state.axis), dtype=np.int64)
        domain = held.get(job.key)
        if domain is not None:
            jobs = sharing(self._session.state.jobs.values(), job)
            holders = [each for each in jobs if each.key in held]
            if job is holders[0]:
                amounts += self._of_domain(domain, holders)
        for each in rooms:
            is_inside = domain is not None and bool(domain[list(each.rows)].all())
            if each.job is job and not is_inside:
                amounts += each.queue_needs[:, self._session.queue_row(job)]
        return amounts

    def _of_domain(self, rows: BoolColumn, jobs: Iterable[Job]) -> Amounts:
        """Return what the nodes at `rows` offer to queues, less the pods of `jobs` there."""
        nodes, offered = self._session.state.nodes, self._session.offered[:, rows].sum(axis=1)
        for job in jobs:
            for task in _present(job):
                if task.row != NO_ROW and rows[task.row]:
                    request = nodes.charge(task.row, task.shape.request)
                    np.subtract.at(offered, list(request.indices), request.amounts)
        offered[self._session.state.axis.index(PODS)] = 0
        return np.asarray(np.maximum(offered, 0))


def _present(job: Job) -> list[Task]:
    """Return the pods of `job` that hold or are promised room."""
    return [
        task
        for task in job.tasks.values()
        if task.status.is_active or task.status is TaskStatus.PIPELINED
    ]
