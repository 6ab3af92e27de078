"""Writes the status of Queue objects in the background, one patch an object.

The newest wins. Conditions go out at once. Amounts of one queue are written at most every few
seconds, and while commits are under way less often still, so that a burst of gangs is bound before
anybody is told about it. The longest waiting goes first, one call at a time.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from bindery.kube.client import Client
from bindery.kube.errors import KubeError, NotFoundError
from bindery.kube.lease import Leadership
from bindery.kube.objects import QueueStatus
from bindery.kube.resources import QUEUES
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.planning.reports import CycleReport
from bindery.scheduler.status.queues import QueueStatuses, QueueWrite

LOOK_EVERY_S = 1.0
"""The shortest time between two looks at all queues: each walks all gangs."""
AMOUNTS_EVERY_S = 3.0
"""The shortest time between two writes of one queue's amounts."""
BUSY_AMOUNTS_EVERY_S = 10.0
"""The same while commits are under way."""
RETRY_AFTER_S = 10.0
"""How long a queue is left alone after the API server has refused its status."""
SHOWN_AFTER_S = 30.0
"""After so long the watch has shown what was written: if the object says something else, it is
written again."""
_PAUSE_S = 0.02
"""Between two writes: 50 a second are enough for a cluster of 1,000 queues."""
_LOOK_AGAIN_S = 0.5

_log = structlog.get_logger()


@dataclass(slots=True)
class _Written:
    at: float
    write: QueueWrite


class QueueStatusWriter:
    """Patches the status of queues with what `statuses` says of them."""

    def __init__(self, client: Client, statuses: QueueStatuses, clock: Callable[[], float]) -> None:
        self._client = client
        self._statuses = statuses
        self._clock = clock
        self._looked_at = 0.0
        self._waiting: dict[Uid, QueueWrite] = {}
        """In the order in which the queues' turns came."""
        self._written: dict[Uid, _Written] = {}
        """The queues that were written a short while ago."""
        self._not_before: dict[Uid, float] = {}
        """When a queue whose status was refused may be written again."""
        self._wake = asyncio.Event()

    def look(self, report: CycleReport) -> None:
        """See what queues should say after a cycle; at most once a second while none changes."""
        now = self._clock()
        if self._statuses.has_news or not 0 <= now - self._looked_at < LOOK_EVERY_S:
            self._looked_at = now
            self.offer(self._statuses.writes(report.fair, now))

    def offer(self, writes: Iterable[QueueWrite]) -> None:
        """Write these, and nothing else that was offered before; what has just been written waits
        for the watch to show it.
        """
        now = self._clock()
        self._forget_past(now)
        wanted = {Uid(write.meta.uid): write for write in writes}
        for uid, written in self._written.items():
            if uid in wanted and _repeats(wanted[uid], written.write):
                del wanted[uid]
        self._waiting = {uid: wanted[uid] for uid in self._waiting if uid in wanted} | wanted
        if self._waiting:
            self._wake.set()

    def _forget_past(self, now: float) -> None:
        for uid in [u for u, w in self._written.items() if now - w.at >= SHOWN_AFTER_S]:
            del self._written[uid]
        for uid in [u for u, at in self._not_before.items() if at <= now]:
            del self._not_before[uid]

    async def run(self, leadership: Leadership) -> None:
        """Write until cancelled or no longer leading; what an earlier term left is forgotten."""
        self._waiting.clear()
        self._written.clear()
        while leadership.is_valid():
            write = self._next()
            if write is None:
                self._wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN_S if self._waiting else None):
                        await self._wake.wait()
                continue
            await self._write(write)
            await asyncio.sleep(_PAUSE_S)

    def _next(self) -> QueueWrite | None:
        now = self._clock()
        self._forget_past(now)
        every_s = BUSY_AMOUNTS_EVERY_S if self._statuses.cluster.holds.has_live else AMOUNTS_EVERY_S
        for uid, write in self._waiting.items():
            written = self._written.get(uid)
            is_held_back = written is not None and now - written.at < every_s
            if uid not in self._not_before and (write.is_urgent or not is_held_back):
                return write
        return None

    async def _write(self, write: QueueWrite) -> None:
        uid = Uid(write.meta.uid)
        del self._waiting[uid]
        body = {"metadata": {"uid": write.meta.uid}, "status": _patch(write.said, write.wanted)}
        try:
            await self._client.patch(QUEUES, write.meta.name, body, subresource="status")
        except NotFoundError:
            return
        except KubeError as error:
            # A later cycle offers it again.
            self._not_before[uid] = self._clock() + RETRY_AFTER_S
            _log.warning("queue status not written", queue=write.meta.name, error=str(error))
            return
        self._written[uid] = _Written(self._clock(), write)


def _repeats(new: QueueWrite, old: QueueWrite) -> bool:
    """Return whether `new` asks for what was written, of the object as it was before that."""
    seen, then = new.meta.resource_version, old.meta.resource_version
    return seen == then and _content(new.wanted) == _content(old.wanted)


def _content(status: QueueStatus) -> QueueStatus:
    """Return `status` without times: they are those of the first offer."""
    timeless = [
        msgspec.structs.replace(condition, last_transition_time=None)
        for condition in status.conditions or ()
    ]
    return msgspec.structs.replace(status, conditions=timeless)


def _patch(said: QueueStatus, wanted: QueueStatus) -> dict[str, Any]:
    """Return the merge patch of a status: whole, without the resources that are no more."""
    old, new = msgspec.to_builtins(said), msgspec.to_builtins(wanted)
    return {key: _merged(old.get(key), value) for key, value in new.items()}


def _merged(old: object, new: object) -> object:
    if not isinstance(new, Mapping) or not isinstance(old, Mapping):
        return new
    return {**dict.fromkeys(sorted(old.keys() - new.keys())), **new}
