"""Past usage of queues as a part of the capacity: arithmetic on arrays.

The formula is KAI-Scheduler's (v0.17, time-based share):

    usage = sum(held * 0.5 ** (age / half-life)) / sum(capacity * 0.5 ** (age / half-life))

over the window, for each queue and resource. `record.py` has the history, `fairness/division.py`
uses the result. Invariant: with constant capacity, the usage of siblings is at most 1 in total.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Amounts = NDArray[np.float64]

NEGLIGIBLE_HALF_LIVES = 10
"""Older usage has a weight below 1/1000 and is treated as outside the window."""


@dataclass(frozen=True)
class Moment:
    """The amounts of queues at one time. `resources` and `queues` name the axes of the arrays."""

    now: float
    """Seconds since the epoch."""
    queues: Sequence[str]
    resources: Sequence[str]
    held: Amounts
    """[resource, queue], ledger units, with all queues below."""
    capacity: Amounts
    """[resource], ledger units: the total amount to divide."""
    gone: frozenset[str] = frozenset()
    """The queues without an object: deleted, or only named by jobs."""


@dataclass(frozen=True)
class Decay:
    """The weight of the past."""

    window_s: float
    half_life_s: float | None = None

    @property
    def horizon_s(self) -> float:
        """Age from which usage has no weight."""
        if self.half_life_s is None:
            return self.window_s
        return min(self.window_s, NEGLIGIBLE_HALF_LIVES * self.half_life_s)

    def weights(self, start: Amounts, end: Amounts, now: float) -> Amounts:
        """Return the weight of each time slice [slice], 0 to 1.

        This is the mean of `0.5 ** (age / half-life)` from `start` to `end` (seconds since the
        epoch). Parts outside the window or in the future have weight 0.
        """
        youngest = np.clip(now - end, 0.0, self.horizon_s)
        oldest = np.clip(now - start, 0.0, self.horizon_s)
        if self.half_life_s is None:
            counted = oldest - youngest
        else:
            # The integral of the weight over the ages of the slice.
            rate = np.log(2.0) / self.half_life_s
            counted = (np.exp(-rate * youngest) - np.exp(-rate * oldest)) / rate
        # A slice of length 0 would divide by 0; it has weight 0.
        return np.asarray(counted / np.maximum(end - start, np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class History:
    """The amounts of queues in time slices, oldest first.

    `queues`, `resources`: names, the order of the axes. `start`, `end`: [slice], seconds since the
    epoch. `capacity`: [slice, resource], `held`: [slice, resource, queue] with all queues below;
    both in ledger units times seconds.
    """

    queues: tuple[str, ...]
    resources: tuple[str, ...]
    start: Amounts
    end: Amounts
    capacity: Amounts
    held: Amounts

    @staticmethod
    def empty() -> "History":
        """Return an empty history."""
        none = np.zeros(0)
        return History((), (), none, none, np.zeros((0, 0)), np.zeros((0, 0, 0)))

    def __len__(self) -> int:
        return len(self.start)

    def parts(self, decay: Decay, now: float) -> Amounts:
        """Return past usage as a part of capacity [resource, queue]; 0 without capacity."""
        weights = decay.weights(self.start, self.end, now)
        held = np.tensordot(weights, self.held, axes=1)
        capacity = (weights @ self.capacity)[:, None]
        return np.divide(held, capacity, out=np.zeros_like(held), where=capacity > 0)

    def within(self, after: float, before: float) -> "History":
        """Return the slices that end after `after` and start before `before`."""
        is_within = (self.end > after) & (self.start < before)
        return self if is_within.all() else self._choose(np.flatnonzero(is_within))

    def coarsened(self, most: int) -> "History":
        """Return a history of at most `most` slices, by joining the shortest neighbours."""
        history = self
        while len(history) > max(most, 1):
            span = history.end[1:] - history.start[:-1]
            history = history.joined(int(np.argmin(span)))
        return history

    def arranged(self, queues: tuple[str, ...], resources: tuple[str, ...]) -> "History":
        """Return a copy with other axes; queues and resources not named are left out."""
        rows, columns = places(self.resources, resources), places(self.queues, queues)
        known_rows, known_columns = np.flatnonzero(rows >= 0), np.flatnonzero(columns >= 0)
        slices = np.arange(len(self))
        capacity = np.zeros((len(self), len(resources)))
        held = np.zeros((len(self), len(resources), len(queues)))
        capacity[:, known_rows] = self.capacity[:, rows[known_rows]]
        held[np.ix_(slices, known_rows, known_columns)] = self.held[
            np.ix_(slices, rows[known_rows], columns[known_columns])
        ]
        return History(queues, resources, self.start.copy(), self.end.copy(), capacity, held)

    def followed_by(self, later: "History") -> "History":
        """Return one history of `self` and `later`; `later` starts after the end of `self`."""
        queues = tuple(dict.fromkeys((*later.queues, *self.queues)))
        resources = tuple(dict.fromkeys((*later.resources, *self.resources)))
        one, two = self.arranged(queues, resources), later.arranged(queues, resources)
        return History(
            queues,
            resources,
            np.concatenate([one.start, two.start]),
            np.concatenate([one.end, two.end]),
            np.concatenate([one.capacity, two.capacity]),
            np.concatenate([one.held, two.held]),
        )

    def joined(self, at: int) -> "History":
        """Return the history with the slices `at` and `at + 1` as one."""
        joined = self._choose(np.delete(np.arange(len(self)), at))
        # If the clock was set back, slices are out of order.
        joined.start[at] = min(self.start[at], self.start[at + 1])
        joined.end[at] = max(self.end[at], self.end[at + 1])
        joined.capacity[at] += self.capacity[at]
        joined.held[at] += self.held[at]
        return joined

    def _choose(self, slices: NDArray[np.intp]) -> "History":
        return History(
            self.queues,
            self.resources,
            self.start[slices],
            self.end[slices],
            self.capacity[slices],
            self.held[slices],
        )


def places(names: Sequence[str], wanted: Sequence[str]) -> NDArray[np.intp]:
    """Return the index of each of `wanted` in `names`; -1 if it is not there."""
    place = {name: index for index, name in enumerate(names)}
    return np.array([place.get(name, -1) for name in wanted], dtype=np.intp)
