"""The nodes that rules about other pods open and close for pods of one shape, as the plan goes on.

A plugin with a ledger over domains returns them (plugins/interface/nodes.py). Placement combines
them with free room. One placement may change many rows, so the vectors of room do not contain them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.verdicts import NodeFailure

T = TypeVar("T")


class RowRules(Protocol):
    """The rules of one plugin for one shape, over node rows. Valid for one session."""

    @property
    def version(self) -> int:
        """Grows with each change of the other members."""

    def open_now(self) -> BoolColumn:
        """Return a mask of the rows on which a pod may be placed now. Do not write to it."""

    def open_later(self) -> BoolColumn:
        """Return a mask of the rows that are open after all releasing pods have gone."""

    def scores(self) -> NDArray[np.float64] | None:
        """Return the scores of the rows; None if there are none."""

    def failures(self) -> Iterable[NodeFailure]:
        """Return the reasons against nodes, after all releasing pods have gone."""


class ClosedRows:
    """Rules that close some rows, whatever the plan does."""

    version = 0

    def __init__(self, row_count: int, closed: Iterable[int], reason: str) -> None:
        """Close the rows `closed`. `reason`: see `NodeFailure`."""
        self._closed: BoolColumn = np.zeros(row_count, dtype=np.bool_)
        self._closed[list(closed)] = True
        self._reason = reason

    def open_now(self) -> BoolColumn:
        """Return a mask of the other rows."""
        return ~self._closed

    def open_later(self) -> BoolColumn:
        """Return the same mask."""
        return ~self._closed

    def scores(self) -> NDArray[np.float64] | None:
        """Return None: these rules score nothing."""
        return None

    def failures(self) -> Iterable[NodeFailure]:
        """Return the reason against the closed rows."""
        return (NodeFailure(self._reason, self._closed),)


class Combined:
    """The rules of all plugins for one shape, computed again only after a change."""

    def __init__(self, rules: Sequence[tuple[RowRules, float]], order: NDArray[np.intp]) -> None:
        """Combine `rules`, each with the factor of its scores. `order`: position -> node row."""
        self._rules = [each for each, _ in rules]
        self._weights = [weight for _, weight in rules]
        self._order = order
        self._now = _Cached(lambda: self._mask([each.open_now() for each in self._rules]))
        self._later = _Cached(lambda: self._mask([each.open_later() for each in self._rules]))
        self._scores = _Cached(self._weighted_scores)

    @property
    def now(self) -> BoolColumn:
        """Position -> whether a pod may be placed there now."""
        return self._now.get(self._version)

    @property
    def later(self) -> BoolColumn:
        """Position -> whether a pod may be placed there after all releasing pods have gone."""
        return self._later.get(self._version)

    @property
    def scores(self) -> NDArray[np.float64] | None:
        """Position -> score; None if there are none."""
        return self._scores.get(self._version)

    def failures(self) -> Iterable[NodeFailure]:
        """Return the reasons of all plugins against nodes."""
        return (failure for rules in self._rules for failure in rules.failures())

    @property
    def _version(self) -> int:
        return sum(rules.version for rules in self._rules)

    def _mask(self, masks: Sequence[BoolColumn]) -> BoolColumn:
        return np.asarray(np.logical_and.reduce(masks)[self._order])

    def _weighted_scores(self) -> NDArray[np.float64] | None:
        scores = [
            scores * weight
            for rules, weight in zip(self._rules, self._weights, strict=True)
            if weight and (scores := rules.scores()) is not None
        ]
        return np.sum(scores, axis=0)[self._order] if scores else None


class _Cached(Generic[T]):
    """A value that is made again when it is needed for another version."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: tuple[int, T] | None = None

    def get(self, version: int) -> T:
        if self._made is None or self._made[0] != version:
            self._made = version, self._make()
        return self._made[1]
