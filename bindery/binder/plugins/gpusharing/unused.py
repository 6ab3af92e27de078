"""Deletes the reservations of unused groups.

Run by `plugin` beside the transactions, which reports groups with users that have ended. At its
start it checks all groups, because users may have ended while no binder led. A group in use by a
request in progress is checked again later, because the end of a request causes no event here. An
interrupted watch delivers nothing about a pod that came and went meanwhile, so groups without a
known user are checked at intervals.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from bindery.api.gpushare import reservation_name
from bindery.binder.plugins.gpusharing.objects import Sharer
from bindery.binder.plugins.gpusharing.reservations import Reservations
from bindery.kube.errors import KubeError
from bindery.kube.http.outages import log_failure

_log: Final = structlog.get_logger(__name__)

_AGAIN_S: Final = 2.0
_LONGEST_S: Final = 60.0
_SWEEP_S: Final = 15.0
"""Maximum seconds that a reservation stays after its last user ended unobserved."""


class UnusedGroups:
    """Groups to check, and when. `sharers` returns the known pods with a share."""

    def __init__(self, reservations: Reservations, sharers: Callable[[], Iterable[Sharer]]) -> None:
        self._reservations = reservations
        self._sharers = sharers
        self._due: dict[tuple[str, str], tuple[float, float]] = {}
        """(group, node) -> time of the next check (the loop's clock), and the pause after it."""
        self._woken = asyncio.Event()

    def look_at(self, group: str, node: str) -> None:
        """Schedule a check of `group` on `node`."""
        if node:
            self._due[group, node] = (asyncio.get_running_loop().time(), _AGAIN_S)
            self._woken.set()

    def look_at_all(self) -> None:
        """Schedule a check of every group with a reservation."""
        for group, node in self._reserved():
            self.look_at(group, node)

    def _look_at_unused(self) -> None:
        """Schedule a check of the groups with a reservation and no known user."""
        used = {
            (group, pod.spec.node_name)
            for pod in self._sharers()
            if not pod.is_reservation and not pod.has_ended
            for group in pod.groups
        }
        for group, node in self._reserved():
            if (group, node) not in used and (group, node) not in self._due:
                self.look_at(group, node)

    def _reserved(self) -> list[tuple[str, str]]:
        return [
            (group, pod.spec.node_name)
            for pod in self._reservations.known()
            for group in pod.groups
            if pod.metadata.name == reservation_name(pod.spec.node_name, group)
        ]

    async def run(self) -> None:
        """Check groups when they are due, until cancelled."""
        loop = asyncio.get_running_loop()
        sweep_at = loop.time() + _SWEEP_S
        while True:
            self._woken.clear()
            now = loop.time()
            if now >= sweep_at:
                sweep_at = now + _SWEEP_S
                self._look_at_unused()
            for key, (at, pause_s) in list(self._due.items()):
                if at <= now:
                    await self._look(key, pause_s)
            soonest = min((at for at, _ in self._due.values()), default=sweep_at)
            try:
                async with asyncio.timeout(max(0.0, min(soonest, sweep_at) - loop.time())):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _look(self, key: tuple[str, str], pause_s: float) -> None:
        group, node = key
        self._due.pop(key, None)
        try:
            settled = await self._reservations.release(group, node)
        except KubeError as error:
            log_failure(_log, "a reservation was not looked at", error, group=group)
            settled = False
        if not settled and key not in self._due:  # a new check may have been requested meanwhile
            again = asyncio.get_running_loop().time() + pause_s
            self._due[key] = (again, min(2 * pause_s, _LONGEST_S))
