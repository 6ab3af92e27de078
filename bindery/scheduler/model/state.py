"""The state that plans are made on: nodes, queues and jobs.

The cluster cache owns and updates it. A session borrows it for one cycle.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bindery.api.configuration import DisruptionConfiguration
from bindery.scheduler.model.jobs import NO_ROW, Job, JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.nominations import Nominations
from bindery.scheduler.model.podcounts import PodCounts
from bindery.scheduler.model.queues import QueueTable
from bindery.scheduler.model.resources import ResourceAxis
from bindery.scheduler.model.shapes import Need


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
