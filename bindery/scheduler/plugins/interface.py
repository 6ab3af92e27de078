"""The extension points of the scheduler, each a Protocol. A plugin implements those it needs.

Plugins return facts and wishes; the engine checks and applies them. They must be pure: the same
session gives the same answer. Sort keys of several plugins are compared in the configured order,
first difference wins. A plugin is made by the callable that its entry point (group
`bindery.scheduler_plugins`) names, which takes the plugin's arguments from the configuration.
Objects are observed between cycles only, so that a plan is made from one state of the cluster.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bindery.kube.objects import KubeObject, Pod
from bindery.kube.resources import Resource
from bindery.kube.store import Change
from bindery.scheduler.ledgers.base import Ledger, Operation
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import NodeFailure, Refusal, Rows, SortKey
from bindery.scheduler.plugins.view import SessionView


class Plugin(Protocol):
    """What every plugin has."""

    @property
    def name(self) -> str:
        """The name by which the configuration calls it."""
        ...


# ---- order ----


@runtime_checkable
class QueueOrder(Protocol):
    """Which queue is served next. Asked again after each job of the queue."""

    def queue_key(self, session: SessionView, queue_row: int, job: Job) -> SortKey:
        """Return the sort key of the queue at `queue_row`; `job` is the next that it would serve.

        Asked of every level of the tree; it may depend on what the queue holds, not on others'.
        """
        ...


@runtime_checkable
class VictimOrder(Protocol):
    """The order of queues when victims are chosen, for a `QueueOrder` that counts requests.

    The solver takes the next victim from the queue with the largest key. A `QueueOrder` without
    this method is asked for its `queue_key`, with the job of the next victim.
    """

    def victim_key(
        self, session: SessionView, queue_row: int, job: Job, released: Mapping[int, int]
    ) -> SortKey:
        """Return the sort key of the queue at `queue_row`; its next victim is a pod of `job`.

        `released`: what `job` would release (position on the resource axis -> units). The plan's
        evictions so far are no longer counted in what the queue holds.
        """
        ...


@runtime_checkable
class JobOrder(Protocol):
    """Which job of a queue is served next. Asked again after each placement of the job."""

    def job_key(self, session: SessionView, job: Job) -> SortKey:
        """Return the sort key of `job`."""
        ...


@runtime_checkable
class PodOrder(Protocol):
    """Which pods of a job are placed first."""

    def pod_key(self, session: SessionView, task: Task) -> SortKey:
        """Return the sort key of `task`."""
        ...


# ---- nodes ----


@runtime_checkable
class NodeFilter(Protocol):
    """Which nodes can never take a pod of a shape, whatever is free on them.

    The answer is cached until a node's labels, taints, allocatable or readiness change.
    """

    def node_failures(self, session: SessionView, shape: Shape) -> Iterable[NodeFailure]:
        """Yield the reasons against nodes; a node that is in none passes."""
        ...


@runtime_checkable
class JobNodeFilter(Protocol):
    """Which nodes one job cannot use at this moment."""

    def job_node_failures(self, session: SessionView, job: Job) -> Iterable[NodeFailure]:
        """Yield the reasons against nodes for `job`; usually none."""
        ...


@runtime_checkable
class NodeScore(Protocol):
    """How much a node is wanted. Scores of all plugins are added; each keeps to its decade."""

    def node_scores(self, session: SessionView, shape: Shape, rows: Rows) -> NDArray[np.float64]:
        """Return one score for each of `rows`. It may depend on these rows alone, so that placing a
        pod makes only its own node's score stale.
        """
        ...


@runtime_checkable
class CandidateDomains(Protocol):
    """Into which sets of nodes a job may be placed as a whole; the first that fits wins."""

    def domains(self, session: SessionView, job: Job) -> Iterable[BoolColumn] | None:
        """Return masks over node rows, best first; None: the job asks for no domain."""
        ...


@runtime_checkable
class DeviceChoice(Protocol):
    """Which devices of its node a pod with shares gets: the ledger takes of them what has room.

    Whole devices are all alike to it.
    """

    def choose_devices(self, session: SessionView, task: Task, row: int) -> Sequence[str] | None:
        """Return device ids, the most wanted first, or None to leave it to the next plugin.

        The id of a GPU is its index on the node, from 0.
        """
        ...


# ---- gates ----


@runtime_checkable
class JobValid(Protocol):
    """Whether a job can be looked at at all."""

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Return why `job` cannot be planned whatever is free; None when it can."""
        ...


@runtime_checkable
class CapacityGate(Protocol):
    """Whether a job may get more now."""

    def over_capacity(
        self, session: SessionView, job: Job, tasks: Sequence[Task]
    ) -> Refusal | None:
        """Return why `tasks` of `job` may not be placed now; None when they may."""
        ...


@runtime_checkable
class JobReady(Protocol):
    """Whether enough of a job is placed for it to be committed. All plugins must agree."""

    def is_ready(self, session: SessionView, job: Job) -> bool:
        """Return whether what is active of `job`, planned pods included, may be bound."""
        ...


@runtime_checkable
class JobPipelined(Protocol):
    """Whether enough of a job is placed or promised for its promises to be kept this session."""

    def is_pipelined(self, session: SessionView, job: Job) -> bool:
        """Return whether the promises of `job` are worth holding. All plugins must agree."""
        ...


@runtime_checkable
class JobStarving(Protocol):
    """Whether others may be evicted, or moved, for a job. All plugins must agree."""

    def is_starving(self, session: SessionView, job: Job) -> bool:
        """Return whether `job` lacks so much that room may be made for it."""
        ...


# ---- making room: consulted by reclaim, preempt and consolidation ----


@runtime_checkable
class VictimFilter(Protocol):
    """Who may be a victim, and of whom. A veto is final: no other plugin can undo it.

    Asked of every pod that could go, for every job for which room is to be made: be quick.
    """

    def may_evict(self, session: SessionView, victim: Task, preemptor: Job, action: str) -> bool:
        """Return whether `action` may evict `victim`, or move it, for `preemptor`."""
        ...


# ---- the transaction ----


@runtime_checkable
class LedgerProvider(Protocol):
    """A ledger of the plugin's own, told of every operation and of its undoing."""

    def ledger(self, session: SessionView, state: PlanState) -> Ledger:
        """Return the ledger for this session, which may write the columns of `state`."""
        ...


@runtime_checkable
class BindRequestMutation(Protocol):
    """What a plugin adds to a BindRequest when a Statement is committed."""

    def annotations(
        self, session: SessionView, operations: Sequence[Operation]
    ) -> Mapping[str, str]:
        """Return annotations for the BindRequest."""
        ...


@runtime_checkable
class BindData(Protocol):
    """What a plugin hands to the binder plugin of the same name, pod by pod."""

    def bind_data(self, session: SessionView, task: Task, row: int) -> Mapping[str, Any] | None:
        """Return JSON data for `task`, to stand in `pluginData` under the plugin's name."""
        ...


@runtime_checkable
class WaitExplanation(Protocol):
    """What to say about a pod that waits, beside the engine's own words."""

    def explain_wait(self, session: SessionView, job: Job, task: Task, message: str) -> str | None:
        """Return a sentence to add to `message`, the outcome of the last transaction."""
        ...


# ---- kinds of objects and needs of pods that the scheduler does not know itself ----


@runtime_checkable
class Watches(Protocol):
    """Keeps in step with objects of the cluster."""

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return the kinds that `observe` wants: further ones, and of the scheduler's own.

        Kinds that the API server does not serve are left out without a word.
        """
        ...

    def observe(self, change: Change[KubeObject]) -> bool:
        """Take in a change of one of these kinds; called between cycles only.

        A new plugin gets every existing object as ADDED. Returns whether earlier answers of its
        `node_failures` may be wrong now.
        """
        ...


@runtime_checkable
class Supports(Protocol):
    """Cares for what pods ask for that nobody else does: without it they wait."""

    def supported_needs(self) -> Collection[Need]:
        """Return the needs that this plugin meets, always the same."""
        ...


@runtime_checkable
class TaskValid(Protocol):
    """Whether one pod can be planned at all."""

    def invalid_task(self, session: SessionView, task: Task) -> Refusal | None:
        """Return why `task` cannot be planned whatever is free; None when it can. Be quick.

        Running pods are asked about too, before they are moved; `session.pod` does not have them.
        """
        ...


@runtime_checkable
class TaskNodeFilter(Protocol):
    """Which nodes one pod cannot use, beyond what its shape says."""

    def filters_tasks_of(self, shape: Shape) -> bool:
        """Return whether pods of `shape` may have wishes of their own: then each is placed by
        vectors of its own, so that a pod costs O(nodes). Must depend on `shape` alone.
        """
        ...

    def task_node_failures(self, session: SessionView, task: Task) -> Iterable[NodeFailure]:
        """Yield the reasons against nodes for `task`, as the plan stands at this moment."""
        ...


@runtime_checkable
class NodeRoom(Protocol):
    """Whether nodes have room of a kind that the plugin's own ledger keeps (devices, say)."""

    def keeps_room_for(self, shape: Shape) -> bool:
        """Return whether pods of `shape` take any of this room. Must depend on `shape` alone."""
        ...

    def has_room(self, session: SessionView, shape: Shape, rows: Rows, later: bool) -> BoolColumn:
        """Return for each of `rows` whether one more pod of `shape` fits.

        `later`: once all that is being released has gone. It may depend on these rows alone; it is
        called again for a row after each operation on it.
        """
        ...

    def no_room_text(self, shape: Shape) -> str:
        """Return what people read behind the count of nodes without: `insufficient …`."""
        ...


@runtime_checkable
class WorthWaiting(Protocol):
    """Prefers room that is being released on some nodes to idle room on others."""

    def worth_waiting(
        self, session: SessionView, shape: Shape, row: int, rows: Rows
    ) -> BoolColumn | None:
        """Return which of `rows` pods of `shape` wait for rather than take the node at `row`.

        They fit at `row` now, and at `rows` once all that is being released has gone. None: they do
        not wait. Asked for each pod while anything is being released.
        """
        ...


@runtime_checkable
class WaitsForRelease(Protocol):
    """Holds a gang back that fits on its nodes until something else has been released."""

    def waits_for_release(self, session: SessionView, job: Job, tasks: Sequence[Task]) -> bool:
        """Return whether `tasks` of `job`, which were just placed, wait for pods that are going.

        They are promised their nodes then. Asked for each gang once all of it has a place.
        """
        ...


@runtime_checkable
class GpuStrategy(Protocol):
    """How pods that ask for GPUs are placed, for plugins that score nodes by what they know of
    devices.
    """

    def gpu_strategy(self) -> Literal["binpack", "spread"]:
        """Return whether the fullest node goes first or the emptiest."""
        ...


@runtime_checkable
class BindEffects(Protocol):
    """What the binder plugin of the same name would do, for rehearsals and scenarios alone."""

    def bind_effects(
        self, pod: Pod, node_name: str, data: Mapping[str, Any]
    ) -> Iterable[KubeObject]:
        """Return the objects as they are once the binder has bound `pod` to the node.

        `data`: what `bind_data` has handed over. It may contain the pod itself, changed; it is
        called before the pod shows its node.
        """
        ...
