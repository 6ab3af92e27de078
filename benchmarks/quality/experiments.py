"""Experiments on plain arrays: the decisions of the plugin `fragmentation`, alone and in batches.

Not the scheduler: no queues, no requests, and no pods that reserve shared GPUs. `model` places one
task at a time, as the scheduler does. `batch` places several tasks as one problem, and a task never
displaces an earlier one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.baselines import Nodes
from benchmarks.quality.traces import Run
from bindery.scheduler.plugins.fragmentation.gradient import (
    NO_PLACE,
    Ask,
    NodeColumns,
    TypicalWorkload,
    device_growths,
)
from bindery.scheduler.plugins.fragmentation.table import GrowthTable
from bindery.simulation.openb import TaskRow

ONE_BY_ONE: Final = "model"
BATCH: Final = "batch"
POLICIES: Final[Sequence[str]] = (ONE_BY_ONE, BATCH)
ARRIVALS_IN_A_BATCH: Final = 20
_WHOLE: Final = 1000
_NOTHING_TO_REGRET: Final = -1


@dataclass(frozen=True, eq=False)
class _Step:
    """A placement, and what the node had before it."""

    position: int
    """Of the task in its batch."""
    node: int
    cpu: int
    memory: int
    free: NDArray[np.int64]


class _Cluster:
    """The nodes, and the growth of fragmentation by each kind of task on each of them."""

    def __init__(self, run: Run) -> None:
        self._nodes = Nodes(run)
        counts = Counter(
            (t.cpu_milli, t.gpu_milli, t.gpus, t.models) if t.gpus else (0, 0, 0, ())
            for t in run.trace
        )
        rows = [(weight, *kind[:3]) for kind, weight in counts.items()]
        models = np.array([node.model for node in run.nodes])
        self._allowed = np.array([np.isin(models, kind[3] or models) for kind in counts])
        weight, cpu, portion, devices = np.array(rows, dtype=np.int64).T
        workload = TypicalWorkload(weight, cpu, portion, devices, _WHOLE)
        self._table = GrowthTable(workload, self._columns(np.arange(len(models))))

    @property
    def lost(self) -> int:
        """F of all nodes together."""
        return int(self._table.lost.sum())

    def choose(self, task: TaskRow) -> int | None:
        """Return the node for `task`; None if it fits nowhere."""
        fits = self._nodes.fits(task)
        if not len(fits):
            return None
        if not task.gpus:
            return int(fits[self._nodes.free[:, fits].sum(axis=0).argmin()])
        return int(fits[self._table.buckets(_ask(task), fits).argmax()])

    def regret(self, task: TaskRow) -> int:
        """Return how much more the second-best node of `task` costs than the best."""
        fits = self._nodes.fits(task)
        if not task.gpus or not len(fits):
            return _NOTHING_TO_REGRET
        if len(fits) == 1:
            return NO_PLACE
        best, second = np.partition(self._table.growths(_ask(task), fits), 1)[:2]
        return int(second - best)

    def place(self, position: int, task: TaskRow, node: int) -> _Step:
        """Place `task` on `node`."""
        nodes, row = self._nodes, np.array([node])
        step = _Step(
            position,
            node,
            int(nodes.cpu[node]),
            int(nodes.memory[node]),
            nodes.free[:, node].copy(),
        )
        device = None
        if task.gpus == 1:
            grown = device_growths(self._table.workload, self._columns(row), _ask(task))
            device = int(np.lexsort((np.arange(len(grown)), step.free, grown))[0])
        nodes.place(task, node, device)
        self._table.update(row, self._columns(row))
        return step

    def undo(self, steps: Sequence[_Step]) -> None:
        """Undo `steps`, the last one first."""
        nodes = self._nodes
        for step in reversed(steps):
            nodes.cpu[step.node], nodes.memory[step.node] = step.cpu, step.memory
            nodes.free[:, step.node] = step.free
            row = np.array([step.node])
            self._table.update(row, self._columns(row))

    def _columns(self, rows: NDArray[np.intp]) -> NodeColumns:
        nodes = self._nodes
        return NodeColumns(nodes.free[:, rows], nodes.cpu[rows], self._allowed[:, rows])


def play(run: Run, policy: str, arrivals_by_batch: int = ARRIVALS_IN_A_BATCH) -> NDArray[np.bool_]:
    """Return which arrivals of `run` are placed by `policy`, one of `POLICIES`."""
    cluster = _Cluster(run)
    placed = np.zeros(len(run.arrivals), dtype=np.bool_)
    size = 1 if policy == ONE_BY_ONE else arrivals_by_batch
    for start in range(0, len(run.arrivals), size):
        batch = run.arrivals[start : start + size]
        steps = _in_order(cluster, batch)
        if policy == BATCH:
            steps = _best_of_two(cluster, batch, steps)
        placed[[start + step.position for step in steps]] = True
    return placed


def _in_order(cluster: _Cluster, batch: Sequence[TaskRow]) -> list[_Step]:
    """Place the tasks of `batch` in the order of arrival."""
    steps = []
    for position, task in enumerate(batch):
        node = cluster.choose(task)
        if node is not None:
            steps.append(cluster.place(position, task, node))
    return steps


def _best_of_two(cluster: _Cluster, batch: Sequence[TaskRow], in_order: list[_Step]) -> list[_Step]:
    """Replace `in_order` by a plan that serves the largest regret first, if that one is better.

    Better: the first task that only one plan places is placed by it, or both place the same tasks
    and less is lost.
    """
    first = _places(batch, in_order), -cluster.lost
    cluster.undo(in_order)
    by_regret = _by_regret(cluster, batch)
    if (_places(batch, by_regret), -cluster.lost) > first:
        return by_regret
    cluster.undo(by_regret)
    return [cluster.place(step.position, batch[step.position], step.node) for step in in_order]


def _by_regret(cluster: _Cluster, batch: Sequence[TaskRow]) -> list[_Step]:
    """Place the tasks of `batch`, each time the one with the largest regret."""
    steps, left = [], list(range(len(batch)))
    while left:
        regrets = {task: cluster.regret(task) for task in {batch[at] for at in left}}
        position = max(left, key=lambda at: regrets[batch[at]])  # of equal ones, the earliest
        left.remove(position)
        node = cluster.choose(batch[position])
        if node is not None:
            steps.append(cluster.place(position, batch[position], node))
    return steps


def _places(batch: Sequence[TaskRow], steps: Sequence[_Step]) -> tuple[bool, ...]:
    """Return whether each task is placed, in the order of arrival."""
    found = {step.position for step in steps}
    return tuple(position in found for position in range(len(batch)))


def _ask(task: TaskRow) -> Ask:
    return Ask(task.cpu_milli, task.gpu_milli, task.gpus)
