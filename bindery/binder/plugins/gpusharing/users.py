"""Finds the users of a GPU group: pods on the node, and pods being bound to the node.

Called by `reservations` before it deletes a reservation; reads from the API server. BindRequests
are read before pods: a pod whose request ends between the two reads is on its node by the second,
so no user is missed.
"""

import asyncio
from dataclasses import dataclass

from bindery.api.gpushare import GROUP_LABEL, GROUP_LABEL_PREFIX
from bindery.binder.plugins.gpusharing.objects import SHARERS, Sharer
from bindery.kube.client import Client
from bindery.kube.objects.resources import BIND_REQUESTS


@dataclass(frozen=True)
class Use:
    """The kinds of users that a group has."""

    on_node: bool
    """Whether a pod on the node uses the group."""
    on_the_way: bool
    """Whether a pod of a BindRequest in progress uses the group."""

    @property
    def any(self) -> bool:
        """Whether the group has a user."""
        return self.on_node or self.on_the_way

    @property
    def is_settled(self) -> bool:
        """Whether the use ends only with the end of a pod, which a watch delivers."""
        return self.on_node


class Users:
    """Reads the users of groups from the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def of(self, group: str, node: str, *, besides: str = "", statement: str = "") -> Use:
        """Return the use of `group` on `node` by pods other than `besides` (a UID).

        `statement`: the id of a Statement that is being rolled back. The rollback removes the
        group's label from each pod, so pods of this Statement without the label do not count.
        """
        named = await self._named(group, node)
        named.pop(besides, None)
        if any(each != statement for each in named.values()):
            return Use(on_node=False, on_the_way=True)
        selectors = (f"{GROUP_LABEL}={group}", f"{GROUP_LABEL_PREFIX}{group}={group}")
        found = await asyncio.gather(
            *(self._client.list(SHARERS, label_selector=selector) for selector in selectors)
        )
        pods = [pod for pods in found for pod in pods if pod.metadata.uid != besides]
        on_the_way = any(pod.metadata.uid in named and not pod.spec.node_name for pod in pods)
        return Use(on_node=any(_uses(pod, node) for pod in pods), on_the_way=on_the_way)

    async def _named(self, group: str, node: str) -> dict[str, str]:
        """Return the pods that BindRequests in progress assign to `group`: UID -> Statement."""
        return {
            pod.pod_uid: statement.spec.id
            for stored in await self._client.list(BIND_REQUESTS)
            for statement in stored.each()
            if not statement.is_final
            for pod in statement.spec.pods
            if group in pod.selected_gpu_groups and pod.selected_node == node
        }


def _uses(pod: Sharer, node: str) -> bool:
    return not pod.is_reservation and pod.spec.node_name == node and not pod.has_ended
