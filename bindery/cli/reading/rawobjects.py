"""Read objects as the API server has them, with all their fields. Used by `bindery snapshot`."""

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from bindery.api.configuration import SchedulerConfiguration
from bindery.cli.reading.cluster import demanding_kinds
from bindery.cli.reading.live import further_kinds
from bindery.kube.errors import ForbiddenError, NotFoundError
from bindery.kube.http.requests import Selection
from bindery.kube.objects.nesting import cut
from bindery.kube.objects.resources import CONFIG_MAPS, ObjectList, Resource
from bindery.kube.objects.workloads import WORKLOAD_JOBS
from bindery.kube.served import served
from bindery.scheduler.cache.observers import WATCHED
from bindery.scheduler.history.place import history_name
from bindery.scheduler.usage.place import record_name

if TYPE_CHECKING:
    from bindery.kube.client import Client

RawObject = dict[str, Any]

_PAGES: Final = msgspec.json.Decoder(ObjectList[RawObject])


async def read_raw_objects(
    client: "Client", configuration: SchedulerConfiguration
) -> list[RawObject]:
    """Read all objects that a scheduler with `configuration` watches, and its records.

    A kind that the user may not see is named on stderr and left out.

    Raises:
        CommandError: the cluster does not serve Bindery's kinds, or a plugin cannot be made.
        KubeError: it does not answer.
    """
    # In a thread: importing the plugins takes as long as the server takes for the other kinds.
    kinds = await asyncio.to_thread(further_kinds, configuration.plugins)
    further = await served(client, kinds)
    with demanding_kinds():
        found = await asyncio.gather(
            *(_visible(client, kind) for kind in (*WATCHED, *further, WORKLOAD_JOBS)),
            _records(client, configuration),
        )
    return list(chain.from_iterable(found))


async def _visible(client: "Client", kind: Resource[Any]) -> list[RawObject]:
    try:
        found, _ = await client.list_with_version(kind, _page, Selection(""))
    except ForbiddenError as error:
        typer.echo(f"warning: there are no {kind.plural} in the snapshot: {error}", err=True)
        return []
    named = {"apiVersion": kind.api_version, "kind": kind.kind}
    return [{**named, **item} for item in found]


def _page(body: bytes) -> ObjectList[RawObject]:
    try:
        return _PAGES.decode(body)
    except RecursionError:
        return _PAGES.decode(cut(body))


async def _records(client: "Client", configuration: SchedulerConfiguration) -> list[RawObject]:
    """Read the records of past usage, if it counts, and of the history, if there is one."""
    names = [history_name(configuration.node_pool)]
    if configuration.usage.source == "record":
        names.append(record_name(configuration))
    namespace = configuration.leader_election.namespace
    found = await asyncio.gather(*(_record(client, name, namespace) for name in names))
    return list(chain.from_iterable(found))


async def _record(client: "Client", name: str, namespace: str) -> list[RawObject]:
    try:
        found = await client.get(CONFIG_MAPS, name, namespace)
    except (ForbiddenError, NotFoundError):
        return []
    named = {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind}
    return [{**named, "metadata": {"name": name, "namespace": namespace}, "data": found.data}]
