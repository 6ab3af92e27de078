"""The extension points of the scheduler, each a Protocol. A plugin implements those it needs.

Plugins return facts and wishes; the engine checks and applies them. A plugin must be pure: the same
session gives the same answer. Sort keys of several plugins are compared in the configured order;
the first difference decides. An entry point of the group `bindery.scheduler_plugins` names the
plugin; `bindery.api.plugins` describes how it is built and gets its arguments. Objects are observed
between cycles only, so that one plan uses one state of the cluster.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bindery.kube.objects import KubeObject, Pod
from bindery.kube.resources import Resource
from bindery.kube.store import Change
from bindery.scheduler.ledgers.base import Ledger, Operation
from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.constraints import Constraint
from bindery.scheduler.model.domains import Domain, DomainAsk
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.row_rules import RowRules
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import NodeFailure, Refusal, RoomNote, Rows, SortKey
from bindery.scheduler.model.views import StateView
from bindery.scheduler.plugins.view import PackingStrategies, SessionView


class Plugin(Protocol):
    """The members of every plugin."""

    @property
    def name(self) -> str:
        """The plugin's name in the configuration, and its key in `pluginData`."""
        ...


# ---- order ----


@runtime_checkable
class QueueOrder(Protocol):
    """Orders queues. Called again after each job of a queue."""

    def queue_key(self, session: SessionView, queue_row: int, job: Job) -> SortKey:
        """Return the sort key of the queue at `queue_row`; `job` is the next job of the queue.

        Called at every level of the tree. The key may depend on the amounts of this queue, but not
        on those of other queues.
        """
        ...


@runtime_checkable
class VictimOrder(Protocol):
    """Orders queues for the choice of victims, for a `QueueOrder` that counts requests.

    The solver takes the next victim from the queue with the largest key. For a `QueueOrder` without
    this method, it uses `queue_key` with the job of the next victim.
    """

    def victim_key(
        self, session: SessionView, queue_row: int, job: Job, released: Mapping[int, int]
    ) -> SortKey:
        """Return the sort key of the queue at `queue_row`; its next victim is a pod of `job`.

        `released` has the amounts that `job` would release (position on the resource axis ->
        units). The queue's amounts no longer include the plan's evictions so far.
        """
        ...


@runtime_checkable
class JobOrder(Protocol):
    """Orders the jobs of a queue. Called again after each placement of a job."""

    def job_key(self, session: SessionView, job: Job) -> SortKey:
        """Return the sort key of `job`."""
        ...


@runtime_checkable
class PodOrder(Protocol):
    """Orders the pods of a job."""

    def pod_key(self, session: SessionView, task: Task) -> SortKey:
        """Return the sort key of `task`."""
        ...


# ---- nodes ----


@runtime_checkable
class NodeFilter(Protocol):
    """Filters nodes for all pods of a shape, independent of free room.

    The answer is cached until a node's labels, taints, allocatable or readiness change.
    """

    def node_failures(self, session: SessionView, shape: Shape) -> Iterable[NodeFailure]:
        """Yield the reasons against nodes; a node without a reason passes."""
        ...


@runtime_checkable
class JobNodeFilter(Protocol):
    """Filters nodes for one job, at this moment."""

    def job_node_failures(self, session: SessionView, job: Job) -> Iterable[NodeFailure]:
        """Yield the reasons against nodes for `job`; usually none."""
        ...


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
        ...


@runtime_checkable
class PlacementRules(Plugin, Protocol):
    """Opens, closes and scores nodes for pods of a shape by the pods on other nodes.

    For rules in which one placement changes many nodes, such as all nodes of a zone.
    """

    def placement_rules(self, session: SessionView, shape: Shape) -> RowRules | None:
        """Return the rules for pods of `shape`, or None if there are none.

        Called once in a session for each shape with own rules, and for each shape with labels that
        rules of other pods refer to. The plugin's ledger keeps the returned object up to date.
        """
        ...


@runtime_checkable
class NominatedRules(Protocol):
    """Closes nodes by the pods of other schedulers that are nominated for them."""

    def nominated_rules(
        self, session: SessionView, shape: Shape, nominated: Mapping[int, Sequence[Uid]]
    ) -> RowRules | None:
        """Return rules by `nominated` (node row -> pods), each node with its own; None for none."""
        ...


@runtime_checkable
class Packing(Protocol):
    """Decides alone how some pods are packed; other plugins then have no score for packing."""

    def packs(self, session: SessionView, shape: Shape) -> bool:
        """Return whether pods of `shape` are packed by this plugin's scores. Must be fast."""
        ...


@runtime_checkable
class HasStrategies(Protocol):
    """Has the configured strategies of packing, for plugins that score or choose devices."""

    def packing_strategies(self) -> PackingStrategies:
        """Return the strategies; they must not change."""
        ...


@runtime_checkable
class CandidateDomains(Protocol):
    """Offers sets of nodes for a whole job; the first set that fits is used."""

    def domains(self, session: SessionView, job: Job) -> Iterable[BoolColumn] | None:
        """Return masks over node rows, best first; None if the job needs no domain."""
        ...


@runtime_checkable
class GangDomains(Protocol):
    """Offers domains for pods of a gang that must be together, for a reason other than topology."""

    def gang_domains(
        self, session: SessionView, job: Job, freeable: IntColumns | None
    ) -> Iterable[Domain] | None:
        """Return the domains to try for the next pods of `job`, best first; None if it needs none.

        Not asked if `CandidateDomains` has domains for it. `freeable`: see `DomainAsk`.
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
        ...

    def no_domain_text(self, session: SessionView, ask: DomainAsk) -> str:
        """Return why there is no candidate for `ask`."""
        ...

    def tree_positions(self, session: SessionView, constraint: Constraint) -> NDArray[np.intp]:
        """Return node row -> position; the rows of each domain are adjacent, at every level."""
        ...


@runtime_checkable
class DeviceChoice(Protocol):
    """Orders the devices of a node for a pod with a GPU share; the ledger takes those with room.

    Not called for pods that request whole devices.
    """

    def choose_devices(self, session: SessionView, task: Task, row: int) -> Sequence[str] | None:
        """Return device ids, best first, or None to leave the choice to the next plugin.

        The id of a GPU is its index on the node, from 0.
        """
        ...


# ---- gates ----


@runtime_checkable
class JobValid(Protocol):
    """Refuses jobs before they are planned."""

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Return why `job` cannot be planned, whatever is free; None if it can."""
        ...


@runtime_checkable
class CapacityGate(Protocol):
    """Refuses more pods of a job, for example above a limit."""

    def over_capacity(
        self, session: SessionView, job: Job, tasks: Sequence[Task]
    ) -> Refusal | None:
        """Return why `tasks` of `job` may not be placed now; None if they may."""
        ...


@runtime_checkable
class JobReady(Protocol):
    """Decides whether a job has enough placed pods for a commit. All plugins must agree."""

    def is_ready(self, session: SessionView, job: Job) -> bool:
        """Return whether the active pods of `job`, planned ones included, may be bound."""
        ...


@runtime_checkable
class JobPipelined(Protocol):
    """Decides whether promises to a job are kept in this session. All plugins must agree."""

    def is_pipelined(self, session: SessionView, job: Job) -> bool:
        """Return whether `job` has enough placed and promised pods to keep its promises."""
        ...


@runtime_checkable
class JobStarving(Protocol):
    """Decides whether other pods may be evicted or moved for a job. All plugins must agree."""

    def is_starving(self, session: SessionView, job: Job) -> bool:
        """Return whether room may be made for `job`."""
        ...


@runtime_checkable
class RoomExplanation(Protocol):
    """Adds to the reason of a job for which there is no room, usually with `JobStarving`."""

    def explain_room(self, session: SessionView, job: Job) -> RoomNote | None:
        """Return a note about room that is made or expected for `job`, or None."""
        ...


# ---- making room: consulted by reclaim, preempt and consolidation ----


@runtime_checkable
class VictimFilter(Protocol):
    """Decides which pods may be victims. A veto is final: no other plugin can undo it.

    Called for every possible victim of every job that needs room: must be fast.
    """

    def may_evict(self, session: SessionView, victim: Task, preemptor: Job, action: str) -> bool:
        """Return whether `action` may evict or move `victim` for `preemptor`."""
        ...


# ---- the transaction ----


@runtime_checkable
class LedgerProvider(Protocol):
    """Has a ledger of its own, called for every operation and for its undoing."""

    def ledger(self, session: SessionView, state: PlanState) -> Ledger:
        """Return the ledger for this session; it may write the columns of `state`."""
        ...


@runtime_checkable
class BindRequestMutation(Protocol):
    """Annotates BindRequests when a Statement is committed."""

    def annotations(
        self, session: SessionView, operations: Sequence[Operation]
    ) -> Mapping[str, str]:
        """Return annotations for the BindRequest."""
        ...


@runtime_checkable
class BindData(Protocol):
    """Hands data to the binder plugin of the same name, for each pod."""

    def bind_data(self, session: SessionView, task: Task, row: int) -> Mapping[str, Any] | None:
        """Return the JSON object for `task` in `pluginData`, or None for none."""
        ...


@runtime_checkable
class WaitExplanation(Protocol):
    """Adds to the message of a waiting pod."""

    def explain_wait(self, session: SessionView, job: Job, task: Task, message: str) -> str | None:
        """Return a sentence to append to `message`, the result of the last transaction, or None."""
        ...


# ---- further kinds of objects, and special needs of pods ----


@runtime_checkable
class Watches(Protocol):
    """Observes objects of the cluster."""

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return the kinds for `observe`; the scheduler's own kinds are allowed.

        Kinds that the API server does not serve are ignored.
        """
        ...

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change of one of these kinds; called between cycles only.

        A new plugin gets every existing object as ADDED. Returns whether cached results of its
        `node_failures` may be outdated.
        """
        ...


@runtime_checkable
class Supports(Protocol):
    """Supports special needs of pods; without such a plugin, pods with the need wait."""

    def supported_needs(self) -> Collection[Need]:
        """Return the supported needs; they must not change."""
        ...


@runtime_checkable
class TaskValid(Protocol):
    """Refuses single pods before they are planned."""

    def invalid_task(self, session: SessionView, task: Task) -> Refusal | None:
        """Return why `task` cannot be planned, whatever is free; None if it can. Must be fast.

        Also called for running pods before they are moved; `session.pod` is None for those.
        """
        ...


@runtime_checkable
class TaskNodeFilter(Protocol):
    """Filters nodes for one pod, by more than its shape."""

    def filters_tasks_of(self, shape: Shape) -> bool:
        """Return whether `task_node_failures` must be called for each pod of `shape`.

        If so, no vectors are shared between these pods, and each pod costs O(nodes). The answer
        must depend on `shape` alone.
        """
        ...

    def task_node_failures(self, session: SessionView, task: Task) -> Iterable[NodeFailure]:
        """Yield the reasons against nodes for `task`, at this point of the plan."""
        ...


@runtime_checkable
class NodeRoom(Protocol):
    """Reports the free room of nodes in the plugin's own ledger, for example devices."""

    def keeps_room_for(self, shape: Shape) -> bool:
        """Return whether pods of `shape` need this room. Must depend on `shape` alone."""
        ...

    def has_room(self, session: SessionView, shape: Shape, rows: Rows, later: bool) -> BoolColumn:
        """Return for each of `rows` whether one more pod of `shape` fits.

        `later`: whether it fits after all releasing pods have gone. The answer for a row may depend
        on this row only; it is computed again after each operation on the row.
        """
        ...

    def no_room_text(self, shape: Shape) -> str:
        """Return the text for the nodes without room, after their count: `insufficient …`."""
        ...


@runtime_checkable
class OffersGpus(Protocol):
    """Has GPUs that nodes do not have as resources, for the total that queues share."""

    def offered_gpus(self, state: StateView) -> Mapping[int, int]:
        """Return node row -> number of such GPUs; `NO_ROW` for GPUs that several nodes can use."""
        ...


@runtime_checkable
class WorthWaiting(Protocol):
    """Prefers nodes with releasing room to a node with idle room."""

    def worth_waiting(
        self, session: SessionView, shape: Shape, row: int, rows: Rows
    ) -> BoolColumn | None:
        """Return a mask of `rows`: those better than the node at `row`; None if there are none.

        Pods of `shape` fit at `row` now, and at `rows` after all releasing pods have gone. Called
        for each pod while there are releasing pods.
        """
        ...


@runtime_checkable
class WaitsForRelease(Protocol):
    """Delays a gang with room on its nodes until other pods have gone."""

    def waits_for_release(self, session: SessionView, job: Job, tasks: Sequence[Task]) -> bool:
        """Return whether `tasks` of `job`, just placed, must wait for releasing pods.

        If so, their nodes are promised to them. Called for each gang that has all its places.
        """
        ...


@runtime_checkable
class GpuStrategy(Protocol):
    """Has a strategy for pods with GPUs, for the scores of other plugins."""

    def gpu_strategy(self) -> Literal["binpack", "spread"]:
        """Return binpack to prefer the fullest node, spread to prefer the emptiest."""
        ...


@runtime_checkable
class BindEffects(Protocol):
    """Simulates the binder plugin of the same name, for rehearsals and scenarios only."""

    def bind_effects(
        self, pod: Pod, node_name: str, data: Mapping[str, Any]
    ) -> Iterable[KubeObject]:
        """Return the changed objects after the binder has bound `pod` to the node.

        `data` is the result of `bind_data`. The changed pod may be among the objects. Called before
        `pod` has its node name.
        """
        ...
