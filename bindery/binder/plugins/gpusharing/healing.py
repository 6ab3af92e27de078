"""Re-creates reservations that were deleted while pods use them.

Run by `plugin` beside the transactions. It is notified of each deleted reservation pod, and at its
start it checks all pods with a share. The device plugin chooses the device of a reservation, so the
group may get another device. Then the pods that still use the old device get an event. Only pods
with a share recorded by the binder count as users.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from bindery.api import gpushare
from bindery.binder.plugins.gpusharing import handover
from bindery.binder.plugins.gpusharing.objects import SHARERS, Sharer
from bindery.binder.plugins.gpusharing.reservations import Reservations
from bindery.binder.plugins.interface import PluginError
from bindery.kube.client import Client
from bindery.kube.errors import KubeError, NotFoundError
from bindery.kube.events.recorder import EventRecorder, reference_to

_log: Final = structlog.get_logger(__name__)

_AGAIN_S: Final = 10.0
LOST: Final = "GpuReservationLost"
MOVED: Final = "GpuReservationMoved"

_Key = tuple[str, str]
"""GPU group and node."""


class Healer:
    """Checks groups without a reservation.

    `sharers` returns the pods with a share; `gone` is a queue of (group, node) of lost
    reservations.
    """

    def __init__(
        self,
        client: Client,
        reservations: Reservations,
        sharers: Callable[[], Iterable[Sharer]],
        gone: asyncio.Queue[_Key],
        events: EventRecorder,
    ) -> None:
        self._client, self._reservations = client, reservations
        self._sharers, self._events = sharers, events
        self._gone = gone
        self._at_work: set[_Key] = set()
        self._gone_again: set[_Key] = set()
        """Groups whose reservation was deleted again while it was being re-created."""

    async def run(self) -> None:
        """Re-create reservations until cancelled, concurrently: device plugins may be slow."""
        known = {
            (group, pod.spec.node_name)
            for pod in self._reservations.known()
            for group in pod.groups
        }
        for pod in self._sharers():
            for group in _granted_groups(pod):
                if (group, pod.spec.node_name) not in known:
                    self._gone.put_nowait((group, pod.spec.node_name))
        async with asyncio.TaskGroup() as tasks:
            while True:
                key = await self._gone.get()
                if key in self._at_work:
                    self._gone_again.add(key)
                else:
                    self._at_work.add(key)
                    tasks.create_task(self._heal(key))

    async def _heal(self, key: _Key) -> None:
        group, node = key
        try:
            while users := self._users(group, node):
                self._gone_again.discard(key)
                try:
                    first = await self._first_stored(users)
                    if first is None:  # the mirror is behind
                        await asyncio.sleep(_AGAIN_S)
                        continue
                    device = await self._reservations.hold(
                        node, group, first.metadata.uid, first.spec.tolerations or []
                    )
                    await self._report_other_device(key, device)
                except (PluginError, KubeError) as error:
                    self._report_loss(users, str(error))
                    await asyncio.sleep(_AGAIN_S)
                else:
                    _log.info("a reservation is made again", group=group, node=node)
                    if key not in self._gone_again:
                        return
        finally:
            self._at_work.discard(key)
            self._gone_again.discard(key)

    def _users(self, group: str, node: str) -> list[Sharer]:
        return [
            pod
            for pod in self._sharers()
            if pod.spec.node_name == node and group in _granted_groups(pod)
        ]

    async def _first_stored(self, users: Iterable[Sharer]) -> Sharer | None:
        """Return the first of `users` that the API server still has.

        The GPU of a group whose users are gone may be planned for others already.
        """
        for pod in users:
            meta = pod.metadata
            try:
                stored = await self._client.get(SHARERS, meta.name, meta.namespace)
            except NotFoundError:
                continue
            if stored.metadata.uid == meta.uid and not stored.has_ended:
                return stored
        return None

    async def _report_other_device(self, key: _Key, device: str) -> None:
        group, node = key
        for pod in self._users(group, node):
            groups = _granted_groups(pod)
            handed_over = await handover.handed_over(self._client, pod)
            old = handed_over[groups.index(group)] if len(handed_over) == len(groups) else ""
            if old and old != device:
                message = (
                    f"the reservation of GPU {old} was deleted; the new reservation of its group "
                    f"has GPU {device}. This pod still uses GPU {old}, which other pods may get: "
                    "delete the pod to move it to a reserved GPU"
                )
                self._events.warning(reference_to(SHARERS, pod), MOVED, message)

    def _report_loss(self, users: Iterable[Sharer], why: str) -> None:
        for pod in users:
            message = (
                f"the reservation of its GPU was deleted and cannot be re-created: {why}. Other "
                "pods may get the GPU until a retry succeeds"
            )
            self._events.warning(reference_to(SHARERS, pod), LOST, message)


def _granted_groups(pod: Sharer) -> tuple[str, ...]:
    """Return the groups of which `pod` has devices now, in the order of the devices."""
    if not pod.spec.node_name or pod.has_ended:
        return ()
    granted = gpushare.read_record(pod.metadata.annotations, pod.metadata.uid)
    return granted.groups if granted is not None else ()
