"""Reads all objects of the live cluster that planning depends on.

Commands that plan read the API server only through this module. The scheduler's own engine plans,
so commands decide like the scheduler.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.api.plugins import PluginConfigurationError
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.importing import importing
from bindery.cli.reading.cluster import demanding_kinds, read, read_bind_requests, read_visible
from bindery.kube.client import Client
from bindery.kube.objects.budgets import DISRUPTION_BUDGETS
from bindery.kube.objects.claims import RESOURCE_CLAIM_TEMPLATES
from bindery.kube.objects.resources import (
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Resource,
)
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import KubeObject
from bindery.kube.objects.workloads import WORKLOAD_JOBS
from bindery.kube.served import served
from bindery.scheduler.cache.observers import WATCHED
from bindery.scheduler.plugins import registry


async def read_cluster(
    client: Client, plugins: Sequence[PluginConfiguration] | None = None, *, with_jobs: bool = False
) -> ClusterSnapshot:
    """Read all objects that planning depends on. `plugins`: the configured plugins; None: the
    default.

    `with_jobs`: also the Jobs, which decide whether evicted pods are re-created.

    A malformed object of a kind that can be rescued is kept, and shown with its fault; others are
    named on stderr and left out.

    Raises:
        CommandError: the cluster does not serve Bindery's kinds.
        KubeError: the cluster does not answer, or refuses.
    """
    own, budgets, further, jobs = await asyncio.gather(
        _own_kinds(client),
        read_visible(client, DISRUPTION_BUDGETS),
        _further(client, plugins),
        read_visible(client, WORKLOAD_JOBS) if with_jobs else _nothing(),
    )
    return replace(own, budgets=budgets, further=further, workload_jobs=jobs)


async def _own_kinds(client: Client) -> ClusterSnapshot:
    """Read the kinds that the scheduler itself watches.

    Raises:
        CommandError: the cluster does not serve Bindery's kinds.
    """
    with demanding_kinds():
        pods, nodes, groups, queues, statements, classes = await asyncio.gather(
            read(client, PODS),
            read(client, NODES),
            read(client, POD_GROUPS),
            read(client, QUEUES),
            read_bind_requests(client),
            read(client, PRIORITY_CLASSES),
        )
        namespaces = await read_visible(client, NAMESPACES)
    return ClusterSnapshot(pods, nodes, groups, queues, statements, classes, namespaces)


def further_kinds(plugins: Sequence[PluginConfiguration] | None) -> list[Resource[Any]]:
    """Return the kinds that only plugins watch, and the templates of claims.

    Raises:
        CommandError: a plugin cannot be built.
    """
    try:
        with importing():
            found = registry.load(SchedulerConfiguration().plugins if plugins is None else plugins)
    except PluginConfigurationError as error:
        raise CommandError(f"the configuration: {error}", ExitCode.BAD_INPUT) from error
    watched = [each for each in found.watched_resources() if each not in WATCHED]
    return [*watched, RESOURCE_CLAIM_TEMPLATES]


async def _further(
    client: Client, plugins: Sequence[PluginConfiguration] | None
) -> tuple[KubeObject, ...]:
    """Read the objects that only plugins watch, as far as the user may read them.

    Raises:
        CommandError: a plugin cannot be built.
    """
    # In a thread: importing the plugins takes as long as the requests for the other kinds.
    kinds = await asyncio.to_thread(further_kinds, plugins)
    visible = (read_visible(client, kind) for kind in await served(client, kinds))
    return tuple(chain.from_iterable(await asyncio.gather(*visible)))


async def _nothing() -> tuple[()]:
    return ()
