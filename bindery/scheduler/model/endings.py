"""When running pods are expected to end, and what their ends give back: arrays over pods.

Read by reservations. An end is what a job has declared, or a deadline; never a guess, so a pod that
says nothing has none. One whose end has passed keeps it: it may go at any moment.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bindery.api.times import seconds
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import NO_ROW, Job, Task, TaskStatus
from bindery.scheduler.model.state import PlanState

_RUNS = (TaskStatus.RUNNING, TaskStatus.BINDING, TaskStatus.ALLOCATED)


def started_at(job: Job) -> float | None:
    """Return since when the gang `job` runs: when the first of its pods was bound; None: never."""
    times = (_bound_at(task) for task in job.tasks.values() if task.status.holds_room)
    return min((at for at in times if at is not None), default=None)


def expected_end(job: Job, task: Task, now: float, gang_start: float | None) -> float:
    """Return when `task`, placed already or at `now`, ends; infinite if nothing says so.

    The time of a gang counts from its start, as a pod that joins later ends with the others; that
    of independent pods, and of a pod by itself, from their own. Seconds since the epoch.
    """
    own_start = _bound_at(task) if task.status in _RUNS else None
    own_start = now if own_start is None else own_start
    is_gang = job.key.is_group and job.min_member > 0 and gang_start is not None
    start = gang_start if is_gang and gang_start is not None else own_start
    return min(start + job.runtime_s, own_start + task.runtime_s)


def last_end(job: Job, tasks: Iterable[Task], now: float) -> float:
    """Return when the last of `tasks`, pending pods of `job`, ends if they all start at `now`."""
    start = started_at(job)
    return max((expected_end(job, task, now, start) for task in tasks), default=math.inf)


class Endings:
    """All running pods that say when they end, the first to end first.

    Made once a session, when the first reservation is looked for.
    """

    def __init__(self, state: PlanState, now: float) -> None:
        found: list[tuple[float, Task]] = []
        for job in state.jobs.values():
            start: float | None = None
            for task in job.tasks.values():
                if task.status not in _RUNS or task.row == NO_ROW:
                    continue
                if math.isinf(job.runtime_s) and math.isinf(task.runtime_s):
                    continue
                start = started_at(job) if start is None else start
                found.append((expected_end(job, task, now, start), task))
        found.sort(key=lambda item: (item[0], item[1].uid))
        self._shape = state.nodes.idle.shape
        self._queues = len(state.queues.entries)
        self.end: NDArray[np.float64] = np.array([end for end, _ in found])
        """Pod -> when it ends, seconds since the epoch; ascending."""
        self._row = np.array([task.row for _, task in found], dtype=np.intp)
        self._queue = np.array([task.queue_row for _, task in found], dtype=np.intp)
        self._request: IntColumns = np.zeros((len(state.axis), len(found)), dtype=np.int64)
        """[resource, pod]."""
        for pod, (_, task) in enumerate(found):
            shape = task.shape.request
            self._request[list(shape.indices), pod] = shape.amounts

    def moments(self) -> NDArray[np.float64]:
        """Return the moments at which something ends, ascending."""
        return np.unique(self.end)

    def on_nodes(self, until: float) -> IntColumns:
        """Return what pods that end by `until` give back: [resource, node]."""
        return self._summed(until, self._row, self._shape[1])

    def in_queues(self, until: float) -> IntColumns:
        """Return what they give back to their own queues: [resource, queue]."""
        return self._summed(until, self._queue, self._queues)

    def _summed(self, until: float, places: NDArray[np.intp], count: int) -> IntColumns:
        pods = int(np.searchsorted(self.end, until, side="right"))
        sums = np.zeros((self._request.shape[0], count), dtype=np.int64)
        for resource, amounts in enumerate(self._request[:, :pods]):
            if amounts.any():
                np.add.at(sums[resource], places[:pods], amounts)
        return sums


def _bound_at(task: Task) -> float | None:
    """Return when `task` was bound; of one that does not say so, when it was created.

    That is too early, and so on the safe side: room counts as free too early, never too late.
    """
    if task.bound_at is None and task.status is TaskStatus.RUNNING:
        return seconds(task.created)
    return task.bound_at
