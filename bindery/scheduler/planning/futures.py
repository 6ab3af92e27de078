"""Future pods in a session: pods of later stages that count as pending while a plan is made.

They are placed by the same search as other pods, in the same Statement. Before it is committed they
are taken out, and a reservation keeps their room.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy

from bindery.scheduler.model import gangs
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.fits import pods_per_node
from bindery.scheduler.model.jobs import Job, JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.stages import Stage
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.planning.statement import Plan, Savepoint, Statement

Make = Callable[[Job, str], Task | None]
"""Returns the first future pod of a sub-group; None without a template for it."""
_ENDLESS = 10**9
"""How many pods without requests fit on a node; the sum over nodes must not overflow."""
_MANY = 200
"""From so many equal pods on, sums are asked first whether they fit."""
Placed = tuple[Task, int]
"""A future pod and the row of its node."""


class Futures:
    """The future pods that are part of their jobs now. `make`: see `Make`.

    `passing` returns the nodes that pass all filters for a shape. `check` is called for each stage
    and pod; it raises an error if the attempt must end.
    """

    def __init__(
        self,
        state: PlanState,
        make: Make,
        passing: Callable[[Shape], BoolColumn],
        check: Callable[[], None],
    ) -> None:
        self._state = state
        self._make = make
        self._passing = passing
        self._check = check
        self._present: dict[tuple[JobKey, str], list[Task]] = {}
        """Job and leaf -> its future pods."""
        self._first: dict[tuple[JobKey, str], Task | None] = {}
        """Job and leaf -> what its future pods are copied from; None without a template."""

    def problem(self, job: Job, stage: Stage) -> str | None:
        """Return why no nodes could ever take the pods that `stage` lacks; None if they could.

        Users set the number of pods, so this is asked before any of them is made.
        """
        for name, (first, count) in self.lacking(job, stage).items():
            most = self._most(first.shape)
            if count > most:
                return (
                    f"its sub-group {name} needs {count} pods, and all nodes together could take "
                    f"{most} such pods"
                )
        return None

    def shortage(self, job: Job, stage: Stage) -> str | None:
        """Return why the pods that `stage` lacks do not all fit now, by sums; None if they may.

        Of few pods it returns None: placing them explains better what each node lacks.
        """
        nodes = self._state.nodes
        counts: Counter[Shape] = Counter()
        for first, count in self.lacking(job, stage).values():
            counts[first.shape] += count
        for shape, count in counts.items():
            if count < _MANY:
                continue
            room = nodes.idle + nodes.releasing - nodes.pipelined
            fit = pods_per_node(nodes, shape.request, room, _ENDLESS)
            most = int(fit[self._passing(shape)].sum())
            if count > most:
                return f"{most} of {count} pods fit, by the resources that all nodes have left"
        return None

    def of(self, job: Job, stage: Stage) -> Sequence[Task]:
        """Return the pods that `stage` lacks for its minimum, as pending pods of `job`.

        None without a template for them, or if there is a `problem` with them.
        """
        if self.problem(job, stage) is not None:
            return ()
        return [
            task
            for name, (first, count) in self.lacking(job, stage).items()
            for task in self._of_leaf(job, name, first, count)
        ]

    def _most(self, shape: Shape) -> int:
        """Return how many pods of `shape` all nodes together could take if they were empty."""
        nodes = self._state.nodes
        fit = pods_per_node(nodes, shape.request, nodes.allocatable, _ENDLESS)
        return int(fit[self._passing(shape)].sum())

    def lacking(self, job: Job, stage: Stage) -> dict[str, tuple[Task, int]]:
        """Return leaf -> its first future pod, and how many the minimum of `stage` lacks."""
        self._check()
        made = {leaf.name: self._first_of(job, leaf.name) for leaf in stage.group.leaves()}
        found = {name: first for name, first in made.items() if first is not None}
        lacking = {leaf.name: max(0, job.lacking(leaf)) for leaf in stage.group.leaves()}
        there = {name: lacking[name] for name in found}
        counts = gangs.wanted(stage.group, job.lacking, there) or {}
        return {name: (found[name], count) for name, count in counts.items() if count}

    def _first_of(self, job: Job, leaf: str) -> Task | None:
        key = (job.key, leaf)
        if key not in self._first:
            self._first[key] = self._make(job, leaf)
        return self._first[key]

    def _of_leaf(self, job: Job, name: str, first: Task, count: int) -> list[Task]:
        """Return `count` pending future pods of a leaf; create the missing pods."""
        present = self._present.setdefault((job.key, name), [])
        pending = [task for task in present if task.status is TaskStatus.PENDING][:count]
        head, uid = first.name.removesuffix("0"), first.uid.removesuffix("0")
        while len(pending) < count:
            self._check()
            task = copy(first)
            task.name, task.uid = f"{head}{len(present)}", Uid(f"{uid}{len(present)}")
            present.append(task)
            pending.append(task)
            self._state.tasks[task.uid] = task
            job.add(task)
        return pending

    def clear(self) -> None:
        """Remove all future pods from their jobs. None may be part of a plan any more."""
        self._first.clear()
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
