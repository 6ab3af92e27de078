"""The best nodes for a pod, with the part of each plugin in their scores.

Of a running pod, the nodes are compared as if it had just left its node.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.jobs import NO_ROW, Job, Task, TaskStatus
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.planning.hopeless import EmptyNodes
from bindery.scheduler.planning.session import Session

_SHOWN_NODES = 5
_SHOWN_PODS = 3
_EVICTED = "to compare nodes without it"


@dataclass(frozen=True, slots=True)
class ScoredNode:
    """A node with its score; higher is better."""

    node: str
    score: float
    parts: dict[str, float]
    """Plugin -> its weighted part of the score, without plugins that score no node for the pod."""
    fits: bool
    """Whether the pod fits there."""
    is_own: bool
    """Whether the pod is bound there."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best nodes for one pod, or for each of several equal pods."""

    pods: tuple[str, ...]
    node: str
    """The node of a running pod; empty for pods that wait."""
    nodes: tuple[ScoredNode, ...]
    """The best nodes, best first; nodes where the pod fits come before others."""


def rankings(session: Session, job: Job) -> tuple[Ranking, ...]:
    """Return the best nodes for the pods of `job`: equal waiting pods together, then running ones.

    Only for the first few pods that differ.
    """
    waiting: dict[Shape, list[Task]] = {}
    for task in session.calls.pods_in_order(job):
        waiting.setdefault(task.shape, []).append(task)
    running = [
        [task]
        for task in sorted(job.tasks.values(), key=session.calls.pod_sort_key)
        if task.status is TaskStatus.RUNNING and task.row != NO_ROW
    ]
    groups = [*waiting.values(), *running]
    return tuple(_ranking(session, job, tasks) for tasks in groups[:_SHOWN_PODS])


def rank_pod(session: Session, job: Job, name: str) -> tuple[Ranking, ...]:
    """Return the best nodes for the pod `name` of `job`; none if it has ended or is gated."""
    return tuple(
        _ranking(session, job, [task])
        for task in job.tasks.values()
        if task.name == name and (task.uid in job.pending or task.status is TaskStatus.RUNNING)
    )


def _ranking(session: Session, job: Job, tasks: Sequence[Task]) -> Ranking:
    task, names = tasks[0], tuple(task.name for task in tasks)
    if task.status is not TaskStatus.RUNNING:
        return Ranking(names, "", tuple(_best(session, job, task, NO_ROW)))
    row = task.row
    own = session.state.nodes.name(row) if row != NO_ROW else task.node_name
    statement = session.statement()
    try:
        statement.evict(task, _EVICTED)
        return Ranking(names, own, tuple(_best(session, job, task, row)))
    except LedgerRefusalError:  # its node is not one of this scheduler
        return Ranking(names, own, ())
    finally:
        statement.discard()


def _best(session: Session, job: Job, task: Task, own_row: int) -> Iterator[ScoredNode]:
    """Yield the best nodes for `task`, which is bound at `own_row` or nowhere."""
    finder = session.placement.finder(job)
    allowed = finder.allowed_for(task)
    rows = session.order[allowed[session.order]]
    # Another node never takes the pod, however empty it gets.
    rows = rows[session.once(EmptyNodes, EmptyNodes).roomy(task.shape, rows)]
    vectors = session.placement.own(task.shape, allowed, nominated=finder.nominated)
    fits: NDArray[np.bool_] = np.isin(rows, vectors.fitting(later=own_row != NO_ROW))
    parts = session.calls.scores_by_plugin(task.shape, rows)
    scores = np.sum([*parts.values(), np.zeros(len(rows))], axis=0)
    # Stable: of equal nodes the first by name, as in planning.
    for at in np.lexsort((np.arange(len(rows)), -scores, ~fits))[:_SHOWN_NODES]:
        row = int(rows[at])
        yield ScoredNode(
            session.state.nodes.name(row),
            float(scores[at]),
            {name: float(values[at]) for name, values in parts.items()},
            bool(fits[at]),
            row == own_row,
        )
