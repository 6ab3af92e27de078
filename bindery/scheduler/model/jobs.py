"""Jobs and their pods: what gangs are to the scheduler.

A Task is one pod; a Job is one PodGroup, or one pod that has none. Their status changes only
through the cluster cache (truth) and through Statements (plans).
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType

from bindery.api.names import DEFAULT_QUEUE
from bindery.api.states import ENDED_POD_PHASES
from bindery.scheduler.model.gangs import Group
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
    has_ended: bool
    """No container of it will run again."""

    def __init__(self, text: str) -> None:
        self.is_active = text in ("Allocated", "Binding", "Running")
        self.holds_room = self.is_active or text in ("Releasing", "StuckInReleasing")
        self.has_ended = text in ENDED_POD_PHASES


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
    has_own_priority: bool = True
    """Whether the pod says its priority; else it is that of the default PriorityClass."""
    says_preemptible: bool | None = None
    """What the pod itself says about being evicted for others."""
    is_preemptible: bool = True
    """Whether it may be evicted for others; all that is known taken together."""
    gone_by: float = math.inf
    """When a pod that is being deleted should be gone: seconds since the epoch."""
    is_ours: bool = True
    """Whether this scheduler plans it; all others only use room."""
    is_recreated: bool = True
    """Whether a controller creates another pod in its place when it is deleted."""
    status: TaskStatus = TaskStatus.PENDING
    row: int = NO_ROW
    """Its node's row; NO_ROW while it stands nowhere, or on a node that is not known."""
    node_name: str = ""
    """The node that holds room for it; empty for one that is only planned or pipelined."""
    queue: str = ""
    """The queue that it counts in: its job's, or the one that it was charged to when it was bound.
    """
    queue_row: int = NO_ROW
    recorded_queue: str = ""
    """The queue that the binder recorded on the pod."""
    recorded_group: str = ""
    """The UID of the PodGroup that the binder recorded on the pod."""
    bound_at: float | None = None
    """When it was bound: seconds since the epoch."""
    runtime_s: float = math.inf
    """How long it runs at the most, by its annotation or its deadline; infinite if unknown."""
    never_preempts: bool = False
    """Whether nobody may be evicted for it (`preemptionPolicy: Never`)."""
    sub_group: str = ""
    """The leaf of its gang's tree that it belongs to."""
    role: str = ""
    """What it is in its gang."""
    gpu_groups: tuple[str, ...] = ()
    """The GPU groups that it belongs to, by its labels or by the request it stands in."""
    gpu_indexes: tuple[int, ...] = ()
    """The devices of its node that it was seen to hold, where that is known."""
    reserves_gpu: bool = False
    """Whether it only holds a device for the users of its group."""
    spreads_devices: bool = False
    """Whether it wants no device of which another pod of its job has a part."""

    eviction_committed: bool = False
    """Whether its eviction stands in a committed plan; the pod object may not show it yet."""

    @property
    def order(self) -> tuple[int, str, str]:
        """Sort key inside a job: priority, then name in natural order of equal lengths."""
        return (-self.priority, _natural(self.name), self.uid)


def _natural(name: str) -> str:
    """Return `name` with its trailing number padded, so that worker-10 follows worker-9."""
    head = name.rstrip("0123456789")
    return f"{head}{int(name[len(head) :] or 0):012d}"


@dataclass(slots=True)
class Tally:
    """How many pods of a job are in one state: in all, by sub-group, by role."""

    total: int = 0
    groups: Counter[str] = field(default_factory=Counter)
    roles: Counter[str] = field(default_factory=Counter)

    def count(self, task: Task, step: int) -> None:
        """Add (`step` 1) or take away (-1) `task`."""
        self.total += step
        if task.sub_group:
            self.groups[task.sub_group] += step
        if task.role:
            self.roles[task.role] += step


@dataclass(slots=True, eq=False)
class Job:
    """A gang: its tasks and what its PodGroup asks."""

    key: JobKey
    uid: Uid = Uid("")
    """Of the PodGroup or of the single pod; empty while the PodGroup has not been seen."""
    queue: str = DEFAULT_QUEUE
    """The queue that its pending pods ask in, and that its turn comes in."""
    named_queue: str = DEFAULT_QUEUE
    """The queue that its PodGroup or pod names."""
    is_assigned: bool = False
    """Whether `named_queue` applies to pods that are bound already: who named it may assign to it.
    """
    priority_class: str | None = None
    says_preemptible: bool | None = None
    """What the PodGroup says about being evicted for others."""
    min_member: int = 1
    roles: Mapping[str, int] = field(default_factory=dict)
    """Role -> how many pods of it the gang needs."""
    preemption_delay_s: float = 0.0
    """How long it waits before others may be evicted for it."""
    runtime_s: float = math.inf
    """How long the gang expects to run; infinite if its PodGroup does not say."""
    staleness_grace_s: float | None = None
    """How long it may stay below its minimum once it has run; None: by configuration."""
    tree: Group | None = None
    """Its sub-groups, if it has some."""
    created: str = ""
    exists: bool = False
    """Whether the PodGroup (or single pod) has been seen."""
    invalid: str | None = None
    """Why the PodGroup's spec cannot be used."""
    tasks: dict[Uid, Task] = field(default_factory=dict)
    pending: dict[Uid, Task] = field(default_factory=dict)
    """The tasks with status PENDING."""
    placed: Tally = field(default_factory=Tally)
    """Tasks that hold room or have succeeded: they count towards the minimum."""
    promised: Tally = field(default_factory=Tally)
    """Tasks that are pipelined in this session."""
    waiting: Tally = field(default_factory=Tally)
    """Tasks that are pending."""
    gated_count: int = 0
    charged: Counter[str] = field(default_factory=Counter)
    """Queue -> how many of its active pods count in it."""

    def add(self, task: Task) -> None:
        """Take `task` in with the status it has."""
        self.tasks[task.uid] = task
        self._count(task, 1)

    def remove(self, task: Task) -> None:
        """Let go of `task`."""
        del self.tasks[task.uid]
        self._count(task, -1)

    def empty(self) -> None:
        """Let go of all tasks."""
        self.tasks.clear()
        self.pending.clear()
        self.placed, self.promised, self.waiting = Tally(), Tally(), Tally()
        self.gated_count = 0
        self.charged.clear()

    def move(self, task: Task, status: TaskStatus) -> None:
        """Give `task` another `status` and keep the counts true."""
        self._count(task, -1)
        task.status = status
        self._count(task, 1)

    def _count(self, task: Task, step: int) -> None:
        status = task.status
        if status.is_active:
            self.charged[task.queue] += step
        if status.is_active or status is TaskStatus.SUCCEEDED:
            self.placed.count(task, step)
        elif status is TaskStatus.PIPELINED:
            self.promised.count(task, step)
        elif status is TaskStatus.GATED:
            self.gated_count += step
        elif status is TaskStatus.PENDING:
            self.waiting.count(task, step)
            if step > 0:
                self.pending[task.uid] = task
            else:
                del self.pending[task.uid]

    def settled_queue(self) -> str:
        """Return the queue that the job belongs in: the one it names, but while all its active
        pods are charged elsewhere, the one that most of them are charged to.
        """
        if self.charged[self.named_queue]:
            return self.named_queue
        elsewhere = [(-count, name) for name, count in self.charged.items() if count]
        return min(elsewhere)[1] if elsewhere else self.named_queue

    # -- what the gang needs -------------------------------------------------------------------

    @property
    def is_satisfied(self) -> bool:
        """Whether the gang has all that it needs."""
        return self.is_met_by(self.placed)

    @property
    def is_promised(self) -> bool:
        """Whether the gang has, with what is promised to it in this session, all that it needs."""
        return self.is_met_by(self.placed, self.promised)

    @property
    def has_come(self) -> bool:
        """Whether enough pods are there for the gang to be placed."""
        return self.is_met_by(self.placed, self.promised, self.waiting)

    def lacking(self, leaf: Group) -> int:
        """Return how many pods the sub-group `leaf` lacks, promised ones not counted as lacking."""
        return self.lacking_of(leaf, self.placed, self.promised)

    def lacking_roles(self) -> dict[str, int]:
        """Return role -> how many pods of it the gang lacks."""
        lacking = {
            role: minimum - self.placed.roles[role] - self.promised.roles[role]
            for role, minimum in self.roles.items()
        }
        return {role: count for role, count in lacking.items() if count > 0}

    @property
    def missing(self) -> int:
        """How many more pods the gang needs to have its minimum of all."""
        return max(0, self.min_member - self.placed.total - self.promised.total)

    def is_met_by(self, *tallies: Tally) -> bool:
        """Return whether pods like those of `tallies` would be all that the gang needs."""
        if sum(tally.total for tally in tallies) < self.min_member:
            return False
        for role, minimum in self.roles.items():
            if sum(tally.roles[role] for tally in tallies) < minimum:
                return False
        tree = self.tree
        return tree is None or tree.is_satisfied(lambda leaf: self.lacking_of(leaf, *tallies))

    def lacking_of(self, leaf: Group, *tallies: Tally) -> int:
        """Return how many pods the sub-group `leaf` would lack with those of `tallies` alone."""
        needed = leaf.min_member
        if needed is None:
            needed = sum(t.groups[leaf.name] for t in (self.placed, self.promised, self.waiting))
        return needed - sum(tally.groups[leaf.name] for tally in tallies)

    def priorities(self) -> Iterator[int]:
        """Yield the priorities of the tasks."""
        return (task.priority for task in self.tasks.values())
