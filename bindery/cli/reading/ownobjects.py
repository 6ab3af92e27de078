"""Read what a user with rights in a single namespace may see.

Used by `bindery.cli.explain.own` and `bindery.cli.lists.ownqueues`.

Such a user reads no other namespace, no nodes and no queues. What the scheduler has written into
the status of the PodGroups of the namespace takes their place.
"""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from bindery.cli.reading.cluster import read_gangs
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects.resources import NAMESPACES
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import Namespace

if TYPE_CHECKING:
    from bindery.kube.client import Client  # it imports the HTTP library, which files do without


async def read_own(client: "Client", namespace: str) -> ClusterSnapshot:
    """Return the pods, PodGroups and BindRequests of `namespace`, and its labels if visible.

    Raises:
        ForbiddenError: the user may not read them either.
    """
    found, own = await asyncio.gather(read_gangs(client, namespace), _own(client, namespace))
    return replace(found, namespaces=own)


async def _own(client: "Client", namespace: str) -> tuple[Namespace, ...]:
    try:
        return (await client.get(NAMESPACES, namespace),)
    except ForbiddenError:
        return ()
