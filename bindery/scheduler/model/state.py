"""The state that plans are made on: nodes, queues and jobs.

The cluster cache owns and updates it. A session borrows it for one cycle.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bindery.api.configuration import DisruptionConfiguration
from bindery.scheduler.model.idleness import Idleness
from bindery.scheduler.model.jobs import NO_ROW, Job, JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.nominations import Nominations
from bindery.scheduler.model.queues import QueueTable
from bindery.scheduler.model.resources import ResourceAxis
from bindery.scheduler.model.shapes import Need, Shape

_DAY_LENGTH = len("2026-01-31")


class PodCounts:
    """Counts the pods of this scheduler and its node pool in any state, ended pods included.

    Written by cache/tasks.py. Plugins derive the typical workload from the counts.
    """

    def __init__(self) -> None:
        self._by_day: dict[str, Counter[Shape]] = {}
        self.version = 0
        """Grows with each change."""

    @property
    def by_day(self) -> Mapping[str, Mapping[Shape, int]]:
        """Day of creation (`2026-01-31`, UTC; "" if not known) -> shape -> number of pods."""
        return self._by_day

    def add(self, task: Task) -> None:
        """Count `task`."""
        if task.is_ours and task.is_of_pool:
            self._by_day.setdefault(task.created[:_DAY_LENGTH], Counter())[task.shape] += 1
            self.version += 1

    def remove(self, task: Task) -> None:
        """Undo `add`; the shape and creation time of `task` must be the same."""
        if not (task.is_ours and task.is_of_pool):
            return
        day = task.created[:_DAY_LENGTH]
        counts = self._by_day[day]
        counts[task.shape] -= 1
        if not counts[task.shape]:
            del counts[task.shape]
            if not counts:
                del self._by_day[day]
        self.version += 1

    def recount(self, tasks: Iterable[Task]) -> None:
        """Replace all counts by those of `tasks`."""
        self._by_day.clear()
        self.version += 1
        for task in tasks:
            self.add(task)


@dataclass
class PlanState:
    """Columns and jobs, without watches, BindRequests or time."""

    axis: ResourceAxis = field(default_factory=ResourceAxis)
    nodes: NodeTable = field(init=False)
    queues: QueueTable = field(init=False)
    jobs: dict[JobKey, Job] = field(default_factory=dict)
    tasks: dict[Uid, Task] = field(default_factory=dict)
    waiting: dict[JobKey, Job] = field(default_factory=dict)
    """The jobs with pending or gated pods; a cycle plans no others."""
    staged: dict[JobKey, Job] = field(default_factory=dict)
    """The jobs with sub-groups that come later."""
    pod_counts: PodCounts = field(default_factory=PodCounts)
    nominations: Nominations = field(default_factory=Nominations)
    """Pods of other schedulers that are nominated for nodes."""
    supported: frozenset[Need] = frozenset()
    """The needs of pods that the configured plugins support."""
    is_later: bool = False
    """Whether the plan is about a later moment, at which releasing pods have gone."""
    disruption: DisruptionConfiguration = field(default_factory=DisruptionConfiguration)
    """The pods that are not evicted, and the order in which others are."""
    max_stage_timeout_s: float = math.inf
    """Maximum time for which room is kept for a later stage."""
    idle: dict[JobKey, Idleness] = field(default_factory=dict)
    """The gangs whose GPUs are unused for longer than their queue allows."""

    def __post_init__(self) -> None:
        self.nodes = NodeTable(self.axis)
        self.queues = QueueTable(self.axis)

    def serve(self, resources: Iterable[str]) -> None:
        """Set the extended resources that device classes serve; between sessions only."""
        nodes = self.nodes
        served = frozenset(self.axis.index(name) for name in resources if name in self.axis)
        changed = served ^ nodes.served
        if not changed:
            return
        # What a pod holds on a node without a device plugin depends on it.
        holding = [
            task
            for task in self.tasks.values()
            if task.row != NO_ROW
            and task.status.holds_room
            and not changed.isdisjoint(task.shape.request.indices)
        ]
        for task in holding:
            nodes.hold_task(task, -1)
        nodes.served = served
        nodes.version += 1
        for task in holding:
            nodes.hold_task(task, 1)

    def move(self, task: Task, status: TaskStatus, row: int) -> None:
        """Set the status and row of `task`. The caller updates the ledgers."""
        job = self.jobs[task.job]
        job.move(task, status)
        task.row = row
        if job.pending:  # a commit of its other pods may have removed the job from `waiting`
            self.waiting[job.key] = job
