"""What a plugin may read of a session.

Every extension point gets a `SessionView`. It has no member that plans, commits, ends a session or
writes a column, so mypy refuses a plugin that tries. Ledgers alone change state, in step with
Statements: `LedgerProvider` gets the state that its ledger writes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bindery.kube.objects import Pod
from bindery.scheduler.ledgers.base import Ledger
from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.labels import LabelColumns
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.views import QueueSums, SharesView, StateView

L = TypeVar("L", bound=Ledger)


class SessionView(Protocol):
    """One cycle's view of the cluster, as the plan stands at this moment."""

    # -- the cluster ---------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time of the cycle: seconds since the epoch."""
        ...

    @property
    def state(self) -> StateView:
        """Nodes and queues as columns. They are borrowed for one cycle: do not keep them."""
        ...

    @property
    def order(self) -> NDArray[np.intp]:
        """Position -> node row, nodes sorted by name."""
        ...

    @property
    def labels(self) -> LabelColumns:
        """Label values as columns over node rows."""
        ...

    @property
    def has_soft_taints(self) -> bool:
        """Whether any node has a taint of effect PreferNoSchedule."""
        ...

    @property
    def largest_allocatable(self) -> NDArray[np.int64]:
        """The most that one node offers [resource], at least 1."""
        ...

    @property
    def is_releasing(self) -> bool:
        """Whether any room is being released."""
        ...

    def passing(self, shape: Shape) -> BoolColumn:
        """Return which node rows pass all `NodeFilter`s for pods of `shape`."""
        ...

    def avoided_nodes(self, job: Job) -> Sequence[str]:
        """Return the nodes to which binding the job failed a short while ago."""
        ...

    # -- jobs and pods -------------------------------------------------------------------------

    def priority(self, job: Job) -> int:
        """Return the priority of `job`."""
        ...

    def priority_is_known(self, job: Job) -> bool:
        """Return whether the job's PriorityClass exists, if it names one."""
        ...

    def pending_since(self, job: Job) -> float:
        """Return since when `job` waits: seconds since the epoch."""
        ...

    def running_since(self, job: Job) -> float:
        """Return when the first pod of `job` was bound: seconds since the epoch."""
        ...

    def postponed(self, job: Job) -> str | None:
        """Return why the job is left alone for now, if it is."""
        ...

    def next_pods(self, job: Job) -> Sequence[Task]:
        """Return the pods of `job` that are placed next, together: its gang, or one extra pod."""
        ...

    def pod(self, task: Task) -> Pod | None:
        """Return the pod of `task`, if it is one of this scheduler's that is not bound."""
        ...

    def handed_over(self, plugin: str) -> Iterator[tuple[Uid, str, Mapping[str, Any]]]:
        """Yield pod, node name and what `plugin` has handed to the binder, of pods on their way."""
        ...

    # -- queues --------------------------------------------------------------------------------

    @property
    def queue_ledger(self) -> QueueSums:
        """What queues hold."""
        ...

    @property
    def shares(self) -> SharesView:
        """What queues deserve."""
        ...

    @property
    def reserved_in_queues(self) -> IntColumns | None:
        """What reservations keep of queues [resource, queue row]; None if there are none."""
        ...

    def queue_row(self, job: Job) -> int:
        """Return the row of the job's queue."""
        ...

    def queue_problem(self, row: int) -> tuple[str, str] | None:
        """Return why nothing of the queue at `row` can be planned: (reason, text), or None."""
        ...

    # -- other plugins -------------------------------------------------------------------------

    def ledger(self, kind: type[L]) -> L:
        """Return the session's ledger of this type.

        Raises:
            LookupError: no plugin offers one.
        """
        ...

    def chosen_devices(self, task: Task, row: int) -> Sequence[str] | None:
        """Return the devices that the first `DeviceChoice` with a wish wants for `task`."""
        ...

    def gpu_strategy(self) -> str | None:
        """Return how the first `GpuStrategy` places pods that ask for GPUs."""
        ...
