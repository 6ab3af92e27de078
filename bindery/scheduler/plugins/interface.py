"""The extension points of the scheduler, each a Protocol. A plugin implements those it needs.

Plugins return facts and wishes; the engine checks and applies them. They must be pure: the same
session gives the same answer. Sort keys of several plugins are compared in the configured order,
first difference wins. A plugin is made by the callable that its entry point (group
`bindery.scheduler_plugins`) names, which takes the plugin's arguments from the configuration.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.ledgers.base import Ledger, Operation
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.shapes import Shape

if TYPE_CHECKING:
    from bindery.scheduler.session import Session

SortKey = tuple[Any, ...]
"""Compared element by element; smaller goes first."""

Rows = NDArray[np.intp]
"""Node rows, in any order."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job may not be planned now."""

    reason: str
    """One CamelCase word for the condition: OverLimit, QueueClosed, …"""
    message: str
    is_lasting: bool = False
    """Whether evicting others could not change it."""


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A reason why some nodes cannot take a pod."""

    reason: str
    """What people read behind a count: `had untolerated taint {a: b}`."""
    nodes: BoolColumn
    """bool over node rows: the nodes that fail for this reason."""
    is_lasting: bool = True
    """Whether evicting others could not change it."""


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

    def queue_key(self, session: "Session", queue_row: int, job: Job) -> SortKey:
        """Return the sort key of the queue at `queue_row`; `job` is the next that it would serve.

        Asked of every level of the tree; it may depend on what the queue holds, not on others'.
        """
        ...


@runtime_checkable
class JobOrder(Protocol):
    """Which job of a queue is served next. Asked again after each placement of the job."""

    def job_key(self, session: "Session", job: Job) -> SortKey:
        """Return the sort key of `job`."""
        ...


@runtime_checkable
class PodOrder(Protocol):
    """Which pods of a job are placed first."""

    def pod_key(self, session: "Session", task: Task) -> SortKey:
        """Return the sort key of `task`."""
        ...


# ---- nodes ----


@runtime_checkable
class NodeFilter(Protocol):
    """Which nodes can never take a pod of a shape, whatever is free on them.

    The answer is cached until a node's labels, taints, allocatable or readiness change.
    """

    def node_failures(self, session: "Session", shape: Shape) -> Iterable[NodeFailure]:
        """Yield the reasons against nodes; a node that is in none passes."""
        ...


@runtime_checkable
class JobNodeFilter(Protocol):
    """Which nodes one job cannot use at this moment."""

    def job_node_failures(self, session: "Session", job: Job) -> Iterable[NodeFailure]:
        """Yield the reasons against nodes for `job`; usually none."""
        ...


@runtime_checkable
class NodeScore(Protocol):
    """How much a node is wanted. Scores of all plugins are added; each keeps to its decade."""

    def node_scores(self, session: "Session", shape: Shape, rows: Rows) -> NDArray[np.float64]:
        """Return one score for each of `rows`. It may depend on these rows alone, so that placing a
        pod makes only its own node's score stale.
        """
        ...


@runtime_checkable
class CandidateDomains(Protocol):
    """Into which sets of nodes a job may be placed as a whole; the first that fits wins."""

    def domains(self, session: "Session", job: Job) -> Iterable[BoolColumn] | None:
        """Return masks over node rows, best first; None: the job asks for no domain."""
        ...


@runtime_checkable
class DeviceChoice(Protocol):
    """Which devices of its node a pod with shares gets: the ledger takes of them what has room.

    Whole devices are all alike to it.
    """

    def choose_devices(self, session: "Session", task: Task, row: int) -> Sequence[str] | None:
        """Return device ids, the most wanted first, or None to leave it to the next plugin.

        The id of a GPU is its index on the node, from 0.
        """
        ...


# ---- gates ----


@runtime_checkable
class JobValid(Protocol):
    """Whether a job can be looked at at all."""

    def invalid(self, session: "Session", job: Job) -> Refusal | None:
        """Return why `job` cannot be planned whatever is free; None when it can."""
        ...


@runtime_checkable
class CapacityGate(Protocol):
    """Whether a job may get more now."""

    def over_capacity(self, session: "Session", job: Job, tasks: Sequence[Task]) -> Refusal | None:
        """Return why `tasks` of `job` may not be placed now; None when they may."""
        ...


@runtime_checkable
class JobReady(Protocol):
    """Whether enough of a job is placed for it to be committed. All plugins must agree."""

    def is_ready(self, session: "Session", job: Job) -> bool:
        """Return whether what is active of `job`, planned pods included, may be bound."""
        ...


@runtime_checkable
class JobPipelined(Protocol):
    """Whether enough of a job is placed or promised for its promises to be kept this session."""

    def is_pipelined(self, session: "Session", job: Job) -> bool:
        """Return whether the promises of `job` are worth holding. All plugins must agree."""
        ...


@runtime_checkable
class JobStarving(Protocol):
    """Whether others may be evicted, or moved, for a job. All plugins must agree."""

    def is_starving(self, session: "Session", job: Job) -> bool:
        """Return whether `job` lacks so much that room may be made for it."""
        ...


# ---- making room: consulted by reclaim, preempt and consolidation ----


@runtime_checkable
class VictimFilter(Protocol):
    """Who may be a victim, and of whom. A veto is final: no other plugin can undo it.

    Asked of every pod that could go, for every job for which room is to be made: be quick.
    """

    def may_evict(self, session: "Session", victim: Task, preemptor: Job, action: str) -> bool:
        """Return whether `action` may evict `victim`, or move it, for `preemptor`."""
        ...


# ---- the transaction ----


@runtime_checkable
class LedgerProvider(Protocol):
    """A ledger of the plugin's own, told of every operation and of its undoing."""

    def ledger(self, session: "Session") -> Ledger:
        """Return the ledger for this session."""
        ...


@runtime_checkable
class BindRequestMutation(Protocol):
    """What a plugin adds to a BindRequest when a Statement is committed."""

    def annotations(self, session: "Session", operations: Sequence[Operation]) -> Mapping[str, str]:
        """Return annotations for the BindRequest."""
        ...


@runtime_checkable
class BindData(Protocol):
    """What a plugin hands to the binder plugin of the same name, pod by pod."""

    def bind_data(self, session: "Session", task: Task, row: int) -> Mapping[str, Any] | None:
        """Return JSON data for `task`, to stand in `pluginData` under the plugin's name."""
        ...


@runtime_checkable
class WaitExplanation(Protocol):
    """What to say about a pod that waits, beside the engine's own words."""

    def explain_wait(self, session: "Session", job: Job, task: Task, message: str) -> str | None:
        """Return a sentence to add to `message`, the outcome of the last transaction."""
        ...
