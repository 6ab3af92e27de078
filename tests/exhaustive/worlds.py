"""Small worlds as plain data: some jobs run, and the last one waits.

Made by `making`, judged by `rules`, searched by `search`, and played by `compare`. Nothing here
knows how a plan is found.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

BLOCK, RACK, HOST = "block", "rack", "host"
LEVELS = (BLOCK, RACK)
"""The levels of the tree of nodes, the widest first."""
UNLIMITED = -1


@dataclass(frozen=True)
class Node:
    """A node with its place in the tree."""

    name: str
    gpus: int
    cores: int
    block: str = "b0"
    rack: str = "b0r0"
    is_cordoned: bool = False
    is_fast: bool = True
    """Whether it has the label that pods may select."""
    devices: int = 0
    """Devices for resource claims."""

    def domain(self, key: str) -> tuple[str, ...]:
        """Return the domain of the node at a level, or for a label of an affinity term."""
        places = {BLOCK: (self.block,), RACK: (self.block, self.rack), HOST: (self.name,)}
        return places[key]


@dataclass(frozen=True)
class Queue:
    """A queue without a weight: it gets its quota, and holds more only as long as no one claims it.

    Amounts are GPUs.
    """

    name: str
    quota: int
    parent: str = ""
    limit: int = UNLIMITED
    is_reclaimable: bool = True


@dataclass(frozen=True)
class Term:
    """A required affinity or anti-affinity to pods of an app."""

    app: str
    key: str
    is_anti: bool


@dataclass(frozen=True)
class Pod:
    """A pod; it waits if it has no node."""

    gpus: int
    cores: int = 0
    node: str = ""
    role: str = ""
    part: str = ""
    app: str = ""
    wants_fast: bool = False
    term: Term | None = None
    claim: str = ""
    """The resource claim that it shares with the other pods of its job that name it."""


@dataclass(frozen=True)
class Part:
    """A sub-group of a job. A later part has no pods yet, but `later` of its pods to come."""

    name: str
    least: int
    level: str = ""
    """The level of which all its pods share a domain."""
    later: Pod | None = None


@dataclass(frozen=True)
class Job:
    """A gang."""

    name: str
    queue: str
    priority: int
    least: int
    """The minimum of its pods."""
    pods: tuple[Pod, ...]
    is_preemptible: bool = True
    roles: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    level: str = ""
    is_exclusive: bool = False
    returns: bool = False
    """Whether a controller creates its pods again after their eviction."""


@dataclass(frozen=True)
class World:
    """All nodes, queues and jobs. The last job waits; all others run."""

    seed: int
    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    jobs: tuple[Job, ...]

    @property
    def claimant(self) -> Job:
        """The job that is next."""
        return self.jobs[-1]

    @property
    def running(self) -> tuple[Job, ...]:
        """The jobs that hold room."""
        return self.jobs[:-1]

    @cached_property
    def node_of(self) -> Mapping[str, Node]:
        """Name -> node."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def queue_of(self) -> Mapping[str, Queue]:
        """Name -> queue."""
        return {queue.name: queue for queue in self.queues}

    def chain(self, name: str) -> tuple[str, ...]:
        """Return the queue `name` and the queues above it, upwards."""
        parent = self.queue_of[name].parent
        return (name, *(self.chain(parent) if parent else ()))


def features(world: World) -> Iterator[str]:
    """Yield what `world` has beyond nodes, GPUs, queues and priorities."""
    jobs, claimant = world.jobs, world.claimant
    pods = [pod for job in jobs for pod in job.pods]
    found = {
        "cores": any(pod.cores for pod in pods),
        "cordons and selectors": any(pod.wants_fast for pod in claimant.pods)
        or any(node.is_cordoned for node in world.nodes),
        "topology": bool(claimant.level),
        "sub-groups": any(part.later is None for part in claimant.parts)
        and len(claimant.parts) > 1,
        "sub-groups with domains": any(part.level for part in claimant.parts),
        "stages": any(part.later for part in claimant.parts),
        "roles": any(job.roles for job in jobs),
        "more pods than the minimum": len(claimant.pods) > claimant.least,
        "elastic victims": any(len(job.pods) > job.least for job in world.running),
        "exclusive domains": any(job.is_exclusive for job in jobs),
        "affinity": any(pod.term is not None and not pod.term.is_anti for pod in pods),
        "anti-affinity": any(pod.term is not None and pod.term.is_anti for pod in pods),
        "shared claims": any(pod.claim for pod in pods),
        "tree of queues": any(queue.parent for queue in world.queues),
        "limits": any(queue.limit != UNLIMITED for queue in world.queues),
        "not preemptible": not all(job.is_preemptible for job in jobs),
        "pods of the gang run": any(pod.node for pod in claimant.pods),
        "moves": any(job.returns for job in world.running),
    }
    return (name for name, is_there in found.items() if is_there)
