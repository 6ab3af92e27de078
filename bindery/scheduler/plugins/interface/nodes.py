"""Extension points that decide about nodes and their devices: which fit, and which are better.

Placement consults them. An answer covers all nodes, or all given rows, at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.constraints import Constraint
from bindery.scheduler.model.domains import AskedDomain, Domain, DomainAsk, Freeable
from bindery.scheduler.model.jobs import Job, JobKey, Task, Uid
from bindery.scheduler.model.row_rules import RowRules
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import NodeFailure, Refusal, Rows
from bindery.scheduler.plugins.interface.base import Plugin
from bindery.scheduler.plugins.view import PackingStrategies, SessionView

# ---- filters ----


@runtime_checkable
class NodeFilter(Protocol):
    """Filters nodes for all pods of a shape, independent of free room.

    The answer is cached until a node's labels, taints, allocatable or readiness change.
    """

    def node_failures(self, session: SessionView, shape: Shape) -> Iterable[NodeFailure]:
        """Yield the reasons against nodes; a node without a reason passes."""


@runtime_checkable
class JobNodeFilter(Protocol):
    """Filters nodes for one job, at this moment."""

    def job_node_failures(self, session: SessionView, job: Job) -> Iterable[NodeFailure]:
        """Return the reasons against nodes for `job`; usually none."""


@runtime_checkable
class TaskNodeFilter(Protocol):
    """Filters nodes for one pod, by more than its shape."""

    def filters_tasks_of(self, shape: Shape) -> bool:
        """Return whether `task_node_failures` must be called for each pod of `shape`.

        If so, no vectors are shared between these pods, and each pod costs O(nodes). The answer
        must depend on `shape` alone.
        """

    def task_node_failures(self, session: SessionView, task: Task) -> Iterable[NodeFailure]:
        """Yield the reasons against nodes for `task`, at this point of the plan."""


@runtime_checkable
class NodeRoom(Protocol):
    """Reports the free room of nodes in the plugin's own ledger, for example devices."""

    def keeps_room_for(self, shape: Shape) -> bool:
        """Return whether pods of `shape` need this room. Must not change during a session."""

    def has_room(self, session: SessionView, shape: Shape, rows: Rows, later: bool) -> BoolColumn:
        """Return for each of `rows` whether one more pod of `shape` fits.

        `later`: whether it fits after all releasing pods have gone; not asked if there are none.
        The answer for a row may depend on this row only; it is computed again after each operation
        on the row.
        """

    def no_room_text(self, shape: Shape) -> str:
        """Return the text for the nodes without room, after their count: `insufficient …`."""


@runtime_checkable
class RoomBySums(Protocol):
    """Reports, beside `NodeRoom`, the shapes whose room depends only on the sums of resources."""

    def is_by_sums(self, session: SessionView, shape: Shape) -> bool:
        """Return whether pods of `shape` fit wherever nodes have enough resources.

        Reservations for such pods compare sums, which is faster.
        """


# ---- scores ----


@runtime_checkable
class NodeScore(Plugin, Protocol):
    """Scores nodes. The scores of all plugins are added; each has its own range of values.

    The configuration may give the plugin a weight, a factor of its scores.
    """

    def node_scores(
        self, session: SessionView, shape: Shape, rows: Rows
    ) -> NDArray[np.float64] | None:
        """Return one score for each of `rows`; higher is better. None: 0 for every node.

        A score may depend on its own row only: after a placement, the engine asks for the score of
        that one node again.
        """


# ---- rules in which one placement changes many nodes ----


@runtime_checkable
class PlacementRules(Plugin, Protocol):
    """Opens, closes and scores nodes for pods of a shape by the pods on other nodes.

    For rules by which a placement changes many nodes, such as all nodes of a domain.
    """

    def placement_rules(self, session: SessionView, shape: Shape) -> RowRules | None:
        """Return the rules for pods of `shape`, or None if there are none.

        Called once in a session for each shape with own rules, and for each shape with labels that
        rules of other pods refer to. The plugin's ledger keeps the returned object up to date.
        """


@runtime_checkable
class NominatedRules(Protocol):
    """Closes nodes by the pods of other schedulers that are nominated for them."""

    def nominated_rules(
        self, session: SessionView, shape: Shape, nominated: Mapping[int, Sequence[Uid]]
    ) -> RowRules | None:
        """Return rules by `nominated` (node row -> pods), each node with its own; None for none."""


# ---- domains ----


NextPods = Callable[[], Sequence[Task]]
"""Returns the pods of a job that are placed together next."""


@runtime_checkable
class GangDomains(Protocol):
    """Offers domains for pods of a gang that must be together, for a reason other than topology."""

    def gang_domains(
        self, session: SessionView, job: Job, pods: NextPods, freeable: Freeable | None
    ) -> Iterable[Domain] | None:
        """Return the domains to try for the next pods of `job`, best first; None if it needs none.

        `pods`: returns the pods that are placed together, future pods of later stages included;
        called only if a rule needs it, as it takes time. `freeable`: see `DomainAsk`.
        """


@runtime_checkable
class HoldsDomains(Protocol):
    """Keeps sets of nodes for jobs that other jobs cannot use, whatever room they have."""

    def held_domains(self, session: SessionView) -> Mapping[JobKey, BoolColumn]:
        """Return job -> the node rows that it keeps for itself, as a mask."""
        ...

    def has_held_domain(self, session: SessionView, task: Task) -> bool:
        """Return whether `task`, if it is placed, goes into nodes that its job keeps already."""
        ...

    def asked_domains(self, session: SessionView, job: Job) -> Sequence[AskedDomain]:
        """Return the smallest sets of nodes that `job` would keep once its waiting pods are placed.

        Only asked about jobs with exclusive constraints.
        """
        ...


@runtime_checkable
class GroupDomains(Protocol):
    """Offers sets of nodes for pods with a topology constraint.

    Called for a whole gang, for each of its sub-groups inside the domain of the group above, for
    pods that join a running gang, and when room is made for them.
    """

    def group_domains(self, session: SessionView, ask: DomainAsk) -> Iterable[Domain]:
        """Return the candidates, best first; read lazily, so a generator does no needless work.

        Candidates of the first rank with a plan are compared; those of higher ranks are not tried.
        """

    def no_domain(self, session: SessionView, ask: DomainAsk) -> Refusal:
        """Return why there is no candidate for `ask`."""

    def tree_positions(self, session: SessionView, constraint: Constraint) -> NDArray[np.intp]:
        """Return node row -> position; the rows of each domain are adjacent, at every level."""


# ---- packing ----


@runtime_checkable
class PackingPolicy(Plugin, Protocol):
    """Decides how pods are packed: on nodes, on the devices of a node, and now or later."""

    def packing_strategies(self) -> PackingStrategies | None:
        """Return the configured strategies, for all plugins; None to leave them to the next one.

        They must not change.
        """

    def packs(self, session: SessionView, shape: Shape) -> bool:
        """Return whether this plugin's scores alone pack pods of `shape`. Must be fast.

        Other plugins then have no score for packing. Not called if the plugin has the weight 0.
        """

    def worth_waiting(
        self, session: SessionView, shape: Shape, row: int, rows: Rows
    ) -> BoolColumn | None:
        """Return a mask of `rows`: those better than the node at `row`; None if there are none.

        Pods of `shape` fit at `row` now, and at `rows` after all releasing pods have gone. Called
        for each pod while there are releasing pods.
        """

    def choose_devices(self, session: SessionView, task: Task, row: int) -> Sequence[str] | None:
        """Return the devices of the node for a GPU share, best first; the ledger takes the first.

        The id of a GPU is its index on the node, from 0. None leaves the choice to the next plugin.
        Not called for pods that request whole devices.
        """
