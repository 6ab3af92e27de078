"""Reads the objects that a user with rights in only one namespace may read.

Used by `bindery.cli.explain.own` and `bindery.cli.lists.ownqueues`.

Such a user may read no other namespace, no nodes and no queues. The status of the namespace's
PodGroups replaces them.
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
    from bindery.kube.client import Client  # imports HTTP, which files do not need


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
