"""Rearranging a few running jobs so that a claim fits. All of them keep running.

Consolidation tries this before the search node by node. Victims are added one by one, in the order
of eviction; after each, the claim and all victims are placed again in the order of serving
(KAI-Scheduler v0.17, actions/common/solvers). So only the last jobs move, and as few as possible. A
pod that gets its own node again does not move.
"""

from collections.abc import Sequence
from itertools import chain

from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.placing.domains import DomainFinders
from bindery.scheduler.planning.statement import Savepoint, promise
from bindery.scheduler.planning.work_list import WorkList
from bindery.scheduler.solver.bounds import can_never_fit
from bindery.scheduler.solver.context import SearchContext
from bindery.scheduler.solver.moves import (
    evict_unit,
    keep_in_place,
    move_all,
    units_to_empty,
)
from bindery.scheduler.solver.order import victims
from bindery.scheduler.solver.rules import is_empty
from bindery.scheduler.solver.vetoes import permitted

_MOST_PODS = 64
"""The most pods, of the claim and of victims, that are placed again: it is repeated per victim."""
_MOST_VICTIMS = 16
"""The most units that move."""
_START = Savepoint(0)


class Rearrangement:
    """One attempt to place the claim by moving others."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context
        self._session = context.session
        self._statement = context.statement
        self._claim = context.claim
        self._rule = context.rule
        self._table = context.table
        self.gone: list[int] = []
        """Units that move, in the order in which they were chosen."""
        self.waits = True
        """Always: its places become free when others have moved."""
        self.lost: Task | None = None
        """Always None: the search node by node, which runs next, finds the pod without room."""

    def run(self) -> bool:
        """Write an acceptable plan into the Statement; return False if there is none.

        If it returns False, the caller must undo the Statement.
        """
        session, claim, table = self._session, self._claim, self._table
        eligible = self._rule.eligible(session, claim, table) & table.alive
        pods = len(claim.tasks)
        movable = permitted(session, claim, table, eligible, self._rule.name)
        first = units_to_empty(self._context)
        # A claim that fits without moves was refused for another reason, and moves cannot help.
        if pods >= _MOST_PODS or not movable[first].all() or (not first and self._place()):
            return False
        movable[first] = False
        for index in chain(first, victims(session, table, movable)):
            if not table.returning.of(index):  # it would be killed, not moved
                if index in first:
                    return False
                continue
            pods += len(table.units[index].tasks)
            if pods > _MOST_PODS or len(self.gone) == _MOST_VICTIMS:
                return False
            allowed = is_empty(self._rule.against_unit(session, claim, table.units[index]))
            if not (allowed and self._evict(index)):
                if index in first:
                    return False
            elif len(self.gone) >= len(first) and self._place():
                self._spare()
                keep_in_place(self._statement)
                return is_empty(self._rule.against_plan(session, claim, ()))
        return False

    def _evict(self, index: int) -> bool:
        if not evict_unit(self._context, self.gone, index):
            return False
        self.gone.append(index)
        return True

    def _place(self) -> bool:
        """Place the claim and all victims again, or none of them."""
        none = self._table.alive & False  # the victims have left already: no more room is coming
        if can_never_fit(self._context, none) is not None:
            return False
        savepoint = self._statement.savepoint()
        moving: dict[Job, list[Task]] = {self._claim.job: []}
        for index in reversed(self.gone):
            unit = self._table.units[index]
            moving.setdefault(unit.job, []).extend(unit.tasks)
        for job in WorkList(self._session, moving):
            if not self._fit(job, moving[job]):
                self._statement.rollback(savepoint)
                return False
        return True

    def _fit(self, job: Job, moving: Sequence[Task]) -> bool:
        """Place the pods of `job` that are `moving`, or those of the claim."""
        if job is not self._claim.job:
            return move_all(self._context, job, moving, may_stay=True)
        tasks = self._claim.tasks
        if self._session.calls.over_capacity(job, tasks) is not None:
            return False
        finders = DomainFinders(self._session, job, self._context.domains)
        for task in tasks:
            place = finders.of(task).best(task)
            if place is None or not promise(self._statement, task, place.row):
                return False
        return True

    def _spare(self) -> None:
        """Leave out victims, the last first, if all pods still find places without their move."""
        # Each trial starts from nothing: a place that one victim frees may suit another.
        best, plan = list(self.gone), self._statement.extract()
        for index in reversed(self.gone[len(units_to_empty(self._context)) :]):
            trial = [i for i in best if i != index]
            self._statement.rollback(_START)
            self.gone = []
            if trial and all(self._evict(i) for i in trial) and self._place():
                best, plan = trial, self._statement.extract()
        self._statement.rollback(_START)
        self._statement.replay(plan)
        self.gone = best
