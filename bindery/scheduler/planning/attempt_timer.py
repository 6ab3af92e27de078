"""The time that planning may take for one job at once.

`Session.guarded` starts the timer. Loops whose length users can set call `check`. When the time is
over, the attempt ends with an error and the job is set aside for a while (cache/set_aside.py), so
that one job cannot delay all others. Decision 050.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from bindery.scheduler.cache.set_aside import SetAside
from bindery.scheduler.model.jobs import Job


class AttemptKind(Enum):
    """What an attempt does."""

    ANY = "any"
    MAKING_ROOM = "making room"
    """It comes after free room was given to others, and tries many places for many pods."""


class AttemptTooLongError(Exception):
    """Planning a job took longer than `limit_s` seconds."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"planning it took longer than {limit_s:g} s")
        self.limit_s = limit_s


class AttemptTimer:
    """Measures one attempt at a time.

    `clock`: seconds, never backwards; None: attempts have no limit. `limits`: of each job.
    """

    def __init__(self, clock: Callable[[], float] | None, limits: SetAside) -> None:
        self._clock = clock
        self._limits = limits
        self._job: Job | None = None
        self._limit_s = 0.0
        self._since_s: float | None = None
        self._spent_s: defaultdict[Job, float] = defaultdict(float)
        """Job -> the time of its attempts that have ended."""

    def start(self, job: Job, kind: AttemptKind) -> bool:
        """Start an attempt for `job`; return False if it is a part of one that is under way."""
        if self._clock is None or self._job is not None:
            return False
        limits, is_long = self._limits, kind is AttemptKind.MAKING_ROOM
        self._limit_s = (limits.making_room_s if is_long else limits.limit_s)(job.key)
        self._job, self._since_s = job, self._clock()
        return True

    def stop(self) -> None:
        """End the attempt."""
        if self._clock is not None and self._job is not None and self._since_s is not None:
            self._spent_s[self._job] += self._clock() - self._since_s
        self._job = self._since_s = None

    def has_time(self, job: Job) -> bool:
        """Return whether the attempts for `job` together took less time than one may take.

        If not, its extra pods go on in the next cycle, behind other jobs.
        """
        return self._clock is None or self._spent_s[job] < self._limits.limit_s(job.key)

    def check(self) -> None:
        """Raise AttemptTooLongError if the attempt under way has taken too long."""
        if self._since_s is None or self._clock is None or self._job is None:
            return
        if self._clock() - self._since_s > self._limit_s:
            raise AttemptTooLongError(self._limit_s)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context whose time does not count: its work is for all jobs."""
        since_s, clock = self._since_s, self._clock
        if since_s is None or clock is None:
            yield
            return
        paused_at_s, self._since_s = clock(), None
        try:
            yield
        finally:
            self._since_s = since_s + clock() - paused_at_s
