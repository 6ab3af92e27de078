"""Writes the standings of gangs in the background: turns, and figures of queues.

Standings are checked every few seconds, and written slowly, one by one: a place that is some
seconds old is still useful, and writes for all waiting gangs of a large cluster would delay other
writes. The gang whose last write is oldest comes first.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.kube.lease import Leadership
from bindery.kube.objects.resources import POD_GROUPS
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.planning.reports import CycleReport
from bindery.scheduler.status.standings import Standing, standings

LOOK_EVERY_S: Final = 5.0
"""Minimum time between two checks of all gangs."""
EACH_EVERY_S: Final = 15.0
"""Minimum time between two writes to one gang."""
PAUSE_S: Final = 0.1
"""Pause between two writes: at most ten a second in a cluster."""

_log = structlog.get_logger()


def _place(standing: Standing) -> int:
    return standing.turn.place if standing.turn is not None else 0


class StandingWriter:
    """Patches `status.turn` and `status.queueFigures`. `clock`: seconds since the epoch."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._looked_at = 0.0
        self._waiting: list[Standing] = []
        """Standings to write, in reverse order."""
        self._written: dict[Uid, float] = {}
        """PodGroup -> time of the last attempt."""
        self._wake = asyncio.Event()

    def look(self, cluster: Cluster, report: CycleReport) -> None:
        """Replace the waiting standings, if the last check is old enough."""
        now = self._clock()
        # A negative difference means that the clock was set back.
        if 0 <= now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        found = {Uid(each.meta.uid): each for each in standings(cluster, report)}
        # Gangs with a right status need no record: their next write may follow at once.
        self._written = {uid: at for uid, at in self._written.items() if uid in found}
        tried = self._written
        due = [uid for uid in found if not 0 <= now - tried.get(uid, -math.inf) < EACH_EVERY_S]
        due.sort(key=lambda uid: (tried.get(uid, -math.inf), _place(found[uid])), reverse=True)
        self._waiting = [found[uid] for uid in due]
        if self._waiting:
            self._wake.set()

    async def run(self, leadership: Leadership) -> None:
        """Write until cancelled or no longer leading. Writes of an earlier term are dropped."""
        self._waiting.clear()
        self._written.clear()
        while leadership.is_valid():
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._write(self._waiting.pop())
            await asyncio.sleep(PAUSE_S)

    async def _write(self, standing: Standing) -> None:
        meta = standing.meta
        self._written[Uid(meta.uid)] = self._clock()
        # Another PodGroup of this name has another version; its UID would protect nothing.
        version = {"resourceVersion": meta.resource_version}
        body = {"metadata": version, "status": standing.to_wire()}
        try:
            await self._client.patch(
                POD_GROUPS, meta.name, body, namespace=meta.namespace, subresource="status"
            )
        except NotFoundError:
            return
        except ConflictError:
            self._written.pop(Uid(meta.uid), None)  # the next cycle offers it again
        except KubeError as error:
            log_failure(_log, "standing not written", error, gang=meta.name)
