"""Reads the scheduler's record of past usage, for the commands and for the dashboard."""

from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.scheduler.records.store import RecordStore
from bindery.scheduler.usage.codec import readable
from bindery.scheduler.usage.formula import History
from bindery.scheduler.usage.place import KEY, record_name


async def read_past_usage(client: Client, configuration: SchedulerConfiguration) -> History | None:
    """Return the record; None without one, or without the right to read it.

    Raises:
        KubeError: the cluster does not answer.
    """
    if configuration.usage.source != "record":
        return None
    namespace = configuration.leader_election.namespace
    store = RecordStore(client, record_name(configuration), namespace, KEY)
    try:
        return readable(await store.load())
    except ForbiddenError:
        return None
