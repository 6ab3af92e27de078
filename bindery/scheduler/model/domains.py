"""Domains: the sets of nodes among which pods that belong together are placed.

Planning asks for candidates with a `DomainAsk`; plugins answer with `Domain`s, best first.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.constraints import Constraint
from bindery.scheduler.model.jobs import NO_ROW, Job, Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Freeable:
    """Room that evictions, or time, could free."""

    room: IntColumns
    """Amounts: [resource, node]."""
    first_victim: NDArray[np.intp] | None = None
    """Node row -> place of its first pod that may go, in the order of eviction; None if unknown."""
    pods: Collection[Uid] = frozenset()
    """The pods that may leave an exclusive domain."""


@dataclass(frozen=True, slots=True, eq=False)
class DomainAsk:
    """Pods of one job that need a domain."""

    job: Job
    constraint: Constraint
    tasks: Sequence[Task]
    """The pods that are placed together next."""
    beside: Rows
    """The node rows of the other pods of their group, which keep them to their domain."""
    is_member: Callable[[Task], bool]
    """Whether a pod, of any job, belongs to the group: for an exclusive domain."""
    within: BoolColumn | None = None
    """The domain of the group above (mask over node rows); None for all nodes."""
    freeable: Freeable | None = None
    """The room beside idle and released room; None for none."""
    taken: IntColumns | None = None
    """The requests of other pods of the plan that are not placed yet [resource, node]."""
    is_widest_only: bool = False
    """Whether only the widest domains matter, which contain all others."""


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """One candidate."""

    nodes: BoolColumn | None
    """Mask over node rows; None for all nodes."""
    rank: int = 0
    """0 for the best level. A candidate is better than all candidates of a higher rank."""
    name: str = ""
    """For messages: the level and the domain."""
    bonus: NDArray[np.float64] | None = None
    """Node row -> what is added to its score, so that pods fill one part of it after the other."""
    of_shapes: Mapping[Shape, BoolColumn] = field(default_factory=dict)
    """Narrower masks for pods of some shapes."""
    closes: BoolColumn | None = None
    """The exclusive domain that contains it: the node rows that others must stay out of, as a mask;
    None for none."""
    going: frozenset[Uid] = frozenset()
    """Pods of others that must go before it can be used, as it is exclusive."""


AskedDomain = tuple[BoolColumn, Sequence[Task]]
"""An exclusive domain that waiting pods want: its node rows, as a mask, and the pods."""
EVERYWHERE = Domain(None)
"""The domain of pods without a constraint."""


def rows_beside(job: Job, tasks: Iterable[Task], is_member: Callable[[Task], bool]) -> Rows:
    """Return the rows of the pods of `job` that are members, have a place and are not `tasks`."""
    coming = {task.uid for task in tasks}
    rows = [
        task.row
        for task in job.tasks.values()
        if (task.status.is_active or task.status is TaskStatus.PIPELINED)
        and task.row != NO_ROW
        and task.uid not in coming
        and is_member(task)
    ]
    return np.array(rows, dtype=np.intp)
