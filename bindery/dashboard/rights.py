"""What a person may see, and the question to the API server for it.

The person's own token asks, with SelfSubjectAccessReviews; the account of the page is never used
for it. `sessions` keeps the answer for half a minute.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from bindery.kube.accessreview import may
from bindery.kube.client import Client
from bindery.kube.objects.resources import NODES, POD_GROUPS, PODS, QUEUES, Resource

_AT_ONCE = 16
"""Maximum number of questions under way for one person."""


@dataclass(frozen=True)
class Rights:
    """What a person may see."""

    namespaces: frozenset[str] | None
    """The namespaces in which the person may list PodGroups and pods; None: all."""
    queues: bool
    """Whether the person may read queues."""
    nodes: bool
    """Whether the person may list nodes."""

    def sees(self, namespace: str) -> bool:
        """Return whether the objects in `namespace` may be named."""
        return self.namespaces is None or namespace in self.namespaces

    @property
    def see_all(self) -> bool:
        """Whether nothing is hidden."""
        return self.namespaces is None and self.queues and self.nodes


ALL = Rights(None, queues=True, nodes=True)
"""The rights of a person whose own account has read the cluster."""


class Reviewer(Protocol):
    """Asks for the rights of a person."""

    async def name_of(self, token: str) -> str:
        """Return the name of the user with `token`.

        Raises:
            ForbiddenError: the API server does not accept the token.
            KubeError: it cannot be asked.
        """
        ...

    async def rights_of(self, token: str, namespaces: Collection[str]) -> Rights:
        """Return the rights of the user with `token` in `namespaces`.

        Raises:
            ForbiddenError: the API server does not accept the token.
            KubeError: it cannot be asked.
        """
        ...


async def read_rights(client: Client, namespaces: Collection[str]) -> Rights:
    """Return the rights of the user of `client` in `namespaces`.

    Raises:
        KubeError: the API server cannot be asked, or does not accept the user.
    """
    places = asyncio.Semaphore(_AT_ONCE)

    async def lists(resource: Resource[Any], namespace: str = "") -> bool:
        async with places:
            return await may(client, resource, "list", namespace)

    async def sees(namespace: str) -> bool:
        return await lists(POD_GROUPS, namespace) and await lists(PODS, namespace)

    queues, nodes, everywhere = await asyncio.gather(
        may(client, QUEUES, "get"), lists(NODES), sees("")
    )
    if everywhere:
        return Rights(None, queues=queues, nodes=nodes)
    names = sorted(namespaces)
    found = await asyncio.gather(*map(sees, names))
    visible = frozenset(name for name, is_seen in zip(names, found, strict=True) if is_seen)
    return Rights(visible, queues=queues, nodes=nodes)
