"""Releases the node locks of pods that were deleted or have ended.

Run by the plugin beside the transactions, when this binder begins to lead and then at intervals. A
queue removes such a lock only when another pod waits for it; without this sweep, the lock of a gang
deleted while no binder led would stay. Locks without a holder's name are left to the queues, which
take them after their expiry.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from bindery.api.hami.vendor import Lock
from bindery.binder.plugins.hami import holders, metrics
from bindery.binder.plugins.hami.lock import LockWriter
from bindery.binder.plugins.hami.mirror import Mirror
from bindery.kube.errors import KubeError
from bindery.kube.http.outages import log_failure

_log: Final = structlog.get_logger(__name__)

_EVERY_S: Final = 15.0


class LockSweep:
    """Checks all locks. `expire_s`: seconds after which HAMi takes a lock over.

    `clock`: returns seconds since the epoch.
    """

    def __init__(
        self, mirror: Mirror, writer: LockWriter, expire_s: float, clock: Callable[[], float]
    ) -> None:
        self._mirror, self._writer = mirror, writer
        self._expire_s, self._clock = expire_s, clock

    async def run(self) -> None:
        """Check at intervals, until cancelled."""
        await self._mirror.ready.wait()
        while True:
            for node, value in self._mirror.locked():
                try:
                    await self._look(node, value)
                except KubeError as error:
                    log_failure(_log, "a lock was not looked at", error, node=node)
            await asyncio.sleep(_EVERY_S)

    async def _look(self, node: str, value: str) -> None:
        lock = holders.read(value)
        if lock is None or lock.is_anonymous:
            return
        key, now_s = (lock.namespace, lock.name), self._clock()
        known = self._mirror.seen(key)
        if known is not None and not holders.left_behind(lock, known, node, now_s, self._expire_s):
            return
        # The watches may be behind: read from the API server whether the pod exists.
        found = await self._mirror.read(key)
        reason = holders.left_behind(lock, found, node, now_s, self._expire_s)
        if not reason:
            return
        await self._writer.remove(node, Lock.NODE, value)
        _log.warning("a lock is released", node=node, lock=value, why=reason)
        metrics.HEALED.labels(reason).inc()
