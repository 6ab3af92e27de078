"""The live cluster as a `Source`. Called by `sources`."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import typer

from bindery.answers.pastusage import read_past_usage
from bindery.answers.planner import Planner, with_served_pools
from bindery.answers.source import Source
from bindery.api.names import NODE_POOL_LABEL
from bindery.cli.connection import lease_namespace, with_client
from bindery.cli.options import Origin
from bindery.cli.reading.configurations import read_planner
from bindery.cli.reading.live import read_cluster
from bindery.kube.client import Client
from bindery.kube.objects.snapshot import ClusterSnapshot


def read_live_source(context: typer.Context, origin: Origin, *, with_jobs: bool) -> Source:
    """Return the selected cluster; `with_jobs`: including its Jobs.

    Raises:
        FileError: the configuration file cannot be used.
        KubeError: the cluster does not answer, or refuses.
    """

    async def read(client: Client) -> Source:
        planner = await read_planner(client, origin, lease_namespace(context))
        configuration = planner.configuration
        snapshot, past = await asyncio.gather(
            read_cluster(client, configuration.plugins, with_jobs=with_jobs),
            read_past_usage(client, configuration),
        )
        planner = await _with_served_pools(client, context, planner, snapshot)
        return Source(snapshot, configuration, datetime.now(UTC), past, planner)

    return with_client(context, read)


def read_for_pool(context: typer.Context, origin: Origin, source: Source) -> Source:
    """Return `source`, which was read before, for the scheduler of the node pool in `origin`.

    The cluster is read again if that scheduler has other plugins, because they may need further
    kinds.

    Raises:
        FileError: the configuration file cannot be used.
        KubeError: the cluster does not answer, or refuses.
    """

    async def read(client: Client) -> Source:
        planner = await read_planner(client, origin, lease_namespace(context))
        configuration = planner.configuration
        past = await read_past_usage(client, configuration)
        planner = await _with_served_pools(client, context, planner, source.snapshot)
        return replace(source, configuration=configuration, past=past, planner=planner)

    found = with_client(context, read)
    if found.configuration.plugins == source.configuration.plugins:
        return found
    with_jobs = bool(source.snapshot.workload_jobs)
    return read_live_source(context, origin, with_jobs=with_jobs)


async def _with_served_pools(
    client: Client, context: typer.Context, planner: Planner, snapshot: ClusterSnapshot
) -> Planner:
    pools = (node.metadata.labels.get(NODE_POOL_LABEL, "") for node in snapshot.nodes)
    return await with_served_pools(client, planner, pools, lease_namespace(context))
