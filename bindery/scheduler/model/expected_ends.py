"""Expected ends of running pods, and the room that they free: arrays over pods.

Read by reservations. An end follows from a declared runtime or a deadline and is never a guess: a
pod without either has no end. A pod that runs past its end keeps it, as it may end at any moment.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bindery.api.times import seconds
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import NO_ROW, Job, Task, TaskStatus
from bindery.scheduler.model.state import PlanState

RUNS = (TaskStatus.RUNNING, TaskStatus.BINDING, TaskStatus.ALLOCATED)
"""The states of pods that run or will soon."""


def started_at(job: Job) -> float | None:
    """Return the time at which the first pod of the gang `job` was bound; None if none was."""
    times = (_bound_at(task) for task in job.tasks.values() if task.status.holds_room)
    return min((at for at in times if at is not None), default=None)


def expected_end(job: Job, task: Task, now: float, gang_start: float | None) -> float:
    """Return the end of `task`, which runs already or starts at `now`; infinite if not known.

    The runtime of a gang counts from the start of the gang: a pod that joins later ends with the
    others. For independent and single pods it counts from their own start. Seconds since the
    epoch.
    """
    own_start = _bound_at(task) if task.status in RUNS else None
    own_start = now if own_start is None else own_start
    # With `minMember` 0 the pods are independent and have no common start.
    is_gang = job.key.is_group and job.min_member > 0 and gang_start is not None
    start = gang_start if is_gang and gang_start is not None else own_start
    return min(start + job.runtime_s, own_start + task.runtime_s)


def last_end(job: Job, tasks: Iterable[Task], now: float) -> float:
    """Return the end of the last of `tasks`, pending pods of `job`, if all start at `now`."""
    start = started_at(job)
    return max((expected_end(job, task, now, start) for task in tasks), default=math.inf)


class ExpectedEnds:
    """All running pods with a known end, in order of their ends; built when first needed."""

    def __init__(self, state: PlanState, now: float) -> None:
        found: list[tuple[float, Task]] = []
        for job in state.jobs.values():
            start: float | None = None
            for task in job.tasks.values():
                if task.status not in RUNS or task.row == NO_ROW:
                    continue
                if math.isinf(job.runtime_s) and math.isinf(task.runtime_s):
                    continue
                start = started_at(job) if start is None else start
                found.append((expected_end(job, task, now, start), task))
        found.sort(key=lambda item: (item[0], item[1].uid))
        self._shape = state.nodes.idle.shape
        self._queues = len(state.queues.entries)
        self.end: NDArray[np.float64] = np.array([end for end, _ in found])
        """End of each pod, in seconds since the epoch; ascending."""
        self.tasks = tuple(task for _, task in found)
        """The pods, in the same order."""
        self._row = np.array([task.row for _, task in found], dtype=np.intp)
        self._queue = np.array([task.queue_row for _, task in found], dtype=np.intp)
        self._request: IntColumns = np.zeros((len(state.axis), len(found)), dtype=np.int64)
        """[resource, pod]."""
        self._in_queues: IntColumns = np.zeros_like(self._request)
        """[resource, pod], as queues count it."""
        for pod, (_, task) in enumerate(found):
            for columns, request in (
                (self._request, state.nodes.demand(task.row, task.shape.request)),
                (self._in_queues, task.shape.request.in_queues),
            ):
                columns[list(request.indices), pod] = request.amounts

    def moments(self) -> NDArray[np.float64]:
        """Return the times at which a pod ends, ascending and without duplicates."""
        return np.unique(self.end)

    def on_nodes(self, until: float) -> IntColumns:
        """Return the amounts freed on nodes by pods that end by `until`: [resource, node]."""
        return self._summed(self._request, until, self._row, self._shape[1])

    def in_queues(self, until: float) -> IntColumns:
        """Return the amounts freed in the pods' own queues by `until`: [resource, queue]."""
        return self._summed(self._in_queues, until, self._queue, self._queues)

    def count(self, until: float) -> int:
        """Return how many pods end by `until`: the first ones of `tasks`."""
        return int(np.searchsorted(self.end, until, side="right"))

    def _summed(
        self, requests: IntColumns, until: float, places: NDArray[np.intp], count: int
    ) -> IntColumns:
        pods = self.count(until)
        sums = np.zeros((len(requests), count), dtype=np.int64)
        for resource, amounts in enumerate(requests[:, :pods]):
            if amounts.any():  # most resources are requested by no such pod
                np.add.at(sums[resource], places[:pods], amounts)
        return sums


def _bound_at(task: Task) -> float | None:
    """Return the bind time of `task`; its creation time if a running pod does not show one.

    The creation time is earlier, so room may count as free too early, but never too late.
    """
    if task.bound_at is None and task.status is TaskStatus.RUNNING:
        return seconds(task.created)
    return task.bound_at
