"""Ends what was left half done on this node: writes phases and releases locks.

`settling` decides. Run beside the plugin; it waits for the handshake that is in progress, so it
never acts within one.
"""

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from bindery.api.hami import names
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.nodeagent.hamicore import CoreFiles
from bindery.nodeagent.shares import settling
from bindery.nodeagent.shares.metrics import SETTLED
from bindery.nodeagent.shares.nodelock import NodeLockReader
from bindery.nodeagent.shares.pods import SHARING_PODS
from bindery.nodeagent.shares.settling import LockEnd, PhaseEnd
from bindery.nodeagent.shares.view import NodeView

_log: Final = structlog.get_logger(__name__)

_EVERY_S: Final = 5.0
"""Without a change, too: a lock of a pod that does not exist is released at the second look."""
_PAUSE_S: Final = 0.2
"""Between two looks, so that a burst of changes is one look."""


class Settler:
    """Settles one node. `turn`: held by the handshake in progress."""

    def __init__(
        self,
        client: Client,
        view: NodeView,
        lock: NodeLockReader,
        core: CoreFiles,
        turn: asyncio.Lock,
    ) -> None:
        self._client, self._view, self._lock = client, view, lock
        self._core, self._turn = core, turn
        self._suspected = ""
        """The lock of a pod that was not on this node at the last look without a change."""

    async def run(self) -> None:
        """Look at the start, after changes and at intervals, until cancelled."""
        await self._view.wait_filled()
        is_idle = False
        while True:
            self._view.changed.clear()
            try:
                async with self._turn:
                    await self._look(is_idle=is_idle)
            except KubeError as error:
                log_failure(_log, "what is half done was not ended", error, node=self._view.name)
            await asyncio.sleep(_PAUSE_S)
            is_idle = False
            try:
                async with asyncio.timeout(_EVERY_S):
                    await self._view.changed.wait()
            except TimeoutError:
                is_idle = True

    async def _look(self, *, is_idle: bool) -> None:
        pods = dict(self._view.pods)
        for end in settling.unfinished_phases(pods, self._view.name):
            await self._write(end)
        node = self._view.node
        value = node.metadata.annotations.get(names.NODE_LOCK) if node is not None else None
        found = settling.abandoned_lock(pods, value, self._view.name)
        if found is not None and await self._may_go(found, is_idle=is_idle):
            await self._release(found)
        if is_idle:
            uids = {pod.metadata.uid for pod in pods.values()}
            self._core.remove_unknown_pods(uids, self._client.environment.now_s())

    async def _write(self, end: PhaseEnd) -> None:
        meta = end.pod.metadata
        annotations = {names.BIND_PHASE: end.phase.value}
        patch = {"metadata": {"uid": meta.uid, "annotations": annotations}}
        with suppress(NotFoundError, ConflictError):
            await self._client.patch(SHARING_PODS, meta.name, patch, namespace=meta.namespace)
            SETTLED.labels(f"phase {end.phase.value}").inc()
            _log.info("a phase is ended", pod="/".join(end.pod.key), phase=end.phase.value)

    async def _may_go(self, end: LockEnd, *, is_idle: bool) -> bool:
        """Return whether the holder of a lock really is gone.

        A binder locks the node shortly before it binds, so a lock whose holder is not on this node
        yet is normal. Only one that stays is asked about.
        """
        if not end.is_gone:
            return True
        was_suspected, self._suspected = self._suspected == end.value, end.value
        if not (is_idle and was_suspected):
            return False
        namespace, name = end.holder
        try:
            await self._client.get(SHARING_PODS, name, namespace)
        except NotFoundError:
            return True
        return False

    async def _release(self, end: LockEnd) -> None:
        if await self._lock.release(end.value):
            SETTLED.labels("lock").inc()
            _log.warning("a lock is released", node=self._view.name, lock=end.value)
