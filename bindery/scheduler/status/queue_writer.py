"""Writes the status of Queue objects in the background, one patch per object.

A newer status replaces an older one. Conditions are written at once. The amounts of a queue are
written at most every few seconds, and less often while commits are in flight, so that status writes
do not delay a burst of gangs. The queue that waits longest is written first, one call at a time.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.kube.lease import Leadership
from bindery.kube.objects.queues import QueueStatus
from bindery.kube.objects.resources import QUEUES
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.planning.reports import CycleReport
from bindery.scheduler.status.queues import QueueStatuses, QueueWrite

LOOK_EVERY_S = 1.0
"""Minimum time between two checks of all queues, as each loops over all gangs."""
AMOUNTS_EVERY_S = 3.0
"""Minimum time between two writes of one queue's amounts."""
BUSY_AMOUNTS_EVERY_S = 10.0
"""The same while commits are in flight."""
RETRY_AFTER_S = 10.0
"""Time without writes to a queue after the API server refused its status."""
SHOWN_AFTER_S = 30.0
"""Time after which the watch has shown a write. If the object still differs, it is repeated."""
_PAUSE_S = 0.02
"""Pause between two writes: 50 per second are enough for a cluster of 1,000 queues."""
_LOOK_AGAIN_S = 0.5

_log = structlog.get_logger()


@dataclass(slots=True)
class _Written:
    at: float
    write: QueueWrite


class QueueStatusWriter:
    """Patches the status of Queue objects as computed by `statuses`."""

    def __init__(self, client: Client, statuses: QueueStatuses, clock: Callable[[], float]) -> None:
        self._client = client
        self._statuses = statuses
        self._clock = clock
        self._looked_at = 0.0
        self._waiting: dict[Uid, QueueWrite] = {}
        """The writes to make, longest waiting first."""
        self._written: dict[Uid, _Written] = {}
        """The recent writes."""
        self._not_before: dict[Uid, float] = {}
        """Queue whose status was refused -> time of the next attempt."""
        self._wake = asyncio.Event()

    def look(self, report: CycleReport) -> None:
        """Offer the status of all queues after a cycle; once per second if no queue changed."""
        now = self._clock()
        # A negative difference means that the clock was set back.
        if self._statuses.has_news or not 0 <= now - self._looked_at < LOOK_EVERY_S:
            self._looked_at = now
            self.offer(self._statuses.writes(report, now))

    def offer(self, writes: Iterable[QueueWrite]) -> None:
        """Replace the waiting writes with `writes`, except writes that were just made."""
        now = self._clock()
        self._forget_past(now)
        wanted = {Uid(write.meta.uid): write for write in writes}
        for uid, written in self._written.items():
            if uid in wanted and _repeats(wanted[uid], written.write):
                del wanted[uid]
        # Queues that wait already keep their position; new ones come after them.
        self._waiting = {uid: wanted[uid] for uid in self._waiting if uid in wanted} | wanted
        if self._waiting:
            self._wake.set()

    def _forget_past(self, now: float) -> None:
        for uid in [u for u, w in self._written.items() if now - w.at >= SHOWN_AFTER_S]:
            del self._written[uid]
        for uid in [u for u, at in self._not_before.items() if at <= now]:
            del self._not_before[uid]

    async def run(self, leadership: Leadership) -> None:
        """Write until cancelled or no longer leading. Writes of an earlier term are dropped."""
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
        del self._waiting[uid]  # before the call: a write offered during it must stay
        # Another Queue of this name has another version; its UID would protect nothing.
        version = {"resourceVersion": write.meta.resource_version}
        body = {"metadata": version, "status": _patch(write.present, write.wanted)}
        try:
            await self._client.patch(QUEUES, write.meta.name, body, subresource="status")
        except (NotFoundError, ConflictError):
            return  # a later cycle offers it again
        except KubeError as error:
            # Not kept in `_waiting`: a later cycle offers it again.
            self._not_before[uid] = self._clock() + RETRY_AFTER_S
            log_failure(_log, "queue status not written", error, queue=write.meta.name)
            return
        self._written[uid] = _Written(self._clock(), write)


def _repeats(new: QueueWrite, old: QueueWrite) -> bool:
    """Return whether `new` has the content of `old` and is based on the same object version."""
    seen, then = new.meta.resource_version, old.meta.resource_version
    return seen == then and _content(new.wanted) == _content(old.wanted)


def _content(status: QueueStatus) -> QueueStatus:
    """Return `status` without transition times, which differ between offers."""
    timeless = [
        msgspec.structs.replace(condition, last_transition_time=None)
        for condition in status.conditions or ()
    ]
    return msgspec.structs.replace(status, conditions=timeless)


def _patch(present: QueueStatus, wanted: QueueStatus) -> dict[str, Any]:
    """Return the merge patch from `present` to `wanted`, with null for keys to remove."""
    old, new = msgspec.to_builtins(present), msgspec.to_builtins(wanted)
    return {key: _merged(old.get(key), value) for key, value in new.items()}


def _merged(old: object, new: object) -> object:
    if not isinstance(new, Mapping) or not isinstance(old, Mapping):
        return new
    return {**dict.fromkeys(sorted(old.keys() - new.keys())), **new}
