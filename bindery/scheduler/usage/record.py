"""The scheduler's own record of the amounts of queues, which needs no other installation.

Each cycle adds the amounts of queues to the current time slice, for the time since the previous
cycle. `recordkeeper.py` stores the record. Only observed time counts: between `interrupt` and the
next cycle there is no usage and no capacity. The record has at most `MOST_SLICES` slices for any
window. A cycle writes in its own thread, the keeper reads in the event loop's, so a lock guards it.
"""

from collections.abc import Callable
from threading import RLock

import numpy as np

from bindery.scheduler.model.resources import PODS
from bindery.scheduler.usage.formula import Amounts, Decay, History, Moment, places

SLICES = 32
"""Number of slices of a window; for a week, each has 5.25 hours."""
MOST_SLICES = 64
"""Maximum number of slices; more, as after many restarts, are joined."""


class UsageRecord:
    """The amounts of queues within the horizon of `decay`."""

    def __init__(self, decay: Decay) -> None:
        self.decay = decay
        self.history = History.empty()
        """Private to the record, as each moment changes the arrays of the newest slice."""
        self._slice_s = decay.horizon_s / SLICES
        self._lock = RLock()
        self._seen_at: float | None = None
        """Time of the last moment, seconds since the epoch."""

    def configure(self, decay: Decay) -> None:
        """Use `decay` from now on. Slices that a shorter window dropped do not come back."""
        with self._lock:
            self.decay = decay
            self._slice_s = decay.horizon_s / SLICES

    def account(self, moment: Moment) -> Amounts:
        """Add `moment` for the time since the last one; return usage until now.

        The result is [resource, queue], as parts of capacity. If the clock was set back, nothing is
        added, and slices in the future are dropped.
        """
        with self._lock:
            if self._seen_at is not None and moment.now > self._seen_at:
                self._add(moment, self._seen_at)
            self._seen_at = moment.now
            history = self.history
            rows = places(history.resources, moment.resources)
            columns = places(history.queues, moment.queues)
            known = np.ix_(np.flatnonzero(rows >= 0), np.flatnonzero(columns >= 0))
            usage = np.zeros((len(rows), len(columns)))
            usage[known] = history.parts(self.decay, moment.now)[
                np.ix_(rows[rows >= 0], columns[columns >= 0])
            ]
            return usage

    def encoded(self, encode: Callable[[History], str]) -> str:
        """Return `encode(history)`; the history does not change during the call."""
        with self._lock:
            return encode(self.history)

    def interrupt(self) -> None:
        """Stop counting until the next cycle, as the time until then is not observed."""
        with self._lock:
            self._seen_at = None

    def forget(self) -> None:
        """Drop the history and start again."""
        with self._lock:
            self.history = History.empty()
            self.interrupt()

    def precede(self, earlier: History) -> None:
        """Add an earlier history before that of this process."""
        with self._lock:
            self.history = earlier.followed_by(self.history).coarsened(MOST_SLICES)

    def _add(self, moment: Moment, since: float) -> None:
        history = self.history.within(moment.now - self.decay.horizon_s, moment.now)
        kept = [index for index, name in enumerate(moment.resources) if name != PODS]
        resources = tuple(moment.resources[index] for index in kept)
        elapsed_s = moment.now - since
        new = History(
            queues=tuple(moment.queues),
            resources=resources,
            start=np.array([since]),
            end=np.array([moment.now]),
            capacity=moment.capacity[None, kept] * elapsed_s,
            held=moment.held[None, kept].astype(np.float64) * elapsed_s,
        )
        if len(history) and self._continues(history, since, moment.now):
            self.history = _extended(history, new)
        else:
            self.history = history.followed_by(new).coarsened(MOST_SLICES)

    def _continues(self, history: History, since: float, now: float) -> bool:
        """Return whether the time from `since` to `now` belongs to the newest slice."""
        # Equal floats: `since` is the very end of the slice, unless there was an interruption.
        return bool(history.end[-1] == since and now - history.start[-1] <= self._slice_s)


def _extended(history: History, new: History) -> History:
    """Return `history` with its newest slice extended by the single slice of `new`.

    The arrays are changed in place, which avoids a copy in every cycle.
    """
    queues, resources = history.queues, history.resources
    if not (set(new.queues) <= set(queues) and set(new.resources) <= set(resources)):
        queues = tuple(dict.fromkeys((*queues, *new.queues)))
        resources = tuple(dict.fromkeys((*resources, *new.resources)))
        history = history.arranged(queues, resources)
    if (new.queues, new.resources) != (queues, resources):
        new = new.arranged(queues, resources)
    newest = len(history) - 1
    history.capacity[newest] += new.capacity[0]
    history.held[newest] += new.held[0]
    history.end[newest] = new.end[0]
    return history
