"""Future pods in a session: pods of later stages that count as pending while a plan is made.

They are placed by the same search as other pods, in the same Statement. Before it is committed they
are taken out, and a reservation keeps their room.
"""

from collections.abc import Callable, Sequence

from bindery.scheduler.model import gangs
from bindery.scheduler.model.jobs import Job, JobKey, Task, TaskStatus
from bindery.scheduler.model.stages import Stage
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.planning.statement import Plan, Savepoint, Statement

Make = Callable[[Job, str, int], list[Task]]
"""Returns tasks for a number of pods of a sub-group."""
Placed = tuple[Task, int]
"""A future pod and the row of its node."""


class Futures:
    """The future pods that are part of their jobs now. `make`: see `Make`."""

    def __init__(self, state: PlanState, make: Make) -> None:
        self._state = state
        self._make = make
        self._present: dict[tuple[JobKey, str], list[Task]] = {}
        """Job and leaf -> its future pods."""

    def of(self, job: Job, stage: Stage) -> Sequence[Task]:
        """Return the pods that `stage` lacks for its minimum, as pending pods of `job`.

        None without a template for them.
        """
        present = {leaf.name: self._of_leaf(job, leaf) for leaf in stage.group.leaves()}
        counts = gangs.wanted(
            stage.group, job.lacking, {name: len(tasks) for name, tasks in present.items()}
        )
        return [task for name, count in (counts or {}).items() for task in present[name][:count]]

    def _of_leaf(self, job: Job, leaf: gangs.Group) -> list[Task]:
        key = (job.key, leaf.name)
        if key not in self._present:
            tasks = self._make(job, leaf.name, max(0, job.lacking(leaf)))
            self._present[key] = tasks
            for task in tasks:
                self._state.tasks[task.uid] = task
                job.add(task)
        return [t for t in self._present[key] if t.status is TaskStatus.PENDING]

    def clear(self) -> None:
        """Remove all future pods from their jobs. None may be part of a plan any more."""
        if not self._present:
            return
        for (key, _), tasks in self._present.items():
            job = self._state.jobs[key]
            for task in tasks:
                del self._state.tasks[task.uid]
                job.remove(task)
            # A plan with future pods has put the job here.
            if not job.pending and not job.gated_count:
                self._state.waiting.pop(key, None)
        self._present.clear()


def take_out(statement: Statement) -> list[Placed]:
    """Take the future pods out of the open `statement`; return them with their places."""
    placed = [(o.task, o.row) for o in statement.operations if o.task.is_future]
    if placed:
        plan = statement.extract()
        statement.rollback(Savepoint(0))
        statement.replay(Plan(tuple(o for o in plan.operations if not o.task.is_future)))
    return placed
