"""Jobs and tasks: gangs and their pods in the scheduler's memory.

A Task is one pod. A Job is one PodGroup, or one pod without a PodGroup. Only the cluster cache
(truth) and Statements (plans) change their status.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType

from bindery.api.disruption import Asks
from bindery.api.exclusive import ExclusiveUnit
from bindery.api.gpushare import WHOLE
from bindery.api.keptroom import KeptRoom
from bindery.api.names import DEFAULT_QUEUE
from bindery.api.ranks import Rank
from bindery.api.states import ENDED_POD_PHASES
from bindery.scheduler.model.constraints import Constraint
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.stages import Stage

Uid = NewType("Uid", str)

DEFAULT_STAGE_TIMEOUT_S = 600.0
NO_ROW = -1
"""The row of a task that is on no known node."""


class TaskStatus(Enum):
    """The status of a pod in the scheduler's memory."""

    GATED = "Gated"
    PENDING = "Pending"
    ALLOCATED = "Allocated"
    """Planned by an open Statement."""
    PIPELINED = "Pipelined"
    """Planned onto room that is being released; only for this session."""
    BINDING = "Binding"
    """In a BindRequest that is not finished."""
    RUNNING = "Running"
    """Bound to a node; its containers may not run yet."""
    RELEASING = "Releasing"
    """Being deleted; still holds its room."""
    STUCK = "StuckInReleasing"
    """Still holds its room long after its deletion; no plan expects the room to become free."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    holds_room: bool
    """Counts as used on its node."""
    is_active: bool
    """Counts towards its gang's minimum and its queue's allocation."""
    has_ended: bool
    """None of its containers will run again."""

    def __init__(self, text: str) -> None:
        self.is_active = text in ("Allocated", "Binding", "Running")
        self.holds_room = self.is_active or text in ("Releasing", "StuckInReleasing")
        self.has_ended = text in ENDED_POD_PHASES


class JobKey(NamedTuple):
    """Key of a job: of a PodGroup, or of a pod without one."""

    namespace: str
    name: str
    is_group: bool

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps the containers of a bound pod from running; see `starts`."""

    reason: str
    text: str
    is_sure: bool = True
    """Whether it is one at once, and not only if it lasts."""


@dataclass(slots=True, eq=False)
class Task:
    """One pod, with the fields that planning reads."""

    uid: Uid
    namespace: str
    name: str
    job: JobKey
    shape: Shape
    priority: int
    created: str
    pod_status: TaskStatus
    """The status by the pod object alone, without BindRequests and committed evictions."""
    runs: bool = False
    """Whether its containers run; planning does not read it."""
    pod_node: str = ""
    has_own_priority: bool = True
    """Whether the pod object has a priority; otherwise the default PriorityClass applies."""
    own_preemptible: bool | None = None
    """The pod's own statement on evictions for other jobs; None if it has none."""
    is_preemptible: bool = True
    """Whether it may be evicted for other jobs, by its pod, PodGroup and priority."""
    gone_by: float = math.inf
    """For a pod that is being deleted, the end of its grace period: seconds since the epoch."""
    is_ours: bool = True
    """Whether this scheduler plans it; other pods only use room."""
    is_of_pool: bool = True
    """Whether it is of this scheduler's node pool; a bound pod may be of another one."""
    is_recreated: bool = True
    """Whether a controller replaces the pod when it is deleted."""
    awaits_group: bool = False
    """Whether it must not be planned before a PodGroup selects it."""
    status: TaskStatus = TaskStatus.PENDING
    row: int = NO_ROW
    """Row of its node; NO_ROW if it has no node or the node is not known."""
    node_name: str = ""
    """The node that holds room for it; empty if it is only planned or pipelined."""
    queue: str = ""
    """The queue that it counts in: its job's, or the queue that it was bound in."""
    queue_row: int = NO_ROW
    recorded_queue: str = ""
    """The queue that the binder recorded on the pod."""
    recorded_preemptible: bool | None = None
    """Whether it counts as preemptible by the record on the pod; None without a record."""
    recorded_group: str = ""
    """The UID of the PodGroup that the binder recorded on the pod."""
    bound_at: float | None = None
    """Time of its binding: seconds since the epoch."""
    runtime_s: float = math.inf
    """Its longest runtime by annotation or deadline; infinite if not known."""
    never_preempts: bool = False
    """Whether no pod may be evicted for it (`preemptionPolicy: Never`)."""
    sub_group: str = ""
    """Its leaf in the tree of its gang."""
    role: str = ""
    """Its role in its gang."""
    gpu_groups: tuple[str, ...] = ()
    """Its GPU groups, by its labels or by its BindRequest."""
    gpu_indexes: tuple[int, ...] = ()
    """The devices of its node that it holds, if the node reported them."""
    reserves_gpu: bool = False
    """Whether it is a reservation pod, which holds a device for the users of its group."""
    spreads_devices: bool = False
    """Whether it must not share a device with another pod of its job."""
    is_future: bool = False
    """Whether no such pod exists: it stands for one of a later stage while a plan is made."""
    rank: Rank = ()
    """Its index in its gang, by the labels of its controller; empty without one."""
    kept_room: KeptRoom | None = None
    """Where room was kept for later stages of its gang when it was bound."""
    exclusive_unit: ExclusiveUnit | None = None
    """The pods with which it asks for a domain that no others may use."""
    held_levels: Sequence[str] = ()
    """The levels at which it was granted the domain of its node, by its BindRequest or record."""
    asks: Asks = Asks.NOTHING
    """Why it asks to be left in place; see `asks_at`."""
    asks_until: float = math.inf
    """Until when its annotations count for that: seconds since the epoch."""
    checkpoint_at: float = 0.0
    """When its work was last saved: seconds since the epoch, or 0."""
    idle_since: float = math.inf
    """Since when none of its GPUs is used: seconds since the epoch; infinite if one is."""
    labels: Mapping[str, str] = field(default_factory=dict)
    sick_devices: tuple[str, ...] = ()
    """Its devices that the node reports as unhealthy, with reasons; planning does not read it."""
    mark_problem: str = ""
    """Why the grouper cannot use the mark that names its gang; "" if it can. Planning does not
    read it."""
    obstacle: Obstacle | None = None
    """What keeps its containers from running, if it is bound; planning does not read it."""
    loss: str = ""
    """Why it failed without an end of its own; "" if it did not. Planning does not read it."""
    eviction_committed: bool = False
    """Whether a committed plan evicts it; the pod object may not show this yet."""

    def take_over_remarks(self, newer: "Task") -> None:
        """Take over from a newer state of the pod what no sum depends on."""
        self.runs, self.asks, self.checkpoint_at = newer.runs, newer.asks, newer.checkpoint_at
        self.labels, self.asks_until = newer.labels, newer.asks_until
        self.kept_room, self.loss = newer.kept_room, newer.loss
        self.idle_since, self.sick_devices = newer.idle_since, newer.sick_devices
        self.mark_problem, self.obstacle = newer.mark_problem, newer.obstacle

    def asks_at(self, now: float) -> Asks:
        """Return why it asks to be left in place. `now`: seconds since the epoch."""
        return self.asks if now < self.asks_until else self.asks & ~Asks.BY_ANNOTATION

    @property
    def shares_gpu(self) -> bool:
        """Whether it requests parts of GPUs, which no resource of its containers shows."""
        share = self.shape.request.share
        return share is not None and share.portion != WHOLE

    @property
    def order(self) -> tuple[int, Rank, str, str]:
        """Sort key within a job: priority, rank, then name with numbers in natural order."""
        return (-self.priority, self.rank, _natural(self.name), self.uid)


def _natural(name: str) -> str:
    """Return `name` with its trailing number padded, so that worker-10 follows worker-9."""
    head = name.rstrip("0123456789")
    return f"{head}{int(name[len(head) :] or 0):012d}"


@dataclass(slots=True)
class Tally:
    """Number of pods of a job in one state: in total, by sub-group and by role."""

    total: int = 0
    groups: Counter[str] = field(default_factory=Counter)
    roles: Counter[str] = field(default_factory=Counter)

    def count(self, task: Task, step: int) -> None:
        """Add (`step` 1) or remove (-1) `task`."""
        self.total += step
        if task.sub_group:
            self.groups[task.sub_group] += step
        if task.role:
            self.roles[task.role] += step


@dataclass(slots=True, eq=False)
class Job:
    """A gang: its tasks and the fields of its PodGroup."""

    key: JobKey
    uid: Uid = Uid("")
    """UID of the PodGroup or of the single pod; empty before the PodGroup has been seen."""
    workload: str = ""
    """The workload that the grouper made it for, such as `Job vis0`; planning does not read it."""
    queue: str = DEFAULT_QUEUE
    """The queue of its pending pods, in which it is planned."""
    named_queue: str = DEFAULT_QUEUE
    """The queue named by its PodGroup or pod."""
    is_assigned: bool = False
    """Whether `named_queue` also applies to bound pods: an authorized user assigned the queue. The
    label of a namespace assigns nothing."""
    priority_class: str | None = None
    own_preemptible: bool | None = None
    """The PodGroup's statement on evictions for other jobs; None if it has none."""
    min_member: int = 1
    roles: Mapping[str, int] = field(default_factory=dict)
    """Role -> minimum number of its pods."""
    preemption_delay_s: float = 0.0
    """Waiting time before other pods may be evicted for it."""
    runtime_s: float = math.inf
    """Expected runtime of the gang; infinite if its PodGroup has none."""
    checkpoint_at: float = 0.0
    """When the work of the gang was last saved, by its PodGroup: seconds since the epoch, or 0."""
    run_time_limit_s: float = math.inf
    """How long it may run by its PodGroup."""
    ran_s: float = 0.0
    """How long it ran before its present state, by the status of its PodGroup."""
    running_since: float | None = None
    """Since when it runs by that status: seconds since the epoch; None if it does not."""
    staleness_grace_s: float | None = None
    """Longest time below its minimum after it has run; None means the configured value."""
    tree: Group | None = None
    """Its sub-groups, if it has any."""
    stages: tuple[Stage, ...] = ()
    """The sub-groups whose pods are created later, in the order in which they come."""
    groups: Mapping[str, Group] = field(default_factory=dict)
    """The groups of its tree by name, if it has stages."""
    successors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Leaf -> leaves whose pods exist only when the pods of the leaf have succeeded."""
    stage_timeout_s: float = DEFAULT_STAGE_TIMEOUT_S
    """How long the room of later stages is kept."""
    goes_whole: bool = False
    """Whether it is evicted only as a whole."""
    preemption_policy: str | None = None
    """Whether others may be evicted for it, as its PodGroup has it; None: as its pods have it."""
    topology: Constraint | None = None
    """Where all its pods must, or should, be together."""
    has_constraints: bool = False
    """Whether it or one of its sub-groups has a topology constraint."""
    has_segments: bool = False
    """Whether one of these constraints has segments."""
    created: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of its PodGroup."""
    exists: bool = False
    """Whether the PodGroup (or single pod) has been seen."""
    awaits_group: bool = False
    """Whether it is a pod that must not be planned before a PodGroup selects it."""
    invalid: str | None = None
    """Why the spec of the PodGroup cannot be used; None if it can."""
    tasks: dict[Uid, Task] = field(default_factory=dict)
    pending: dict[Uid, Task] = field(default_factory=dict)
    """The tasks with status PENDING."""
    placed: Tally = field(default_factory=Tally)
    """Active and succeeded tasks; they count towards the minimum."""
    succeeded: Tally = field(default_factory=Tally)
    """Succeeded tasks."""
    promised: Tally = field(default_factory=Tally)
    """Tasks that are pipelined in this session."""
    waiting: Tally = field(default_factory=Tally)
    """Pending tasks."""
    gated_count: int = 0
    unit_count: int = 0
    """Number of its pods with an `exclusive_unit`."""
    charged: Counter[str] = field(default_factory=Counter)
    """Queue -> number of the job's active pods that count in it."""
    changes: int = 0
    """Grows when pods come, go or change their status."""

    def add(self, task: Task) -> None:
        """Add `task` with its present status."""
        self.tasks[task.uid] = task
        self.unit_count += task.exclusive_unit is not None
        self._count(task, 1)

    def remove(self, task: Task) -> None:
        """Remove `task`."""
        del self.tasks[task.uid]
        self.unit_count -= task.exclusive_unit is not None
        self._count(task, -1)

    def empty(self) -> None:
        """Remove all tasks."""
        self.tasks.clear()
        self.pending.clear()
        self.placed, self.promised, self.waiting = Tally(), Tally(), Tally()
        self.succeeded = Tally()
        self.gated_count = self.unit_count = 0
        self.charged.clear()

    def move(self, task: Task, status: TaskStatus) -> None:
        """Set the status of `task` and update the counts."""
        self._count(task, -1)
        task.status = status
        self._count(task, 1)

    def _count(self, task: Task, step: int) -> None:
        status = task.status
        self.changes += 1
        if status.is_active:
            self.charged[task.queue] += step
        if status.is_active or status is TaskStatus.SUCCEEDED:
            self.placed.count(task, step)
            if status is TaskStatus.SUCCEEDED:
                self.succeeded.count(task, step)
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
        """Return the queue in which the job is planned.

        This is the named queue. If all active pods are charged to other queues, it is the queue
        with most of them.
        """
        if self.charged[self.named_queue]:
            return self.named_queue
        # Negative counts: the largest count wins, and of equal counts the first name.
        elsewhere = [(-count, name) for name, count in self.charged.items() if count]
        return min(elsewhere)[1] if elsewhere else self.named_queue

    def run_time_s(self, now: float) -> float:
        """Return for how long the gang has run, until `now` (seconds since the epoch).

        Times without its minimum do not count. Until its status has the state Running, the
        bindings of its pods count.
        """
        since = self.running_since
        if since is None and self.is_satisfied:
            bound = (task.bound_at for task in self.tasks.values() if task.bound_at is not None)
            since = max(bound, default=None)
        return self.ran_s + (max(0.0, now - since) if since is not None else 0.0)

    @property
    def is_constrained(self) -> bool:
        """Whether it, one of its sub-groups or one of its pods has a topology constraint."""
        return self.has_constraints or self.unit_count > 0

    def constraints(self) -> Iterator[tuple[str, Constraint]]:
        """Yield its topology constraints with the names of their groups; "" for the whole gang."""
        if self.topology is not None:
            yield "", self.topology
        if self.tree is not None:
            for group in self.tree.all_groups():
                if group.topology is not None:
                    yield group.name, group.topology

    def exclusive_levels(self, leaf: str, unit: ExclusiveUnit | None) -> tuple[str, ...]:
        """Return the levels at which pods ask for a domain without pods of other gangs.

        `leaf`: their sub-group, or "". `unit`: what their annotations ask for.
        """
        levels = [
            constraint.level
            for name, constraint in self.constraints()
            if constraint.is_exclusive
            and ((leaves := self.leaves_of(name)) is None or leaf in leaves)
        ]
        return (*levels, unit.level) if unit is not None else tuple(levels)

    def leaves_of(self, name: str) -> frozenset[str] | None:
        """Return the names of the leaves of the group `name`; None for the whole gang."""
        if not name or self.tree is None:
            return None
        return self.tree.leaf_names[name]

    @property
    def is_satisfied(self) -> bool:
        """Whether the gang has its minimum."""
        return self.is_met_by(self.placed)

    @property
    def is_scheduled(self) -> bool:
        """Whether it counts as scheduled in all reports: it has its minimum, and no pod of it waits
        or at least one has a place.

        A gang that needs no pods, as of a Deployment, would have its minimum also if none fits.
        """
        waits = self.waiting.total or self.promised.total or self.gated_count
        return self.is_satisfied and (self.placed.total > 0 or not waits)

    @property
    def needs_none(self) -> bool:
        """Whether it has no minimum at all: each of its pods starts by itself."""
        return not self.min_member and not any(self.roles.values()) and self.tree is None

    @property
    def is_promised(self) -> bool:
        """Whether the gang has its minimum, counting pods that are pipelined in this session."""
        return self.is_met_by(self.placed, self.promised)

    @property
    def has_come(self) -> bool:
        """Whether enough pods exist to place the gang."""
        return self.is_met_by(self.placed, self.promised, self.waiting)

    def lacking(self, leaf: Group) -> int:
        """Return the number of missing pods of the sub-group `leaf`; pipelined pods count."""
        return self.lacking_of(leaf, self.placed, self.promised)

    def lacking_roles(self) -> dict[str, int]:
        """Return the number of missing pods by role."""
        have = self.placed.roles + self.promised.roles
        lacking = {role: minimum - have[role] for role, minimum in self.roles.items()}
        return {role: count for role, count in lacking.items() if count > 0}

    @property
    def missing(self) -> int:
        """Number of pods that the gang lacks for its `minMember`."""
        return max(0, self.min_member - self._over() - self.placed.total - self.promised.total)

    def is_met_by(self, *tallies: Tally) -> bool:
        """Return whether the pods of `tallies` together are the gang's minimum."""
        if sum([tally.total for tally in tallies]) < self.min_member - self._over():
            return False
        for role, minimum in self.roles.items():
            if sum(tally.roles[role] for tally in tallies) < minimum:
                return False
        tree = self.tree
        return tree is None or tree.is_satisfied(lambda leaf: self.lacking_of(leaf, *tallies))

    def lacking_of(self, leaf: Group, *tallies: Tally) -> int:
        """Return the number of pods that `leaf` lacks if it has only those of `tallies`."""
        if self.is_over(leaf.name):
            return 0
        needed = leaf.min_member
        if needed is None:  # all pods of the sub-group that exist now
            needed = sum(t.groups[leaf.name] for t in (self.placed, self.promised, self.waiting))
        return needed - sum(tally.groups[leaf.name] for tally in tallies)

    def runs(self, leaf: Group) -> bool:
        """Return whether a pod of the sub-group `leaf` is placed and has not ended."""
        return self.placed.groups[leaf.name] > self.succeeded.groups[leaf.name]

    def is_over(self, leaf: str) -> bool:
        """Return whether pods exist that are created when those of `leaf` have succeeded."""
        if not self.successors:
            return False
        later = self.successors.get(leaf, ())
        return any(
            tally.groups[name] > 0
            for tally in (self.placed, self.promised, self.waiting)
            for name in later
        )

    def _over(self) -> int:
        """Return the minima of the leaves whose pods have succeeded and may be gone."""
        if not self.successors or self.tree is None:
            return 0
        return sum(leaf.min_member or 0 for leaf in self.tree.leaves() if self.is_over(leaf.name))
