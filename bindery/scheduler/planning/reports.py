"""What a cycle found out, job by job: the source of conditions, `explain` and scenarios."""

from dataclasses import dataclass, field

import numpy as np

from bindery.scheduler.fairness.division import Amounts
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, Uid


@dataclass(frozen=True, slots=True)
class PodReport:
    """Where one pod stands after the cycle."""

    name: str
    state: str
    """Pending, Gated, Pipelined or Binding."""
    node: str
    message: str
    """Why it waits; empty for one that does not."""
    devices: tuple[int, ...] = ()
    """The GPUs of the node that it is promised."""
    given_up_node: str = ""
    """Where it had a place in this cycle, before its gang was given up for lack of others."""


@dataclass(frozen=True, slots=True)
class ReservationReport:
    """Room that is kept for a gang until it fits."""

    nodes: tuple[str, ...]
    """In the order of their names."""
    start: float | None
    """When the gang is expected to start, seconds since the epoch; None: nothing says."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """Where one job stands after the cycle."""

    key: JobKey
    uid: Uid
    satisfied: bool
    """Whether its gang has its minimum; extra pods may still wait."""
    reason: str
    """One CamelCase word: Scheduled, NotEnoughPods, Unschedulable, OverLimit, …"""
    message: str
    pods: dict[Uid, PodReport]
    reservation: ReservationReport | None = None
    is_known: bool = True
    """Whether a cycle has found out why it waits; else nothing is said about it yet."""


@dataclass(frozen=True, slots=True)
class RefusedPlan:
    """A plan of which an eviction was refused, so that the rest of it is dropped."""

    refused: Eviction
    left: tuple[Eviction, ...]
    """All that stays, the one that was refused among them."""
    problem: str
    is_begun: bool
    """Whether other evictions of it had been carried out before."""
    retry_after_s: float | None = None
    """After how long the API server may answer otherwise, if it says so."""
    budget_easings: int | None = None
    """The cluster's when the refused eviction was asked for; None: it was not asked for."""


@dataclass(slots=True)
class CycleReport:
    """What a whole cycle found out."""

    jobs: dict[JobKey, JobReport] = field(default_factory=dict)
    """The jobs that waited at the beginning of the cycle."""
    evictions: list[Eviction] = field(default_factory=list)
    """In the order in which they are to be asked for."""
    fair_shares: dict[str, dict[str, float]] = field(default_factory=dict)
    """Queue -> resource -> what it deserves: devices, cores, bytes."""
    fair: Amounts = field(default_factory=lambda: np.zeros((0, 0)))
    """The same as columns: [resource, queue], in ledger units."""
    is_cut: bool = False
    """Whether it ran out of time: the next cycle continues it."""
    committed_pods: int = 0
    committed_statements: int = 0
    seconds_by_action: dict[str, float] = field(default_factory=dict)
    seconds_by_plugin: dict[str, float] = field(default_factory=dict)
