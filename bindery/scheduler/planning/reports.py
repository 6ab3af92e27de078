"""The results of a cycle, job by job: the source of conditions, `explain` and scenarios."""

from dataclasses import dataclass, field

import numpy as np

from bindery.scheduler.fairness.division import Amounts
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, Uid
from bindery.scheduler.plugins.findings import NodeAnswer


@dataclass(frozen=True, slots=True)
class PodReport:
    """The state of one pod after the cycle."""

    name: str
    state: str
    """Pending, Gated, Pipelined or Binding."""
    node: str
    message: str
    """Why it waits; empty if it does not."""
    devices: tuple[int, ...] = ()
    """The GPUs of the node that are promised to it."""


@dataclass(frozen=True, slots=True)
class ReservationReport:
    """The room that is reserved for a gang until it fits."""

    nodes: tuple[str, ...]
    """Sorted by name."""
    start: float | None
    """Expected start of the gang, seconds since the epoch; None if unknown."""


@dataclass(frozen=True, slots=True)
class StageReport:
    """The room of a later stage of a gang, whose pods do not run yet."""

    stage: str
    """The name of the sub-group."""
    pods: int
    """How many pods it lacks."""
    nodes: tuple[str, ...]
    """Where room is kept, sorted by name; none if no room is kept."""
    until: float | None
    """When the room is let go, or was: seconds since the epoch. None: the time has not begun."""
    problem: str = ""
    """Why no room is kept."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """The state of one job after the cycle."""

    key: JobKey
    uid: Uid
    satisfied: bool
    """Whether its gang has its minimum; extra pods may still wait."""
    reason: str
    """One CamelCase word: Scheduled, NotEnoughPods, Unschedulable, OverLimit, …"""
    message: str
    pods: dict[Uid, PodReport]
    reservation: ReservationReport | None = None
    waits_for: str = ""
    """Why its pods wait that have no place, extra pods too: the reason of the refusal; "" if none
    was refused."""
    can_run: bool = True
    """Whether it would fit if nothing else ran; if not, it has no turn."""
    is_known: bool = True
    """Whether a cycle has found out why it waits; if not, nothing is reported yet."""


@dataclass(frozen=True, slots=True)
class RefusedPlan:
    """A plan with a refused eviction; the rest of the plan is dropped."""

    refused: Eviction
    left: tuple[Eviction, ...]
    """The evictions that were not carried out, including the refused one."""
    problem: str
    is_begun: bool
    """Whether other evictions of it were carried out before."""
    retry_after_s: float | None = None
    """The time after which the API server may allow it, if the server gave one."""
    budget_easings: int | None = None
    """The cluster's count when the eviction was requested; None: it was not requested."""


@dataclass(slots=True)
class CycleReport:
    """The results of a whole cycle."""

    jobs: dict[JobKey, JobReport] = field(default_factory=dict)
    """The jobs that waited at the start of the cycle, and stale gangs."""
    order: tuple[JobKey, ...] = ()
    """Those of them that were tried for free room, in this or an earlier cycle, in that order."""
    evictions: list[Eviction] = field(default_factory=list)
    """In the order in which they must be requested."""
    stages: dict[JobKey, tuple[StageReport, ...]] = field(default_factory=dict)
    """Job -> the later stages that it awaits."""
    answers: list[NodeAnswer] = field(default_factory=list)
    """What nodes decided about pods with predicted zones, since the last cycle."""
    fair_shares: dict[str, dict[str, float]] = field(default_factory=dict)
    """Queue -> resource -> fair share, in devices, cores or bytes."""
    fair: Amounts = field(default_factory=lambda: np.zeros((0, 0)))
    """The same as columns: [resource, queue], in ledger units."""
    kept: IntColumns = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    """What is kept for later stages, in exclusive domains and for reservations, of each queue and
    all below it: [resource, queue], in ledger units."""
    took_too_long: list[JobKey] = field(default_factory=list)
    """The jobs that were set aside in this cycle."""
    is_cut: bool = False
    """Whether it ran out of time; the next cycle continues it."""
    committed_pods: int = 0
    committed_statements: int = 0
    seconds_by_action: dict[str, float] = field(default_factory=dict)
    seconds_by_plugin: dict[str, float] = field(default_factory=dict)
