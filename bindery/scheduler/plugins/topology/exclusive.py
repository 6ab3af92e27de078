"""Exclusive domains: which nodes are closed to a gang because others are there.

A gang with an exclusive domain enters no domain with pods of other gangs, and keeps them out of its
own. It has a domain once pods of it were placed there with this constraint. Only pods that this
scheduler plans count: agents on every node do not.
"""

from collections.abc import Iterator

import numpy as np

from bindery.scheduler.ledgers.base import Ledger, Operation
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.constraints import Constraint
from bindery.scheduler.model.jobs import NO_ROW, Job, JobKey, Task, TaskStatus
from bindery.scheduler.model.parts import IsMember, of_unit
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.trees import NOWHERE
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.topology.book import TreeBook
from bindery.scheduler.plugins.topology.levels import TopologyProblem, allowed, padded


class Occupancy(Ledger):
    """The jobs on each node in the plan so far. As a ledger, it only notes changes of the plan."""

    name = "exclusive domains"

    def __init__(self, state: PlanState, book: TreeBook) -> None:
        self._state = state
        self._book = book
        self._exclusive: list[Job] | None = None
        self._keys: set[JobKey] = set()
        self._changes = 0
        self._cached: tuple[int, dict[JobKey, BoolColumn]] = (-1, {})
        """Changes of the plan, and then job -> rows of its exclusive domains."""
        self.closed: BoolColumn | None = None
        """The rows of all exclusive domains, as of the last `closed_to`; None for none."""

    def apply(self, operation: Operation) -> None:
        """Note a change of the plan."""
        self._changes += operation.task.job in self._keys

    def revert(self, operation: Operation) -> None:
        """Note a change of the plan."""
        self._changes += operation.task.job in self._keys

    def closed_to(self, job: Job) -> BoolColumn | None:
        """Return the rows in exclusive domains of other jobs, as a mask; None if there are none.

        Jobs without pods in such a domain get the very same mask until the plan changes: `closed`.
        """
        if not self._jobs():
            return None
        changes, held = self._cached
        if changes != self._changes:
            held = {}
            for other in self._jobs():
                mask = self._held_by(other)
                if mask is not None:
                    held[other.key] = mask
            self._cached = (self._changes, held)
            self.closed = np.logical_or.reduce(list(held.values())) if held else None
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

    def taken_by_others(self, constraint: Constraint, is_member: IsMember) -> BoolColumn:
        """Return the rows of domains of `constraint` with pods that are no members, as a mask."""
        rows = [task.row for task in self._placed() if not is_member(task)]
        return self._domains_of(constraint, np.array(rows, dtype=np.intp))

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
            self._exclusive = [job for job in self._state.jobs.values() if _is_exclusive(job)]
            self._keys = {job.key for job in self._exclusive}
        return self._exclusive

    def _held_by(self, job: Job) -> BoolColumn | None:
        masks = []
        for constraint, rows in self._holdings(job):
            if len(rows):
                masks.append(self._domains_of(constraint, rows))
        return np.logical_or.reduce(masks) if masks else None

    def _holdings(self, job: Job) -> Iterator[tuple[Constraint, Rows]]:
        """Yield the exclusive constraints of `job`, each with the rows of pods that hold a domain.

        A constraint added after a pod got its place does not count: other pods may be there.
        """
        placed = [
            task
            for task in job.tasks.values()
            if (task.status.holds_room or task.status is TaskStatus.PIPELINED)
            and task.row != NO_ROW
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


def _has(task: Task, level: str) -> bool:
    """Return whether `task` holds its domain of `level`, or gets it by the present plan."""
    is_planned = task.status in (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)
    return is_planned or level in task.held_levels


def _is_exclusive(job: Job) -> bool:
    return job.unit_count > 0 or any(each.is_exclusive for _, each in job.constraints())
