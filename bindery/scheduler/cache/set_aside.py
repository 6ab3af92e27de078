"""Jobs that are not planned for a while, because an attempt took too long.

Owned by failures.py. Each time the job waits twice as long and then gets twice the time, up to
bounds. So a large gang is planned in the end, and a gang that no attempt can plan costs ever less.
Jobs that are set aside share their time with the others of their namespace.
"""

from collections import Counter
from dataclasses import dataclass

from bindery.api.times import timestamp
from bindery.scheduler.model.jobs import JobKey

_FIRST_WAIT_S = 10.0
_LONGEST_WAIT_S = 900.0
_MOST_DOUBLINGS = 4
"""A job gets at most sixteen times the configured time."""
_MAKING_ROOM = 5.0
"""Making room for a job may take this many times as long, but never longer than all doublings."""
_LEAST_PART = 0.125
"""A job gets at least this part of the configured time, however many others are set aside."""


@dataclass(frozen=True, slots=True)
class _Entry:
    times: int
    """How often in a row an attempt took too long."""
    until: float
    """Seconds since the epoch."""
    why: str


class SetAside:
    """The jobs that are set aside. `attempt_s`: the configured time for one attempt."""

    def __init__(self, attempt_s: float) -> None:
        self.attempt_s = attempt_s
        self._entries: dict[JobKey, _Entry] = {}
        self._in_namespace: Counter[str] = Counter()

    def limit_s(self, job: JobKey) -> float:
        """Return how long an attempt for `job` may take."""
        entry = self._entries.get(job)
        others = self._in_namespace[job.namespace] - (entry is not None)
        times = min(entry.times, _MOST_DOUBLINGS) if entry is not None else 0
        return self.attempt_s * max(_LEAST_PART, (1 << times) / (1 + others))

    def making_room_s(self, job: JobKey) -> float:
        """Return how long an attempt to make room for `job` may take."""
        return min(_MAKING_ROOM * self.limit_s(job), self.attempt_s * (1 << _MOST_DOUBLINGS))

    def has(self, job: JobKey) -> bool:
        """Return whether an attempt for `job` took too long, and none has succeeded since."""
        return job in self._entries

    def add(self, job: JobKey, limit_s: float, now: float) -> str:
        """Set `job` aside after an attempt that took longer than `limit_s`; return the message."""
        known = self._entries.get(job)
        times = 1 + (known.times if known is not None else 0)
        until = now + min(_FIRST_WAIT_S * 2 ** min(times - 1, 30), _LONGEST_WAIT_S)
        why = (
            f"planning it took longer than {limit_s:g} s, so that other jobs go first: "
            f"it is tried again at {timestamp(until)}"
        )
        if known is None:
            self._in_namespace[job.namespace] += 1
        self._entries[job] = _Entry(times, until, why)
        return why

    def why(self, job: JobKey, now: float) -> str | None:
        """Return why `job` is not planned at `now`; None if it may be planned."""
        entry = self._entries.get(job)
        return entry.why if entry is not None and entry.until > now else None

    def expire(self, now: float) -> None:
        """Forget the jobs that could have been planned again for a while and were not too long."""
        for job, entry in list(self._entries.items()):
            if entry.until + _LONGEST_WAIT_S <= now:
                self.forget(job)

    def forget(self, job: JobKey) -> None:
        """Forget a job that has changed, was planned or is deleted."""
        if self._entries.pop(job, None) is not None:
            self._in_namespace[job.namespace] -= 1
            if not self._in_namespace[job.namespace]:
                del self._in_namespace[job.namespace]
