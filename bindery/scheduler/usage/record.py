"""The scheduler's own record of what queues held: it needs nothing else to be installed.

Told once a cycle what queues hold, it sums that up over slices of time; `recordkeeper.py` stores
it. What is held at a cycle counts for the time since the last one. Only time that was observed
counts: between `interrupt` and the next cycle nothing is held and nothing offered. Never more than
`MOST_SLICES` slices are kept, however long the window is. A cycle accounts in a thread of its own
while the keeper reads and writes in the event loop's, so each does it whole.
"""

from collections.abc import Callable
from threading import RLock

import numpy as np

from bindery.scheduler.model.resources import PODS
from bindery.scheduler.usage.formula import Amounts, Decay, History, Moment, places

SLICES = 32
"""Into how many slices the window is cut: of a week each has five hours and a quarter."""
MOST_SLICES = 64
"""More, which come of restarts, are joined."""


class UsageRecord:
    """What queues held within the horizon of `decay`."""

    def __init__(self, decay: Decay) -> None:
        self.decay = decay
        self.history = History.empty()
        """The record's own: the arrays of its newest slice change with each moment."""
        self._slice_s = decay.horizon_s / SLICES
        self._lock = RLock()
        self._seen_at: float | None = None
        """When queues were last looked at, seconds since the epoch."""

    def configure(self, decay: Decay) -> None:
        """Count the past by `decay` from now on; what a shorter window left out stays forgotten."""
        with self._lock:
            self.decay = decay
            self._slice_s = decay.horizon_s / SLICES

    def account(self, moment: Moment) -> Amounts:
        """Count what is held for the time since the last moment; return usage up to now.

        [resource, queue], as parts of capacity. A clock that went back counts nothing, and what
        was seen at a time that is yet to come is forgotten.
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

    def told(self, tell: Callable[[History], str]) -> str:
        """Return what `tell` makes of the history, which does not change meanwhile."""
        with self._lock:
            return tell(self.history)

    def interrupt(self) -> None:
        """Stop counting until the next cycle: nobody has looked meanwhile."""
        with self._lock:
            self._seen_at = None

    def forget(self) -> None:
        """Begin anew."""
        with self._lock:
            self.history = History.empty()
            self.interrupt()

    def precede(self, earlier: History) -> None:
        """Take in what was recorded before this process began to."""
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
        """Return whether time from `since` on still belongs to the newest slice."""
        return bool(history.end[-1] == since and now - history.start[-1] <= self._slice_s)


def _extended(history: History, new: History) -> History:
    """Return `history`, changed: its newest slice is prolonged by the only one of `new`."""
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
