"""Exclusive domains: which nodes are closed to a gang because others are there.

A gang with an exclusive domain enters no domain with pods of other gangs, and keeps them out of its
own. It has a domain once pods of it were placed there with this constraint. Only pods that this
scheduler plans count: agents on every node do not. Pods that are being released keep a domain until
they have gone: until then, a pod for which they make room is promised its place.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import partial

import numpy as np

from bindery.scheduler.ledgers.base import (
    Ledger,
    LedgerRefusalError,
    Operation,
    OperationKind,
)
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.constraints import Constraint
from bindery.scheduler.model.holdings import is_exclusive, sharing
from bindery.scheduler.model.jobs import NO_ROW, Job, JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.parts import IsMember, of_unit
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.trees import NOWHERE
from bindery.scheduler.model.verdicts import Refusal, Rows
from bindery.scheduler.plugins.topology.asked import AskedDomains
from bindery.scheduler.plugins.topology.book import TreeBook
from bindery.scheduler.plugins.topology.domain_limits import domain_amounts, refusal
from bindery.scheduler.plugins.topology.levels import TopologyProblem, allowed, padded
from bindery.scheduler.plugins.view import SessionView


class Occupancy(Ledger):
    """The jobs on each node in the plan so far. As a ledger, it only notes changes of the plan."""

    name = "exclusive domains"

    def __init__(self, session: SessionView, state: PlanState, book: TreeBook) -> None:
        self._session = session
        self._state = state
        self._book = book
        self.asked = AskedDomains(session, book)
        """The domains that waiting gangs want."""
        self._exclusive: list[Job] | None = None
        self._keys: set[JobKey] = set()
        self._changes = 0
        self._cached: tuple[int, dict[JobKey, BoolColumn]] = (-1, {})
        """Changes of the plan, and then job -> rows of its exclusive domains."""
        self._changed: set[JobKey] = set()
        """Jobs with exclusive domains whose pods have changed since then."""
        self._staying: defaultdict[int, dict[Uid, Task]] | None = None
        """See `_on_rows`; None: not counted yet."""
        self._evictions = 0
        self._leaving: tuple[int, list[Task]] = (-1, [])
        """Evictions of the plan, and the pods that were being released then."""
        self.closed: BoolColumn | None = None
        """The rows of all exclusive domains, as of the last `closed_to`; None for none."""

    def apply(self, operation: Operation) -> None:
        """Note a change of the plan; refuse a pod in the exclusive domain of another gang."""
        if self._jobs() and operation.kind is not OperationKind.EVICT:
            self._check(operation)
        self._note(operation, leaves=operation.kind is OperationKind.EVICT)

    def revert(self, operation: Operation) -> None:
        """Note a change of the plan."""
        self._note(operation, leaves=operation.kind is not OperationKind.EVICT)

    def _note(self, operation: Operation, *, leaves: bool) -> None:
        task = operation.task
        if task.job in self._keys:
            self._changes += 1
            self._changed.add(task.job)
        self._evictions += operation.kind is OperationKind.EVICT
        if self._staying is not None and not task.reserves_gpu:
            here = self._staying[operation.row]
            if leaves:
                here.pop(task.uid, None)
            else:
                here[task.uid] = task

    def _check(self, operation: Operation) -> None:
        own, row = operation.task.job, operation.row
        is_closed = any(rows[row] for key, rows in self.held().items() if key != own)
        if is_closed or self._meets_others(operation):
            text = "pods of another gang are in the exclusive domain, or room is kept for them"
            raise LedgerRefusalError(text)
        refused = self._over_limit(operation)
        if refused is not None:
            raise LedgerRefusalError(refused.message)
        if operation.kind is OperationKind.ALLOCATE and self._is_being_emptied(operation):
            text = "the exclusive domain is free when pods that are being deleted have gone"
            raise LedgerRefusalError(text, fits_later=True)

    def _over_limit(self, operation: Operation) -> Refusal | None:
        """Return why the queue of the pod may not hold the exclusive domains that it enters."""
        task, job = operation.task, self._state.jobs[operation.task.job]
        new = [domain for domain, _ in self._own_domains(operation)]
        if not new or self.own_rows(job)[operation.row]:
            return None
        amounts = domain_amounts(self._session, np.logical_or.reduce(new))
        charged = self._state.nodes.charge(operation.row, task.shape.request)
        # The queue ledger, which comes first, has the pod itself already.
        np.subtract.at(amounts, list(charged.indices), charged.amounts)
        name = f"of node {self._state.nodes.name(operation.row)}"
        pinned = not task.is_preemptible
        return refusal(self._session, job, amounts, name, is_pinned=pinned, alone=False)

    def own_rows(self, job: Job) -> BoolColumn:
        """Return the rows of the exclusive domains of `job`, as a mask."""
        held, own = self.held(), np.zeros(len(self._state.nodes.nodes), dtype=np.bool_)
        for each in sharing(self._jobs(), job):
            own |= held.get(each.key, False)
        return own

    def _meets_others(self, operation: Operation) -> bool:
        """Return whether the pod would share its exclusive domain with pods that stay, or rooms."""
        staying, own = self._on_rows(), operation.task.job
        return any(
            not is_member(other)
            for domain, is_member in self._own_domains(operation)
            for row in np.flatnonzero(domain).tolist()
            for other in staying.get(row, {}).values()
        ) or any(
            domain[list(rows)].any()
            for domain, _ in self._own_domains(operation)
            for job, rows in self._session.stage_rooms
            if job.key != own
        )

    def _own_domains(self, operation: Operation) -> Iterator[tuple[BoolColumn, IsMember]]:
        """Yield the exclusive domains that the pod enters (masks), each with their members."""
        task, row = operation.task, np.array([operation.row], dtype=np.intp)
        for constraint, is_member in _exclusive_of(self._state.jobs[task.job], task):
            yield self._domains_of(constraint, row), is_member

    def _on_rows(self) -> dict[int, dict[Uid, Task]]:
        """Return row -> the planned pods there that are not being released."""
        if self._staying is None:
            self._staying = defaultdict(dict)
            for task in self._placed():
                if task.status is not TaskStatus.RELEASING:
                    self._staying[task.row][task.uid] = task
        return self._staying

    def _is_being_emptied(self, operation: Operation) -> bool:
        """Return whether an exclusive domain has pods that go, of its gang or from the pod's."""
        if not self._jobs() or not (leaving := self.leaving()):
            return False
        own, keys = operation.task.job, {task.job for task in leaving}
        for other in self._jobs():
            if other.key != own and other.key in keys:
                going = self._held_by(other, TaskStatus.RELEASING)
                if going is not None and going[operation.row]:
                    return True
        return any(
            domain[each.row] and not is_member(each)
            for domain, is_member in self._own_domains(operation)
            for each in leaving
        )

    def leaving(self) -> list[Task]:
        """Return the planned pods that are being released."""
        if self._leaving[0] != self._evictions:
            found = [task for task in self._placed() if task.status is TaskStatus.RELEASING]
            self._leaving = self._evictions, found
        return self._leaving[1]

    def held(self) -> dict[JobKey, BoolColumn]:
        """Return job -> the rows of its exclusive domains, when released pods have gone."""
        changes, held = self._cached
        if changes != self._changes:
            masks = {
                job.key: self._held_by(job)
                if changes < 0 or job.key in self._changed
                else held.get(job.key)
                for job in self._jobs()
            }
            held = {key: mask for key, mask in masks.items() if mask is not None}
            self._cached = (self._changes, held)
            self._changed.clear()
            self.closed = np.logical_or.reduce(list(held.values())) if held else None
        return held

    def has_domain(self, task: Task) -> bool:
        """Return whether `task` goes into an exclusive domain that its gang has."""
        job = self._state.jobs[task.job]
        own = sharing(self._jobs(), job)
        return any(
            _stays(other) and other.row != NO_ROW and is_in(other) and _has(other, constraint.level)
            for constraint, is_in in _exclusive_of(job, task)
            for each in own
            for other in each.tasks.values()
        )

    def closed_to(self, job: Job) -> BoolColumn | None:
        """Return the rows in exclusive domains of other jobs, as a mask; None if there are none.

        Jobs without pods in such a domain get the very same mask until the plan changes: `closed`.
        """
        if not self._jobs():
            return None
        held = self.held()
        if job.key not in held:
            return self.closed
        masks = [mask for key, mask in held.items() if key != job.key]
        return np.logical_or.reduce(masks) if masks else None

    def asked_levels(self, task: Task) -> tuple[str, ...]:
        """Return the levels at which `task` is planned into a domain for its gang alone."""
        job = self._state.jobs[task.job]
        if not job.is_constrained:
            return ()
        return job.exclusive_levels(task.sub_group, task.exclusive_unit)

    def others(self, is_member: IsMember) -> list[Task]:
        """Return the planned pods that are no members and stay."""
        on_rows = self._on_rows().values()
        return [task for tasks in on_rows for task in tasks.values() if not is_member(task)]

    def domains_with(self, constraint: Constraint, rows: Iterable[int]) -> BoolColumn:
        """Return the rows of domains of `constraint` with one of `rows`, as a mask."""
        return self._domains_of(constraint, np.array([*rows], dtype=np.intp))

    def rows_of(self, is_member: IsMember) -> Rows:
        """Return the rows of all members that have a place."""
        rows = [task.row for task in self._placed() if is_member(task)]
        return np.array(rows, dtype=np.intp)

    def _placed(self) -> Iterator[Task]:
        """Yield the planned pods that hold or are promised room."""
        for task in self._state.tasks.values():
            has_place = task.status.holds_room or task.status is TaskStatus.PIPELINED
            if has_place and task.is_ours and task.row != NO_ROW and not task.reserves_gpu:
                yield task

    def _jobs(self) -> list[Job]:
        """Return the jobs with exclusive domains; constraints do not change in a session."""
        if self._exclusive is None:
            self._exclusive = [job for job in self._state.jobs.values() if is_exclusive(job)]
            self._keys = {job.key for job in self._exclusive}
        return self._exclusive

    def _held_by(self, job: Job, status: TaskStatus | None = None) -> BoolColumn | None:
        """Return the rows of the exclusive domains of `job`, by its pods that stay.

        `status`: by its pods in this status.
        """
        masks = []
        for constraint, rows in self._holdings(job, status):
            if len(rows):
                masks.append(self._domains_of(constraint, rows))
        return np.logical_or.reduce(masks) if masks else None

    def _holdings(self, job: Job, status: TaskStatus | None) -> Iterator[tuple[Constraint, Rows]]:
        """Yield the exclusive constraints of `job`, each with the rows of pods that hold a domain.

        A constraint added after a pod got its place does not count: other pods may be there.
        """
        placed = [
            task
            for task in job.tasks.values()
            if (_stays(task) if status is None else task.status is status) and task.row != NO_ROW
        ]
        for name, constraint in job.constraints():
            if constraint.is_exclusive:
                leaves, level = job.leaves_of(name), constraint.level
                members = [t for t in placed if leaves is None or t.sub_group in leaves]
                rows = [task.row for task in members if _has(task, level)]
                yield constraint, np.array(rows, dtype=np.intp)
        units = {task.exclusive_unit for task in placed if task.exclusive_unit is not None}
        for unit in units:
            members = [task for task in placed if task.exclusive_unit == unit]
            rows = [task.row for task in members if _has(task, unit.level)]
            yield of_unit(unit), np.array(rows, dtype=np.intp)

    def _domains_of(self, constraint: Constraint, rows: Rows) -> BoolColumn:
        """Return the rows that are in one domain of `constraint` with one of `rows`, as a mask."""
        nodes = self._state.nodes
        found = np.zeros(len(nodes.nodes), dtype=np.bool_)
        try:
            levels = allowed(self._book, nodes, constraint)
        except TopologyProblem:
            return found
        column = padded(levels.tree, levels.allowed[-1], len(nodes.nodes))
        domains = np.unique(column[rows]) if len(rows) else column[:0]
        return np.isin(column, domains[domains != NOWHERE])


def _stays(task: Task) -> bool:
    """Return whether `task` has a place, or is promised one, and is not being released."""
    holds_room = task.status.holds_room and task.status is not TaskStatus.RELEASING
    return holds_room or task.status is TaskStatus.PIPELINED


def _exclusive_of(job: Job, task: Task) -> Iterator[tuple[Constraint, IsMember]]:
    """Yield the exclusive constraints for `task` of `job`, each with the members of its group."""
    for name, constraint in job.constraints():
        leaves = job.leaves_of(name)
        if constraint.is_exclusive and (leaves is None or task.sub_group in leaves):
            yield constraint, partial(_is_in, job.key, leaves)
    unit = task.exclusive_unit
    if unit is not None:
        yield of_unit(unit), lambda other: other.exclusive_unit == unit


def _is_in(job: JobKey, leaves: Collection[str] | None, task: Task) -> bool:
    return task.job == job and (leaves is None or task.sub_group in leaves)


def _has(task: Task, level: str) -> bool:
    """Return whether `task` holds its domain of `level`, or gets it by the present plan."""
    is_planned = task.status in (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)
    return is_planned or level in task.held_levels
