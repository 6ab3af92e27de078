"""The clusters on which making room is measured, as the scheduler's cache takes them.

Made by `room`, one for every measurement, as a cycle changes its cluster. Each world says what a
right cycle does in it; all follow from the number of nodes alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from bindery.api.names import (
    GPU_RESOURCE,
    POD_GROUP_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    QUEUE_LABEL,
)
from bindery.kube.objects.podgroups import PodGroup, PodGroupSpec, SubGroup, TopologyConstraint
from bindery.kube.objects.podspec import Container, PodSpec, ResourceRequirements
from bindery.kube.objects.queues import Queue, QueueResource, QueueSpec
from bindery.kube.objects.watched import (
    Condition,
    KubeObject,
    Meta,
    Node,
    NodeStatus,
    OwnerReference,
    Pod,
    PodStatus,
)

GPUS: Final = 8
"""Of a node."""
GANG_SIZE: Final = 10
_NAMESPACE: Final = "bench"
_CREATED: Final = "2026-01-01T00:00:00Z"
_CONTROLLER: Final = OwnerReference(
    api_version="batch/v1", kind="Job", name="work", uid="uid-work", controller=True
)
"""Of all pods: consolidation moves no others."""


@dataclass(frozen=True)
class Outcome:
    """What a cycle did, in pods."""

    evicted: int
    """Those that go, with those that move."""
    moved: int
    """Those of them that have another place."""
    promised: int
    """Pending ones for which the room is made."""
    bound: int


@dataclass(frozen=True)
class World:
    """A cluster, and what a right cycle does in it."""

    objects: Sequence[KubeObject]
    expected: Outcome


def full_of_single_jobs(nodes: int) -> World:
    """Let one queue hold every GPU; as many jobs of another, entitled to half, wait."""
    total, half = nodes * GPUS, nodes * GPUS // 2
    objects = [
        *_nodes(nodes),
        queue("holders", half),
        queue("claimants", half),
        *_running_on_all_gpus(nodes),
        *(pod(f"waits-{number:06}", 1, queue="claimants") for number in range(total)),
    ]
    return World(objects, Outcome(evicted=half, moved=0, promised=half, bound=0))


def large_gang(nodes: int) -> World:
    """Let single jobs hold every GPU; one gang of whole nodes takes back half of the cluster."""
    size, half = nodes // 2, nodes * GPUS // 2
    objects = [
        *_nodes(nodes),
        queue("holders", half),
        queue("claimants", half),
        *_running_on_all_gpus(nodes),
        *gang("large", size, "claimants"),
    ]
    return World(objects, Outcome(evicted=size * GPUS, moved=0, promised=size, bound=0))


def pinned_on_every_node(nodes: int) -> World:
    """Let a gang of whole nodes wait; one job on every node cannot go, so no node can be cleared.

    Its queue is entitled to what it asks for: only the nodes forbid it.
    """
    asked, total = GANG_SIZE * GPUS, nodes * GPUS
    objects = [
        *_nodes(nodes),
        queue("holders", total - asked),
        queue("claimants", asked),
        *_running_on_all_gpus(nodes, pinned_a_node=1),
        *gang("waits", GANG_SIZE, "claimants"),
    ]
    return World(objects, Outcome(evicted=0, moved=0, promised=0, bound=0))


def half_of_it_may_go(nodes: int) -> World:
    """Let a gang of whole nodes wait; who holds everything may lose half of what it asks for.

    Quotas exceed the cluster, so both are in the right, and only a search can tell.
    """
    asked, total = GANG_SIZE * GPUS, nodes * GPUS
    objects = [
        *_nodes(nodes),
        queue("holders", total - asked // 2),
        queue("claimants", asked),
        *_running_on_all_gpus(nodes),
        *gang("waits", GANG_SIZE, "claimants"),
    ]
    return World(objects, Outcome(evicted=0, moved=0, promised=0, bound=0))


def scattered(nodes: int) -> World:
    """Let one single-GPU job run on every node; gangs wait for 41 of every 50 nodes to be empty."""
    gangs = nodes * 41 // (50 * GANG_SIZE)
    pods = gangs * GANG_SIZE
    objects = [
        *_nodes(nodes),
        queue("all", nodes * GPUS),
        *(pod(f"runs-{at:06}", 1, queue="all", node=at) for at in range(nodes)),
        *(item for number in range(gangs) for item in gang(f"gang-{number:05}", GANG_SIZE, "all")),
    ]
    return World(objects, Outcome(evicted=pods, moved=pods, promised=pods, bound=0))


def gangs_of_three(gangs: int) -> World:
    """Let so many gangs of three pods with a GPU each wait, on 5,000 empty nodes."""
    nodes, size = 5000, 3
    objects = [
        *_nodes(nodes),
        queue("all", nodes * GPUS),
        *(
            item
            for number in range(gangs)
            for item in gang(f"gang-{number:05}", size, "all", gpus=1)
        ),
    ]
    return World(objects, Outcome(evicted=0, moved=0, promised=0, bound=gangs * size))


def _nodes(count: int) -> Iterator[Node]:
    return (node(number) for number in range(count))


def node(number: int, labels: Mapping[str, str] | None = None) -> Node:
    """Return the node of this number."""
    allocatable = {"cpu": "128", "memory": "2Ti", "pods": "110", GPU_RESOURCE: str(GPUS)}
    return Node(
        metadata=msgspec.structs.replace(_metadata(node_name(number)), labels=dict(labels or {})),
        status=NodeStatus(
            allocatable=allocatable, conditions=[Condition(type="Ready", status="True")]
        ),
    )


def node_name(number: int) -> str:
    """Return the name of the node of this number."""
    return f"node-{number:05}"


def queue(name: str, gpus: int) -> Queue:
    """Return a queue that is entitled to so many GPUs."""
    resources = {"gpu": QueueResource(quota=gpus, over_quota_weight=1.0)}
    return Queue(metadata=_metadata(name), spec=QueueSpec(resources=resources))


def _running_on_all_gpus(nodes: int, *, pinned_a_node: int = 0) -> Iterator[Pod]:
    """Yield a single-GPU pod for each GPU; the first of each node cannot be evicted."""
    for number in range(nodes * GPUS):
        node, gpu = divmod(number, GPUS)
        pinned = gpu < pinned_a_node
        yield pod(f"runs-{number:06}", 1, queue="holders", node=node, pinned=pinned)


def gang(
    name: str,
    size: int,
    queue: str,
    *,
    gpus: int = GPUS,
    topology: TopologyConstraint | None = None,
    sub_groups: Sequence[SubGroup] = (),
) -> Iterator[KubeObject]:
    """Yield the PodGroup and pods of a gang; by default, each pod needs a whole node."""
    spec = PodGroupSpec(
        min_member=size, queue=queue, topology=topology, sub_groups=list(sub_groups)
    )
    yield PodGroup(metadata=_metadata(name, _NAMESPACE), spec=spec)
    for number in range(size):
        yield pod(f"{name}-{number:04}", gpus, group=name)


def pod(
    name: str,
    gpus: int,
    *,
    queue: str = "",
    group: str = "",
    node: int | None = None,
    pinned: bool = False,
) -> Pod:
    """Return a pod; it runs if it has a node."""
    annotations = {POD_GROUP_ANNOTATION: group} if group else {}
    if pinned:
        annotations[PREEMPTIBLE_ANNOTATION] = "false"
    requests = {"cpu": str(gpus), "memory": f"{16 * gpus}Gi", GPU_RESOURCE: str(gpus)}
    return Pod(
        metadata=Meta(
            name=name,
            namespace=_NAMESPACE,
            uid=f"uid-{name}",
            resource_version="1",
            creation_timestamp=_CREATED,
            labels={QUEUE_LABEL: queue} if queue else {},
            annotations=annotations,
            owner_references=[_CONTROLLER],
        ),
        spec=PodSpec(
            scheduler_name="bindery",
            node_name="" if node is None else node_name(node),
            containers=[Container(resources=ResourceRequirements(requests=requests))],
        ),
        status=PodStatus(
            phase="Pending" if node is None else "Running",
            start_time=None if node is None else _CREATED,
        ),
    )


def _metadata(name: str, namespace: str = "") -> Meta:
    return Meta(
        name=name,
        namespace=namespace,
        uid=f"uid-{name}",
        resource_version="1",
        creation_timestamp=_CREATED,
    )
