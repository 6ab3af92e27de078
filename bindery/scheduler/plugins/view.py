"""The read-only view of a session for plugins.

Every extension point gets a `SessionView`. It has no member that plans, commits, ends a session or
writes a column, so mypy refuses a plugin that tries. Only ledgers change state, with each operation
of a Statement: `interface.state.LedgerProvider` gets the writable state for its ledger.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bindery.api.names import GPU_RESOURCE
from bindery.kube.objects.queueaccess import AccessRefusal
from bindery.kube.objects.watched import Pod
from bindery.scheduler.ledgers.base import Ledger
from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.labels import LabelColumns
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.model.views import QueueSums, SharesView, StateView

L = TypeVar("L", bound=Ledger)


FRAGMENTATION: Final = "fragmentation"
"""The strategy of the plugin of this name."""


@dataclass(frozen=True, slots=True)
class PackingStrategies:
    """How pods are packed: `fragmentation`, `binpack` or `spread`."""

    gpu: str = FRAGMENTATION
    """Nodes for pods with GPUs."""
    cpu: str = FRAGMENTATION
    """Nodes for pods without GPUs."""
    device: str = FRAGMENTATION
    """The GPUs of a node for a share of a GPU."""


def without_gpus(session: "SessionView", rows: Rows) -> BoolColumn:
    """Return the nodes of `rows` that offer no resource that counts as GPUs."""
    axis, allocatable = session.state.axis, session.state.nodes.allocatable
    offers: BoolColumn = allocatable[axis.index(GPU_RESOURCE), rows] > 0
    for index, _ in axis.counted_as_gpus():
        offers = offers | (allocatable[index, rows] > 0)
    return ~offers


class RunTimeLimitView(Protocol):
    """A limit of run time."""

    def text(self) -> str:
        """Return the limit as the end of a sentence."""


class MemoryView(Protocol):
    """The results of earlier cycles."""

    @property
    def cooldown_s(self) -> float:
        """For how long a node is avoided after a failure."""

    def avoided_nodes(self, job: Job) -> Sequence[str]:
        """Return the names of the nodes of the job's recent binding failures."""

    def postponed(self, job: Job) -> str | None:
        """Return why the job is not planned for now; None if it is."""


class PackingView(Protocol):
    """How pods are packed, by all plugins that are a `PackingPolicy`."""

    @property
    def strategies(self) -> PackingStrategies:
        """The configured strategies."""

    def is_packed(self, shape: Shape) -> bool:
        """Return whether a plugin decides alone how pods of `shape` are packed."""

    def chosen_devices(self, task: Task, row: int) -> Sequence[str] | None:
        """Return the devices for `task` from the first plugin with an answer."""


class SessionView(Protocol):
    """The cluster in one cycle, with the plan so far."""

    # -- the cluster ---------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time of the cycle: seconds since the epoch."""

    @property
    def state(self) -> StateView:
        """Nodes and queues as columns, valid for one cycle: do not keep them."""

    @property
    def memory(self) -> MemoryView:
        """The results of earlier cycles."""

    @property
    def order(self) -> NDArray[np.intp]:
        """Node rows, sorted by node name."""

    @property
    def labels(self) -> LabelColumns:
        """Label values as columns over node rows."""

    @property
    def has_soft_taints(self) -> bool:
        """Whether any node has a taint of effect PreferNoSchedule."""

    @property
    def largest_allocatable(self) -> NDArray[np.int64]:
        """The largest allocatable amount of any node [resource], at least 1."""

    @property
    def is_releasing(self) -> bool:
        """Whether room is being released on any node."""

    def passing(self, shape: Shape) -> BoolColumn:
        """Return the combined mask of all `NodeFilter`s for pods of `shape` [node row]."""

    # -- jobs and pods -------------------------------------------------------------------------

    def priority(self, job: Job) -> int:
        """Return the priority of `job`."""

    def priority_is_known(self, job: Job) -> bool:
        """Return whether the job's PriorityClass exists, if it names one."""

    def pending_since(self, job: Job) -> float:
        """Return when `job` began to wait: seconds since the epoch."""

    def next_pods(self, job: Job) -> Sequence[Task]:
        """Return the next pods of `job` to place together: its gang, or one extra pod."""

    def pod(self, task: Task) -> Pod | None:
        """Return the pod of `task`; None if it is bound, or belongs to another scheduler."""

    def handed_over(self, plugin: str) -> Iterator[tuple[Uid, str, Mapping[str, Any]]]:
        """Yield UID, node name and `pluginData` of `plugin` for each pod at the binder."""

    # -- queues --------------------------------------------------------------------------------

    @property
    def queue_ledger(self) -> QueueSums:
        """The held amounts of queues."""

    @property
    def shares(self) -> SharesView:
        """The quotas, limits and fair shares of queues."""

    @property
    def offered(self) -> IntColumns:
        """What nodes offer to queues, less pods of other schedulers: [resource, node]."""

    def adding(self, job: Job, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return those of `tasks` of `job` that add to what its queue holds."""

    @property
    def stage_rooms(self) -> Sequence[tuple[Job, Sequence[int]]]:
        """The gangs with room that is kept for later stages, and the node rows of the room."""

    @property
    def reserved_in_queues(self) -> IntColumns | None:
        """The reserved amounts of queues [resource, queue row]; None without reservations."""

    def queue_row(self, job: Job) -> int:
        """Return the row of the job's queue."""

    def queue_problem(self, row: int) -> tuple[str, str] | None:
        """Return why the queue at `row` cannot be used: (reason, message), or None."""

    def exceeded_limit(self, job: Job) -> RunTimeLimitView | None:
        """Return the run time limit that `job` has reached; None if it may go on."""

    def access_refusal(self, job: Job) -> AccessRefusal | None:
        """Return why `job` may not use its queue in this way; None if it may."""

    # -- other plugins -------------------------------------------------------------------------

    def ledger(self, kind: type[L]) -> L:
        """Return the session's ledger of this type; raises LookupError if there is none."""

    @property
    def packing(self) -> PackingView:
        """How pods are packed."""
