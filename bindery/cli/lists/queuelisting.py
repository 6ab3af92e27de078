"""The queues of the cluster, or of the user's own namespace, as rows. Called by `get`."""

import asyncio
from collections.abc import Sequence

import typer

from bindery.answers.leaders import read_leader
from bindery.answers.queuerows import published_gpus, queue_rows
from bindery.answers.rows import Row
from bindery.api.gpus import GpuResources
from bindery.api.names import SCHEDULER_LEASE
from bindery.cli.connection import lease_namespace, with_client
from bindery.cli.lists.ownqueues import own_listing
from bindery.cli.reading.cluster import read_queues
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError


def listed_queues(context: typer.Context, namespace: str) -> Sequence[Row]:
    """Return a row for each queue.

    `namespace`: the gangs of this namespace have the figures if the user may not read the whole
    cluster; empty: the context's namespace.

    Raises:
        KubeError: the cluster does not answer, or refuses.
    """
    leases = lease_namespace(context)

    async def read(client: Client) -> Sequence[Row]:
        return queue_rows(*await asyncio.gather(read_queues(client), _gpus(client, leases)))

    try:
        return with_client(context, read)
    except ForbiddenError as error:
        return own_listing(context, namespace, error)


async def _gpus(client: Client, namespace: str) -> GpuResources:
    """Return the resources that the default node pool's scheduler counts as GPUs."""
    return published_gpus(await read_leader(client, SCHEDULER_LEASE, namespace))
