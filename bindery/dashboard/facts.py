"""The cluster as the pages read it: plain data of one moment, after one plan in memory.

Made by `planned`, reduced by `seen`. Everything that belongs to a namespace has its key, so that it
can be left out; None in place of a key is a gang or a pod that must not be named.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final, TypeVar

from bindery.answers.evictions import GangEviction
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Pod
from bindery.scheduler.insight.shares import QueueShare
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.planning.reports import StageReport

MadeT = TypeVar("MadeT")

BINDS: Final = "binds"
"""The kind of a step that binds pods; the other kinds are actions that evict."""


@dataclass(frozen=True, slots=True)
class GangFact:
    """A gang, or a single pod that waits."""

    key: JobKey
    queue: str
    state: str
    least: int
    """The minimum of pods that run together."""
    pods: tuple[Pod, ...]
    bound: int
    running: int
    created: str | None
    group: PodGroup | None
    """None for a single pod, and for a PodGroup that does not exist."""
    workload: str = ""
    """`Kind name` of the workload that the grouper made it for; empty without one."""
    reason: str = ""
    """Why it waits, or why its pods do not run: one CamelCase word; empty if nothing is wrong."""
    message: str = ""
    advice: str = ""
    waits: bool = False
    """Whether it waits for room, for its turn or for a correction."""
    is_stuck: bool = False
    """Whether it has its places, and pods of it do not run."""
    is_broken: bool = False
    """Whether only a correction by a person helps."""
    is_idle: bool = False
    """Whether its GPUs are unused for longer than its queue allows."""
    evicted: GangEviction | None = None
    stages: tuple[StageReport, ...] = ()
    """The room for its later stages."""


@dataclass(frozen=True, slots=True)
class NodeShare:
    """One resource of a node, in devices, cores or bytes."""

    capacity: float
    used: float
    releasing: float
    """The part of `used` that is being freed."""
    kept: float
    """Room that is kept for reservations, stages and exclusive domains."""


@dataclass(frozen=True, slots=True)
class PodOnNode:
    """A pod on a node, or the sum of the pods there that must not be named."""

    name: str
    """Empty for pods that must not be named."""
    gang: JobKey | None
    count: int
    gpus: float
    state: str
    is_shared: bool = False
    is_sick: bool = False
    is_idle: bool = False


@dataclass(frozen=True, slots=True)
class NodeFact:
    """A node."""

    name: str
    rack: str
    zone: str
    pool: str
    model: str
    """The model of its GPUs; empty if it is not known."""
    problem: str
    """Why the node takes no pods or its devices are sick; empty if nothing is wrong."""
    is_sick: bool
    is_cordoned: bool
    resources: Mapping[str, NodeShare]
    pods: tuple[PodOnNode, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of topology levels."""
    kept_for: tuple[JobKey | None, ...] = ()
    """The gangs for which room is kept here."""


@dataclass(frozen=True, slots=True)
class RoomPromise:
    """Room that is kept for a gang that does not fit now, or for a later stage."""

    gang: JobKey | None
    queue: str
    stage: str
    """The stage; empty for a reservation of a whole gang."""
    nodes: tuple[str, ...]
    start: float | None
    """The expected start of the gang: seconds since the epoch."""
    until: float | None
    """When the room is let go: seconds since the epoch."""
    problem: str = ""
    """Why no room is kept."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What the next cycle would do for a gang: bind or evict its pods."""

    gang: JobKey | None
    kind: str
    """`BINDS`, or the action that evicts."""
    pods: int
    nodes: tuple[str, ...]
    claimant: JobKey | None = None
    """For an eviction: the gang that needs the room."""


@dataclass(frozen=True)
class Picture:
    """The cluster at one moment."""

    version: int
    """Counts the pictures of a process."""
    at: datetime
    gangs: tuple[GangFact, ...]
    nodes: tuple[NodeFact, ...]
    queues: tuple[QueueShare, ...]
    """Each before its children."""
    total: Mapping[str, float]
    """The resources that are divided between queues."""
    order: tuple[JobKey | None, ...]
    """The gangs that wait for their turn, in the order of serving."""
    promises: tuple[RoomPromise, ...]
    steps: tuple[NextStep, ...]
    notes: tuple[str, ...] = ()
    """Lines about the scheduler and its configuration."""
    absence: str = ""
    """Why no scheduler leads; empty if one does, or for a file."""
    shows_nodes: bool = True
    """Whether the reader may see nodes."""
    shows_queues: bool = True
    """Whether the reader may see all queues."""
    shows_all: bool = True
    """Whether the reader may see all namespaces."""

    _made: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, make: Callable[["Picture"], MadeT]) -> MadeT:
        """Return `make` of this picture, which several pages need and is made only once."""
        if make not in self._made:
            self._made[make] = make(self)
        found: MadeT = self._made[make]
        return found

    @cached_property
    def gang_by_key(self) -> dict[JobKey, GangFact]:
        """The gangs by their keys."""
        return {each.key: each for each in self.gangs}

    @cached_property
    def node_by_name(self) -> dict[str, NodeFact]:
        """The nodes by their names."""
        return {each.name: each for each in self.nodes}

    @cached_property
    def place_of(self) -> dict[JobKey, int]:
        """The places of the waiting gangs; 1 is first."""
        return {key: place for place, key in enumerate(self.order, 1) if key is not None}

    @cached_property
    def binds_of(self) -> dict[JobKey, int]:
        """The numbers of pods that the next cycle would bind, by gang."""
        binds = (each for each in self.steps if each.kind == BINDS)
        return {each.gang: each.pods for each in binds if each.gang is not None}
