"""What the command line knows of a cluster, and how one kind of object is read.

`live` reads all that planning depends on; `get` reads only what it shows. Nothing here imports the
scheduler, which takes longer than a table may take.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import typer

from bindery.api.names import DEFAULT_QUEUE, POD_GROUP_ANNOTATION, QUEUE_LABEL
from bindery.api.states import Phase
from bindery.cli.errors import CommandError, ExitCode
from bindery.kube.budgets import DisruptionBudget
from bindery.kube.decoding import LenientDecoder
from bindery.kube.errors import NotFoundError
from bindery.kube.objects import BindRequest, KubeObject, Node, Pod, PodGroup, PriorityClass, Queue
from bindery.kube.requests import Selection
from bindery.kube.resources import BIND_REQUESTS, POD_GROUPS, PODS, QUEUES, Resource
from bindery.kube.store import Malformed
from bindery.kube.workloads import WorkloadJob

if TYPE_CHECKING:
    from bindery.kube.client import Client  # it imports the HTTP library, which files do without

T = TypeVar("T", bound=KubeObject)

FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True)
class Look:
    """The objects of the cluster as of about one moment."""

    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    groups: tuple[PodGroup, ...] = ()
    queues: tuple[Queue, ...] = ()
    requests: tuple[BindRequest, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    """What evictions would meet; the scheduler itself does not watch them."""
    further: tuple[KubeObject, ...] = ()
    """What only the scheduler's plugins watch: volumes, device claims, quotas."""
    workload_jobs: tuple[WorkloadJob, ...] = ()
    """Where it matters what becomes of evicted pods."""

    def everything(self) -> tuple[KubeObject, ...]:
        """Return all objects, as the scheduler's cluster takes them."""
        return (
            *self.priority_classes,
            *self.queues,
            *self.nodes,
            *self.groups,
            *self.pods,
            *self.requests,
            *self.further,
        )

    @cached_property
    def pods_by_group(self) -> dict[tuple[str, str], list[Pod]]:
        """The pods of each PodGroup, by its namespace and name."""
        found: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
        for pod in self.pods:
            group = pod.metadata.annotations.get(POD_GROUP_ANNOTATION)
            if group:
                found[pod.metadata.namespace, group].append(pod)
        return dict(found)

    @cached_property
    def requested_nodes(self) -> dict[str, str]:
        """Pod UID -> node, for the pods in a BindRequest that has not ended."""
        return {
            pod.pod_uid: pod.selected_node
            for request in self.requests
            if not Phase(request.status.phase or Phase.PENDING).is_final
            for pod in request.spec.pods
        }

    def queue_of(self, pod: Pod) -> str:
        """Return the queue that `pod` is counted in."""
        group = pod.metadata.annotations.get(POD_GROUP_ANNOTATION)
        if not group:
            return pod.metadata.labels.get(QUEUE_LABEL) or DEFAULT_QUEUE
        return self._queue_by_group.get((pod.metadata.namespace, group), DEFAULT_QUEUE)

    @cached_property
    def _queue_by_group(self) -> dict[tuple[str, str], str]:
        return {
            (group.metadata.namespace, group.metadata.name): group.spec.queue or DEFAULT_QUEUE
            for group in self.groups
        }


async def read(client: "Client", resource: Resource[T], namespace: str = "") -> tuple[T, ...]:
    """Read all objects of a kind, one by one, so that one cannot hide the others.

    `namespace`: only those in it; empty: of all namespaces.
    """
    decode = LenientDecoder(resource).page
    found, _ = await client.list_with_version(resource, decode, Selection(namespace))
    objects: list[T] = []
    for item in found:
        if isinstance(item, Malformed):
            name = "/".join(part for part in (item.meta.namespace, item.meta.name) if part)
            typer.echo(f"{resource.kind} {name} is left out: {item.message}", err=True)
        else:
            objects.append(item)
    return tuple(objects)


@contextmanager
def demanding_kinds() -> Iterator[None]:
    """Turn a kind that the server does not know into what the user can do about it.

    Raises:
        CommandError: the cluster does not serve Bindery's kinds.
    """
    try:
        yield
    except NotFoundError as error:
        raise CommandError(
            "Bindery's resources are not installed in this cluster; install the chart first",
            ExitCode.NO_CLUSTER,
        ) from error


async def look_at_gangs(client: "Client", namespace: str = "") -> Look:
    """Read what a table of gangs shows."""
    with demanding_kinds():
        pods, groups, requests = await asyncio.gather(
            read(client, PODS, namespace),
            read(client, POD_GROUPS, namespace),
            read(client, BIND_REQUESTS, namespace),
        )
    return Look(pods=pods, groups=groups, requests=requests)


async def look_at_requests(client: "Client", namespace: str = "") -> Look:
    """Read what a table of BindRequests shows."""
    with demanding_kinds():
        return Look(requests=await read(client, BIND_REQUESTS, namespace))


async def look_at_queues(client: "Client") -> Look:
    """Read what a table of queues shows: the queues and all that they hold."""
    with demanding_kinds():
        seen, queues = await asyncio.gather(look_at_gangs(client), read(client, QUEUES))
    return replace(seen, queues=queues)
