"""The past as the schedulers have recorded it.

Implements `past.HistoryReader` on the records of `bindery.scheduler.history`, one for each node
pool. `LiveHistory` reads them now and then; a page is answered from memory.
"""

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

import structlog

from bindery.api import quantity
from bindery.dashboard.past import PastEviction, PastPlan, PastWait, QueuePoint
from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.scheduler.history.codec import Past, decode
from bindery.scheduler.history.entries import NO_GANG, Gang, HistoryEntry, HistoryKind
from bindery.scheduler.history.place import KEY, history_name
from bindery.scheduler.history.trends import OF_RESOURCES, WAITING_GANGS, row_of
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.model.resources import full_name
from bindery.scheduler.records.errors import RecordError
from bindery.scheduler.records.store import RecordStore
from bindery.scheduler.usage.formula import History

READ_EVERY_S: Final = 30.0
"""Minimum seconds between two reads of a record."""
_GIB: Final = 2.0**30

_log = structlog.get_logger()


class RecordedHistory:
    """The past in `records`, one for each node pool."""

    def __init__(self, records: Collection[Past] = ()) -> None:
        self._records: Collection[Past] = ()
        self._by_gang: dict[JobKey, list[HistoryEntry]] = {}
        self._take(records)

    @property
    def since(self) -> float | None:
        """The oldest time of which something is kept; None if nothing is."""
        entries = (entry.since for entry in _entries(self._records))
        slices = (float(past.trends.start.min()) for past in self._records if len(past.trends))
        return min((*entries, *slices), default=None)

    def evictions_of(self, gang: JobKey) -> Sequence[PastEviction]:
        """Return the evictions of pods of `gang`."""
        return [
            PastEviction(
                begun=entry.since,
                at=entry.until,
                gang=gang,
                action=entry.reason,
                pods=entry.pods,
                claimant=None if entry.claimant == NO_GANG else _key(entry.claimant),
                claimant_queue=entry.claimant.queue,
                message=_moved_text(entry),
            )
            for entry in self._of(gang, HistoryKind.EVICTED)
        ]

    def waits(self, gang: JobKey) -> Sequence[PastWait]:
        """Return the times for which `gang` waited; the present wait is not among them."""
        return [
            PastWait(
                gang=gang,
                queue=entry.gang.queue,
                begun=entry.since,
                ended=entry.until,
                reason=entry.reason,
                message=entry.message,
                seconds=entry.seconds,
                times=entry.times,
            )
            for entry in self._of(gang, HistoryKind.WAITED)
        ]

    def plans(self, gang: JobKey) -> Sequence[PastPlan]:
        """Return the plans for `gang` whose BindRequests have ended."""
        return [
            PastPlan(
                at=entry.since,
                ended=entry.until,
                gang=gang,
                outcome=entry.reason,
                pods=entry.pods,
                nodes=entry.nodes,
                node_count=entry.node_count,
                waited_s=entry.seconds / max(entry.times, 1),
                times=entry.times,
            )
            for entry in self._of(gang, HistoryKind.PLANNED)
        ]

    def queue_trend(self, queue: str, resource: str) -> Sequence[QueuePoint]:
        """Return the mean amounts of `resource` of `queue` in each time slice, of all pools."""
        return _sum_of([_trend(past, queue, resource) for past in self._records])

    def _take(self, records: Collection[Past]) -> None:
        """Have `records` from now on."""
        by_gang: defaultdict[JobKey, list[HistoryEntry]] = defaultdict(list)
        for entry in sorted(_entries(records), key=lambda each: each.until):
            by_gang[_key(entry.gang)].append(entry)
        self._records, self._by_gang = records, dict(by_gang)

    def _of(self, gang: JobKey, kind: HistoryKind) -> Iterator[HistoryEntry]:
        return (entry for entry in self._by_gang.get(gang, ()) if entry.kind is kind)


class LiveHistory(RecordedHistory):
    """The past in the ConfigMaps of a cluster, read again while `run` is under way."""

    def __init__(
        self, client: Client, namespace: str, pools: Callable[[], Awaitable[Iterable[str]]]
    ) -> None:
        """`pools`: returns the node pools; `namespace`: where the Leases and records are."""
        super().__init__()
        self._client, self._namespace, self._pools = client, namespace, pools
        self._texts: dict[str, str] = {}
        """Node pool -> the text of its record at the last read."""

    async def run(self) -> None:
        """Read until cancelled. A record that cannot be read stays as it was."""
        while True:
            await self.read()
            await asyncio.sleep(READ_EVERY_S)

    async def read(self) -> None:
        """Read the records once; decode them in a thread if one has changed."""
        texts = {pool: await self._text(pool) for pool in sorted({"", *await self._pools()})}
        if texts != self._texts:
            self._texts = texts
            self._take(await asyncio.to_thread(decoded, texts))

    async def _text(self, pool: str) -> str:
        store = RecordStore(self._client, history_name(pool), self._namespace, KEY)
        try:
            return await store.load()
        except KubeError as error:
            _log.info("history not read", pool=pool, error=str(error))
            return self._texts.get(pool, "")


def decoded(texts: Mapping[str, str]) -> list[Past]:
    """Return the records of `texts`, by node pool; malformed ones are logged and left out."""
    found = []
    for pool, text in texts.items():
        try:
            found.append(decode(text) if text else Past())
        except RecordError as error:
            _log.warning("history is malformed", pool=pool, error=str(error))
    return found


def _entries(records: Iterable[Past]) -> Iterator[HistoryEntry]:
    return (entry for past in records for entry in past.entries)


def _key(gang: Gang) -> JobKey:
    return JobKey(gang.namespace, gang.name, gang.is_group)


def _moved_text(entry: HistoryEntry) -> str:
    if not entry.moved:
        return ""
    return f"{entry.moved} of them had a place on another node"


def _trend(past: Past, queue: str, resource: str) -> list[QueuePoint]:
    trends = past.trends
    names = [row_of(figure, resource) for figure in OF_RESOURCES]
    if queue not in trends.queues or not set(names) <= set(trends.resources):
        return []
    column = trends.queues.index(queue)
    rows = [trends.resources.index(name) for name in names]
    unit = _GIB if quantity.scale(full_name(resource)) == 1 else 1.0
    points = []
    for at in range(len(trends)):
        observed = trends.capacity[at, rows[0]]
        if observed > 0:
            held, fair, pending = (trends.held[at, rows, column] / observed * unit).tolist()
            begun, ended = float(trends.start[at]), float(trends.end[at])
            waiting = _waiting_gangs(trends, at, column)
            points.append(QueuePoint(begun, ended, held, fair, held + pending, waiting))
    return sorted(points, key=lambda point: point.at)


def _sum_of(trends: Sequence[list[QueuePoint]]) -> list[QueuePoint]:
    """Return the sums of `trends` in the time slices of the one that has the most.

    The others have slices of their own; the one at the middle of a slice counts.
    """
    most = max(trends, key=len, default=[])
    others = [(each, [point.begun for point in each]) for each in trends if each is not most]
    return [
        reduce(_with, (_at((point.begun + point.at) / 2, *other) for other in others), point)
        for point in most
    ]


def _at(time: float, points: list[QueuePoint], begins: list[float]) -> QueuePoint | None:
    """Return the one of `points`, which begin at `begins`, that has `time`; None without one."""
    index = bisect_right(begins, time) - 1
    return points[index] if index >= 0 and time < points[index].at else None


def _with(point: QueuePoint, other: QueuePoint | None) -> QueuePoint:
    """Return `point` with the amounts of `other` added."""
    if other is None:
        return point
    waiting = [each.waiting_gangs for each in (point, other) if each.waiting_gangs is not None]
    return replace(
        point,
        allocated=point.allocated + other.allocated,
        fair_share=point.fair_share + other.fair_share,
        requested=point.requested + other.requested,
        waiting_gangs=sum(waiting) if waiting else None,
    )


def _waiting_gangs(trends: History, at: int, column: int) -> float | None:
    """Return the mean number of waiting gangs in the slice `at`; None if it was not kept."""
    if WAITING_GANGS not in trends.resources:
        return None
    row = trends.resources.index(WAITING_GANGS)
    observed = trends.capacity[at, row]
    return float(trends.held[at, row, column] / observed) if observed > 0 else None
