"""Event aggregation, rate limits and priorities, without I/O.

`events.recorder` passes occurrences in and takes the next event to write. Time is passed in.
Invariants: equal occurrences within `SERIES_S` are one event with a count; at most `burst` +
`per_second` x t events are written in t seconds; a warning never waits for an event of type Normal
and is never dropped in favour of one, and neither waits for a minor event.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

SERIES_S: Final = 300.0
"""Seconds after an occurrence during which an equal one only increases the event's count."""
PENDING_MAX: Final = 1000
"""Maximum number of events that wait to be written; further events are dropped."""
_LATER_MAX: Final = 200
_LATE_S: Final = 120.0
"""Seconds after which low-priority occurrences (`observe_later`) are dropped."""


class Severity(StrEnum):
    """The type of an event, as Kubernetes names it."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True)
class ObjectReference:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    """"" for cluster-scoped objects."""
    name: str
    uid: str


@dataclass(frozen=True)
class Occurrence:
    """Something that happened to an object; equal occurrences are one event with a count."""

    regarding: ObjectReference
    severity: Severity
    reason: str
    message: str
    is_minor: bool = False
    """Whether a larger object has an event about the same: a pod's part in its gang."""


class _Rank(IntEnum):
    """The order in which events are written."""

    WARNING = 0
    NORMAL = 1
    MINOR = 2


def _rank(occurrence: Occurrence) -> _Rank:
    if occurrence.is_minor:
        return _Rank.MINOR
    return _Rank.WARNING if occurrence.severity is Severity.WARNING else _Rank.NORMAL


@dataclass(eq=False)
class Series:
    """An event and the number of its occurrences."""

    occurrence: Occurrence
    first_at: float
    last_at: float
    count: int = 1
    name: str = ""
    """Name of the Event object; "" before the first write."""
    written_at: float = 0.0
    is_waiting: bool = True


@dataclass
class _Waiting:
    new: deque[Series] = field(default_factory=deque)
    repeated: list[tuple[float, int, Series]] = field(default_factory=list)
    """A heap of (due time, serial number, series)."""


class EventBook:
    """The events of one component."""

    def __init__(
        self, now: float, *, burst: int = 25, per_second: float = 5.0, repeat_s: float = 10.0
    ) -> None:
        """`repeat_s`: minimum seconds between two writes of one event's count."""
        self._burst = burst
        self._per_second = per_second
        self._repeat_s = repeat_s
        self._tokens = float(burst)
        self._refilled_at = now
        self._swept_at = now
        self._serial = 0
        self._series: dict[Occurrence, Series] = {}
        self._later: deque[tuple[float, Iterator[Occurrence]]] = deque(maxlen=_LATER_MAX)
        # In order of priority.
        self._waiting = {rank: _Waiting() for rank in _Rank}

    def observe(self, occurrence: Occurrence, now: float) -> Occurrence | None:
        """Record an occurrence; return the occurrence dropped for lack of room, if any."""
        self._sweep(now)
        series = self._series.get(occurrence)
        if series is not None and now - series.last_at < SERIES_S:
            series.count += 1
            series.last_at = now
            self._schedule_repeat(series)
            return None
        series = Series(occurrence, first_at=now, last_at=now)
        self._series[occurrence] = series
        self._waiting[_rank(occurrence)].new.append(series)
        if sum(len(waiting.new) for waiting in self._waiting.values()) <= PENDING_MAX:
            return None
        dropped = self._drop()
        self.forget(dropped)
        return dropped.occurrence

    def _drop(self) -> Series:
        """Drop the oldest minor event, else the oldest Normal event, else the newest warning."""
        for rank in (_Rank.MINOR, _Rank.NORMAL):
            if self._waiting[rank].new:
                return self._waiting[rank].new.popleft()
        return self._waiting[_Rank.WARNING].new.pop()

    def observe_later(self, occurrences: Iterator[Occurrence], now: float) -> None:
        """Record occurrences of now that are written only while no other event waits.

        The iterator is read one by one at each write, so occurrences that are never written cost
        nothing.
        """
        self._later.append((now, occurrences))

    def take(self, now: float) -> Series | None:
        """Return the next event to write. If it has no name, create it; else update its count."""
        self._refill(now)
        if self._tokens < 1.0:
            return None
        series = self._next(now)
        if series is not None:
            self._tokens -= 1.0
            series.is_waiting = False
            series.written_at = now
        return series

    def wait_s(self, now: float) -> float | None:
        """Return the seconds until `take` returns an event; None: not before the next `observe`."""
        self._refill(now)
        token_s = max(0.0, (1.0 - self._tokens) / self._per_second)
        if self._later or any(waiting.new for waiting in self._waiting.values()):
            return token_s
        dues = [waiting.repeated[0][0] for waiting in self._waiting.values() if waiting.repeated]
        return max(token_s, min(dues) - now) if dues else None

    def forget(self, series: Series) -> None:
        """Make the next occurrence a new event, because this event could not be written."""
        if self._series.get(series.occurrence) is series:
            del self._series[series.occurrence]

    def _schedule_repeat(self, series: Series) -> None:
        if series.is_waiting:
            return  # the pending write will contain this count
        series.is_waiting = True
        self._serial += 1
        entry = (series.written_at + self._repeat_s, self._serial, series)
        heapq.heappush(self._waiting[_rank(series.occurrence)].repeated, entry)

    def _next(self, now: float) -> Series | None:
        for waiting in self._waiting.values():
            if waiting.new:
                return waiting.new.popleft()
        for waiting in self._waiting.values():
            while waiting.repeated and waiting.repeated[0][0] <= now:
                series = heapq.heappop(waiting.repeated)[2]
                if self._series.get(series.occurrence) is series:  # else forgotten meanwhile
                    return series
        return self._next_of_later(now)

    def _next_of_later(self, now: float) -> Series | None:
        while self._later:
            at, occurrences = self._later[0]
            occurrence = next(occurrences, None) if now - at < _LATE_S else None
            if occurrence is None:
                self._later.popleft()
            elif occurrence not in self._series:
                series = self._series[occurrence] = Series(occurrence, first_at=at, last_at=at)
                return series
        return None

    def _refill(self, now: float) -> None:
        grown = self._tokens + (now - self._refilled_at) * self._per_second
        self._tokens = min(float(self._burst), grown)
        self._refilled_at = now

    def _sweep(self, now: float) -> None:
        if now - self._swept_at < SERIES_S:
            return
        self._swept_at = now
        for occurrence, series in list(self._series.items()):
            if not series.is_waiting and now - series.last_at >= SERIES_S:
                del self._series[occurrence]
