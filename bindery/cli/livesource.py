"""The live cluster as a `Source`. Called by `sources`."""

from datetime import UTC, datetime

import typer

from bindery.api.configuration import SchedulerConfiguration
from bindery.cli.connection import with_client
from bindery.cli.live import read_cluster
from bindery.cli.options import Origin
from bindery.cli.source import Source, configured
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.scheduler.usage.formula import History


def read_live_source(context: typer.Context, origin: Origin, *, with_jobs: bool) -> Source:
    """Return the cluster that the user has chosen; `with_jobs`: and its Jobs.

    Raises:
        FileError: the configuration file cannot be used.
        KubeError: the cluster does not answer, or refuses.
    """
    configuration = configured(origin, SchedulerConfiguration())

    async def read(client: Client) -> Source:
        snapshot = await read_cluster(client, configuration.plugins, with_jobs=with_jobs)
        past = await _record(client, configuration)
        return Source(snapshot, configuration, datetime.now(UTC), past)

    return with_client(context, read)


async def _record(client: Client, configuration: SchedulerConfiguration) -> History | None:
    """Return the scheduler's record of past usage; None without one or without permission."""
    if configuration.usage.source != "record":
        return None
    from bindery.scheduler.usage.codec import RecordError, decode
    from bindery.scheduler.usage.keeping import record_name
    from bindery.scheduler.usage.store import RecordStore

    namespace = configuration.leader_election.namespace
    try:
        text = await RecordStore(client, record_name(configuration), namespace).load()
        return decode(text)[0] if text else None
    except (ForbiddenError, RecordError):
        return None
