"""The state that plans are made on: nodes, queues and jobs together, and how a task moves in it.

The cluster cache owns it and keeps it true; a session borrows it for one cycle.
"""

from dataclasses import dataclass, field

from bindery.scheduler.model.jobs import Job, JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.queues import QueueTable
from bindery.scheduler.model.resources import ResourceAxis


@dataclass
class PlanState:
    """Columns and jobs. Nothing in here knows of watches, requests or time."""

    axis: ResourceAxis = field(default_factory=ResourceAxis)
    nodes: NodeTable = field(init=False)
    queues: QueueTable = field(init=False)
    jobs: dict[JobKey, Job] = field(default_factory=dict)
    tasks: dict[Uid, Task] = field(default_factory=dict)
    waiting: dict[JobKey, Job] = field(default_factory=dict)
    """The jobs that have pending or gated pods: a cycle looks at no others."""

    def __post_init__(self) -> None:
        self.nodes = NodeTable(self.axis)
        self.queues = QueueTable(self.axis)

    def move(self, task: Task, status: TaskStatus, row: int) -> None:
        """Give `task` its new status and place. Ledgers are the caller's business."""
        job = self.jobs[task.job]
        job.move(task, status)
        task.row = row
        if job.pending:  # a commit of its other pods may have taken it off the list meanwhile
            self.waiting[job.key] = job
