"""Reads objects of a cluster into a snapshot.

`live` reads all objects that planning depends on; `bindery get` reads only the objects that it
shows. This module does not import the scheduler, whose import takes too long for a table.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import typer

from bindery.api.states import GangState
from bindery.cli.errors import CommandError, ExitCode
from bindery.kube.errors import ForbiddenError, NotFoundError
from bindery.kube.http.requests import Selection
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.claims import RESOURCE_CLAIMS, ResourceClaim
from bindery.kube.objects.resources import (
    BIND_REQUESTS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    Resource,
)
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import KubeObject, Namespace
from bindery.kube.objects.workloads import WORKLOAD_JOBS
from bindery.kube.watches.decoding import LenientDecoder
from bindery.kube.watches.store import Malformed

if TYPE_CHECKING:
    from bindery.kube.client import Client  # imports HTTP, which files do not need

T = TypeVar("T", bound=KubeObject)


async def read(client: "Client", resource: Resource[T], namespace: str = "") -> tuple[T, ...]:
    """Read all objects of a kind; a malformed one is named on stderr, and hides no others.

    `namespace`: only objects in it; empty: all namespaces.
    """
    decode = LenientDecoder(resource).page
    found, _ = await client.list_with_version(resource, decode, Selection(namespace))
    objects: list[T] = []
    for item in found:
        if isinstance(item, Malformed):
            name = "/".join(part for part in (item.meta.namespace, item.meta.name) if part)
            kept = item.kept(None)
            effect = "is left out" if kept is None else "is read in part"
            typer.echo(f"{resource.kind} {name} {effect}: {item.message}", err=True)
            if kept is not None:
                objects.append(kept)
        else:
            objects.append(item)
    return tuple(objects)


async def read_visible(
    client: "Client", resource: Resource[T], namespace: str = ""
) -> tuple[T, ...]:
    """Read objects as `read` does; none if the user may not read the kind."""
    try:
        return await read(client, resource, namespace)
    except ForbiddenError:
        return ()


async def _read_claims(client: "Client") -> tuple[ResourceClaim, ...]:
    """Read the resource claims; none if the cluster does not serve them."""
    try:
        return await read_visible(client, RESOURCE_CLAIMS)
    except NotFoundError:
        return ()


@contextmanager
def demanding_kinds() -> Iterator[None]:
    """Convert the error about an unknown kind to advice for the user.

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


async def read_gangs(client: "Client", namespace: str = "") -> ClusterSnapshot:
    """Read the objects for a table of gangs."""
    with demanding_kinds():
        pods, groups, statements, namespaces = await asyncio.gather(
            read(client, PODS, namespace),
            read(client, POD_GROUPS, namespace),
            read_bind_requests(client, namespace),
            read_visible(client, NAMESPACES),
        )
    are_gone = any(group.status.state == GangState.EVICTED for group in groups)
    return ClusterSnapshot(
        pods=pods,
        groups=groups,
        statements=statements,
        namespaces=namespaces,
        # Only gangs without pods show the state of their Jobs.
        workload_jobs=await read_visible(client, WORKLOAD_JOBS, namespace) if are_gone else (),
    )


async def read_bind_requests(
    client: "Client", namespace: str = ""
) -> tuple[CommittedStatement, ...]:
    """Read the BindRequests; return one item for each of their Statements."""
    found = await read(client, BIND_REQUESTS, namespace)
    return tuple(each for request in found for each in request.each())


async def read_requests(client: "Client", namespace: str = "") -> ClusterSnapshot:
    """Read the objects for a table of BindRequests."""
    with demanding_kinds():
        return ClusterSnapshot(statements=await read_bind_requests(client, namespace))


async def read_queues(client: "Client") -> ClusterSnapshot:
    """Read the objects for a table of queues: the queues and the objects charged to them."""
    with demanding_kinds():
        snapshot, queues, nodes, claims = await asyncio.gather(
            read_gangs(client),
            read(client, QUEUES),
            read_visible(client, NODES),
            _read_claims(client),
        )
    return replace(snapshot, queues=queues, nodes=nodes, further=claims)


async def read_own(client: "Client", namespace: str) -> ClusterSnapshot:
    """Read the objects that a user with rights in only `namespace` may read.

    Such a user may read no other namespace, no nodes and no queues. The status of the PodGroups
    replaces them.
    """
    found, own = await asyncio.gather(read_gangs(client, namespace), _own(client, namespace))
    return replace(found, namespaces=own)


async def _own(client: "Client", namespace: str) -> tuple[Namespace, ...]:
    try:
        return (await client.get(NAMESPACES, namespace),)
    except ForbiddenError:
        return ()
