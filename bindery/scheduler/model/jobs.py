"""Jobs and their pods: what gangs are to the scheduler.

A Task is one pod; a Job is one PodGroup, or one pod that has none. Their status changes only
through the cluster cache (truth) and through Statements (plans).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType

from bindery.api.names import DEFAULT_QUEUE
from bindery.scheduler.model.shapes import Shape

Uid = NewType("Uid", str)

NO_ROW = -1
"""The row of a task that stands on no known node."""


class TaskStatus(Enum):
    """Where a pod stands."""

    GATED = "Gated"
    PENDING = "Pending"
    ALLOCATED = "Allocated"
    """Planned in a Statement that is still open."""
    PIPELINED = "Pipelined"
    """Planned onto room that is being released; for this session only."""
    BINDING = "Binding"
    """In a BindRequest that is not finished."""
    RUNNING = "Running"
    """Bound to a node, whether or not its containers run yet."""
    RELEASING = "Releasing"
    """Being deleted, still holding its room."""
    STUCK = "StuckInReleasing"
    """Should have been gone long ago: holds its room, and nobody counts on it."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    holds_room: bool
    """Counts as used on its node."""
    is_active: bool
    """Counts towards its gang's minimum and its queue's allocation."""

    def __init__(self, text: str) -> None:
        self.is_active = text in ("Allocated", "Binding", "Running")
        self.holds_room = self.is_active or text in ("Releasing", "StuckInReleasing")


class JobKey(NamedTuple):
    """Names a job: a PodGroup, or a pod without one."""

    namespace: str
    name: str
    is_group: bool

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(slots=True, eq=False)
class Task:
    """One pod, as far as planning reads it."""

    uid: Uid
    namespace: str
    name: str
    job: JobKey
    shape: Shape
    priority: int
    created: str
    pod_status: TaskStatus
    """What the pod object alone says: a pending pod in a BindRequest is Binding all the same."""
    pod_node: str = ""
    says_preemptible: bool | None = None
    """What the pod itself says about being evicted for others."""
    is_preemptible: bool = True
    """Whether it may be evicted for others; all that is known taken together."""
    gone_by: float = math.inf
    """When a pod that is being deleted should be gone: seconds since the epoch."""
    is_ours: bool = True
    """Whether this scheduler plans it; all others only use room."""
    status: TaskStatus = TaskStatus.PENDING
    row: int = NO_ROW
    """Its node's row; NO_ROW while it stands nowhere, or on a node that is not known."""
    node_name: str = ""
    """The node that holds room for it; empty for one that is only planned or pipelined."""
    queue_row: int = NO_ROW

    @property
    def order(self) -> tuple[int, str, str]:
        """Sort key inside a job: priority, then name in natural order of equal lengths."""
        return (-self.priority, _natural(self.name), self.uid)


def _natural(name: str) -> str:
    """Return `name` with its trailing number padded, so that worker-10 follows worker-9."""
    head = name.rstrip("0123456789")
    return f"{head}{int(name[len(head) :] or 0):012d}"


@dataclass(slots=True, eq=False)
class Job:
    """A gang: its tasks and what its PodGroup asks."""

    key: JobKey
    uid: Uid = Uid("")
    """Of the PodGroup or of the single pod; empty while the PodGroup has not been seen."""
    queue: str = DEFAULT_QUEUE
    priority_class: str | None = None
    says_preemptible: bool | None = None
    """What the PodGroup says about being evicted for others."""
    min_member: int = 1
    created: str = ""
    exists: bool = False
    """Whether the PodGroup (or single pod) has been seen."""
    invalid: str | None = None
    """Why the PodGroup's spec cannot be used."""
    tasks: dict[Uid, Task] = field(default_factory=dict)
    pending: dict[Uid, Task] = field(default_factory=dict)
    """The tasks with status PENDING."""
    active_count: int = 0
    """Tasks whose status is active."""
    gated_count: int = 0
    finished_count: int = 0
    """Tasks that have succeeded: they count towards the minimum as well."""

    def add(self, task: Task) -> None:
        """Take `task` in with the status it has."""
        self.tasks[task.uid] = task
        self._count(task, 1)

    def remove(self, task: Task) -> None:
        """Let go of `task`."""
        del self.tasks[task.uid]
        self._count(task, -1)

    def move(self, task: Task, status: TaskStatus) -> None:
        """Give `task` another `status` and keep the counts true."""
        self._count(task, -1)
        task.status = status
        self._count(task, 1)

    def _count(self, task: Task, step: int) -> None:
        status = task.status
        if status.is_active:
            self.active_count += step
        elif status is TaskStatus.SUCCEEDED:
            self.finished_count += step
        elif status is TaskStatus.GATED:
            self.gated_count += step
        elif status is TaskStatus.PENDING:
            if step > 0:
                self.pending[task.uid] = task
            else:
                del self.pending[task.uid]

    @property
    def missing(self) -> int:
        """How many more pods the gang needs to have its minimum."""
        return max(0, self.min_member - self.active_count - self.finished_count)

    def pending_in_order(self) -> list[Task]:
        """Return the pending tasks in the order in which they are placed."""
        return sorted(self.pending.values(), key=lambda task: task.order)

    def priorities(self) -> Iterator[int]:
        """Yield the priorities of the tasks."""
        return (task.priority for task in self.tasks.values())
