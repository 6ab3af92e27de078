"""A look at the live cluster, shared by all commands that ask about one.

`look` is the only call to the API server. What follows from it is worked out with the scheduler's
own tables, so that the command line never counts differently from the scheduler.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import typer

from bindery.api.bindrequest import Phase
from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.api.names import (
    DEFAULT_QUEUE,
    POD_GROUP_ANNOTATION,
    QUEUE_LABEL,
)
from bindery.cli.errors import CommandError, ExitCode
from bindery.kube.budgets import DISRUPTION_BUDGETS, DisruptionBudget
from bindery.kube.claims import RESOURCE_CLAIM_TEMPLATES
from bindery.kube.client import Client, Selection
from bindery.kube.decoding import LenientDecoder
from bindery.kube.errors import ForbiddenError, NotFoundError
from bindery.kube.objects import BindRequest, KubeObject, Node, Pod, PodGroup, PriorityClass, Queue
from bindery.kube.resources import (
    BIND_REQUESTS,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Resource,
)
from bindery.kube.served import served
from bindery.kube.store import Malformed
from bindery.scheduler.cache.observers import WATCHED
from bindery.scheduler.plugins import registry

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
    """What only the scheduler's plugins watch: volumes, device claims."""

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


async def look(client: Client, plugins: Sequence[PluginConfiguration] | None = None) -> Look:
    """Read everything that planning depends on. `plugins`: those that plan; None: the default.

    What cannot be read is shown with its fault by the one who asks, where its kind is rescued; else
    it is named on stderr and left out.

    Raises:
        CommandError: the cluster does not serve Bindery's kinds.
        KubeError: it does not answer, or refuses.
    """
    try:
        pods, nodes, groups, queues, requests, classes = await asyncio.gather(
            _read(client, PODS),
            _read(client, NODES),
            _read(client, POD_GROUPS),
            _read(client, QUEUES),
            _read(client, BIND_REQUESTS),
            _read(client, PRIORITY_CLASSES),
        )
    except NotFoundError as error:
        raise CommandError(
            "Bindery's resources are not installed in this cluster; install the chart first",
            ExitCode.NO_CLUSTER,
        ) from error
    return Look(
        pods,
        nodes,
        groups,
        queues,
        requests,
        classes,
        await _budgets(client),
        await _further(client, plugins),
    )


async def _further(
    client: Client, plugins: Sequence[PluginConfiguration] | None
) -> tuple[KubeObject, ...]:
    """Read what plugins watch beside the scheduler's own kinds, and what claims are made from.

    What a user may not see is missing.

    Raises:
        CommandError: a plugin cannot be made.
    """
    try:
        found = registry.load(SchedulerConfiguration().plugins if plugins is None else plugins)
    except registry.PluginError as error:
        raise CommandError(f"the configuration: {error}", ExitCode.BAD_INPUT) from error
    resources = [each for each in found.watched_resources() if each not in WATCHED]
    resources.append(RESOURCE_CLAIM_TEMPLATES)
    objects: list[KubeObject] = []
    for resource in await served(client, resources):
        with suppress(ForbiddenError):
            objects.extend(await _read(client, resource))
    return tuple(objects)


async def _read(client: Client, resource: Resource[T]) -> tuple[T, ...]:
    """Read all objects of a kind, one by one, so that one cannot hide the others."""
    decode = LenientDecoder(resource).page
    found, _ = await client.list_with_version(resource, decode, Selection())
    objects: list[T] = []
    for item in found:
        if isinstance(item, Malformed):
            name = "/".join(part for part in (item.meta.namespace, item.meta.name) if part)
            typer.echo(f"{resource.kind} {name} is left out: {item.message}", err=True)
        else:
            objects.append(item)
    return tuple(objects)


async def _budgets(client: Client) -> tuple[DisruptionBudget, ...]:
    """Read the disruption budgets; none for a user who may not see them."""
    try:
        return await _read(client, DISRUPTION_BUDGETS)
    except ForbiddenError:
        return ()
