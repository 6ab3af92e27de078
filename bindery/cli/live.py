"""A look at all of the live cluster that planning depends on.

`look` is the only call to the API server of the commands that plan. What follows from it is worked
out by the scheduler's own engine, so that the command line never decides differently.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.cli.cluster import Look, demanding_kinds, read
from bindery.cli.errors import CommandError, ExitCode
from bindery.kube.budgets import DISRUPTION_BUDGETS
from bindery.kube.claims import RESOURCE_CLAIM_TEMPLATES
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects import KubeObject
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
from bindery.kube.workloads import WORKLOAD_JOBS
from bindery.scheduler.cache.observers import WATCHED
from bindery.scheduler.plugins import registry

T = TypeVar("T", bound=KubeObject)


async def look(
    client: Client,
    plugins: Sequence[PluginConfiguration] | None = None,
    *,
    with_jobs: bool = False,
) -> Look:
    """Read everything that planning depends on. `plugins`: those that plan; None: the default.

    `with_jobs`: also what decides whether evicted pods come back.

    What cannot be read is shown with its fault by the one who asks, where its kind is rescued; else
    it is named on stderr and left out.

    Raises:
        CommandError: the cluster does not serve Bindery's kinds.
        KubeError: it does not answer, or refuses.
    """
    with demanding_kinds():
        pods, nodes, groups, queues, requests, classes = await asyncio.gather(
            read(client, PODS),
            read(client, NODES),
            read(client, POD_GROUPS),
            read(client, QUEUES),
            read(client, BIND_REQUESTS),
            read(client, PRIORITY_CLASSES),
        )
    return Look(
        pods,
        nodes,
        groups,
        queues,
        requests,
        classes,
        await _visible(client, DISRUPTION_BUDGETS),
        await _further(client, plugins),
        await _visible(client, WORKLOAD_JOBS) if with_jobs else (),
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
            objects.extend(await read(client, resource))
    return tuple(objects)


async def _visible(client: Client, resource: Resource[T]) -> tuple[T, ...]:
    """Read all objects of a kind; none for a user who may not see them."""
    try:
        return await read(client, resource)
    except ForbiddenError:
        return ()
