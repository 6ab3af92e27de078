"""Reservation pods: one for each GPU group, created for the first user, deleted after the last.

Used by `plugin` for every share, and run beside the transactions. Decisions use no state in memory,
because another binder may have acted before. A reservation is deleted only in the version that was
read before the search for its users, and each new user writes to the reservation first. Invariant:
of a deletion and a new user at the same time, one sees the other.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from bindery.api.gpushare import RESERVATION_NAMESPACE, reservation_name
from bindery.binder.plugins.gpusharing.arguments import GpuSharingArguments
from bindery.binder.plugins.gpusharing.objects import SHARERS, Sharer, reservation
from bindery.binder.plugins.gpusharing.users import Users
from bindery.binder.plugins.interface import PluginError
from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from bindery.kube.objects.podspec import Toleration
from bindery.kube.watches.reflector import Change, EventType, Reflector

_log: Final = structlog.get_logger(__name__)

LAST_USER_ANNOTATION: Final = "scheduling.bindery.dev/last-user"
"""Annotation of a reservation pod: the UID of the last pod that began to use it."""


class Reservations:
    """The reservation pods of one term of leadership."""

    def __init__(
        self, client: Client, arguments: GpuSharingArguments, gone: "asyncio.Queue[tuple[str, str]]"
    ) -> None:
        """`gone` receives (group, node) of each deleted reservation pod."""
        self._client, self._arguments, self._gone = client, arguments, gone
        self._users = Users(client)
        self._mirror = Reflector(client, SHARERS, self._see, namespace=RESERVATION_NAMESPACE)
        self._changed: dict[str, asyncio.Event] = {}
        """Reservation pod -> set at its next change."""

    async def run(self) -> None:
        """Mirror the reservation pods until cancelled."""
        await self._mirror.run()

    async def wait_synced(self) -> None:
        """Wait until the existing reservation pods are known."""
        await self._mirror.synced.wait()

    def known(self) -> list[Sharer]:
        """Return all reservation pods that the watch has delivered."""
        return [pod for pod in self._mirror.objects.values() if pod.is_reservation]

    async def hold(
        self, node: str, group: str, user: str, tolerations: Sequence[Toleration]
    ) -> str:
        """Return the device of `group` on `node`; `user`: the UID of the pod that uses it.

        Raises:
            PluginError: the device plugin has not given a device in time, or refuses.
        """
        try:
            async with asyncio.timeout(self._arguments.deadline_seconds):
                return await self._hold(node, group, user, tolerations)
        except TimeoutError:
            await self.release(group, node, besides=user)
            message = (
                f"the reservation pod {RESERVATION_NAMESPACE}/{reservation_name(node, group)} has "
                f"not reported its GPU within {self._arguments.deadline_seconds:g} s"
            )
            raise PluginError(message, reason="GpuNotReserved") from None

    async def release(self, group: str, node: str, besides: str = "", statement: str = "") -> bool:
        """Delete the reservation of `group` unless a pod other than `besides` (a UID) uses it.

        `statement`: the id of a Statement that is being rolled back, pod by pod; see `Users.of`.

        Returns:
            Whether the reservation no longer exists, or a pod on its node certainly uses it.
        """
        name = reservation_name(node, group)
        try:
            found = await self._client.get(SHARERS, name, RESERVATION_NAMESPACE)
            use = await self._users.of(group, node, besides=besides, statement=statement)
            if use.any:
                return use.is_settled
            await self._client.delete(
                SHARERS,
                name,
                RESERVATION_NAMESPACE,
                uid=found.metadata.uid,
                resource_version=found.metadata.resource_version,
            )
        except NotFoundError:
            return True
        except ConflictError:  # a pod has begun to use it, or only its status has changed
            return False
        _log.info("the reservation of a GPU is removed", reservation=name, group=group, node=node)
        return True

    async def _hold(
        self, node: str, group: str, user: str, tolerations: Sequence[Toleration]
    ) -> str:
        name = reservation_name(node, group)
        while True:
            changed = self._changed.setdefault(name, asyncio.Event())
            changed.clear()
            found = await self._find(node, group, tolerations)
            if found.has_ended:
                await self._clear_away(found)
            elif found.index and found.metadata.deletion_timestamp is None:
                if await self._count_on(found, user):
                    return found.index
                continue
            await changed.wait()

    async def _find(self, node: str, group: str, tolerations: Sequence[Toleration]) -> Sharer:
        """Return the reservation pod of `group`; create it if needed."""
        name = reservation_name(node, group)
        try:
            return await self._client.get(SHARERS, name, RESERVATION_NAMESPACE)
        except NotFoundError:
            pass
        body = reservation(node, group, self._arguments, list(tolerations))
        try:
            return await self._client.create(SHARERS, body, RESERVATION_NAMESPACE)
        except AlreadyExistsError:
            return await self._client.get(SHARERS, name, RESERVATION_NAMESPACE)

    async def _count_on(self, found: Sharer, user: str) -> bool:
        """Write that `user` uses the reservation; return False if it was deleted meanwhile."""
        meta = found.metadata
        metadata = {"uid": meta.uid, "annotations": {LAST_USER_ANNOTATION: user}}
        try:
            written = await self._client.patch(
                SHARERS, meta.name, {"metadata": metadata}, namespace=meta.namespace
            )
        except (NotFoundError, ConflictError):
            return False
        return written.metadata.deletion_timestamp is None

    async def _clear_away(self, found: Sharer) -> None:
        """Delete a reservation pod that has ended, because its node refused it or it failed."""
        meta, status = found.metadata, found.status
        with suppress(NotFoundError, ConflictError):
            await self._client.delete(
                SHARERS, meta.name, meta.namespace, uid=meta.uid, grace_period_s=0
            )
        why = f"{status.reason} {status.message}".strip() or status.phase
        message = f"the reservation pod {meta.name} ended: {why}"
        raise PluginError(message, reason="GpuNotReserved")

    def _see(self, change: Change[Sharer]) -> None:
        event = self._changed.pop(change.object.metadata.name, None)
        if event is not None:
            event.set()
        if change.type is EventType.DELETED:
            for group in change.object.groups:
                self._gone.put_nowait((group, change.object.spec.node_name))
