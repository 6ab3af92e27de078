"""The nodes that rules about other pods open and close for pods of one shape, as the plan goes on.

A plugin with a ledger over domains returns them (plugins/interface.py). Placement combines them
with free room. One placement may change many rows, so the vectors of room do not contain them.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.verdicts import NodeFailure


class RowRules(Protocol):
    """The rules of one plugin for one shape, over node rows. Valid for one session."""

    @property
    def version(self) -> int:
        """Grows with each change of the other members."""
        ...

    def open_now(self) -> BoolColumn:
        """Return a mask of the rows on which a pod may be placed now. Do not write to it."""
        ...

    def open_later(self) -> BoolColumn:
        """Return a mask of the rows that are open after all releasing pods have gone."""
        ...

    def scores(self) -> NDArray[np.float64] | None:
        """Return the scores of the rows; None if there are none."""
        ...

    def failures(self) -> Iterable[NodeFailure]:
        """Return the reasons against nodes, after all releasing pods have gone."""
        ...


class Combined:
    """The rules of all plugins for one shape, computed again only after a change."""

    def __init__(self, rules: Sequence[tuple[RowRules, float]], order: NDArray[np.intp]) -> None:
        """Combine `rules`, each with the factor of its scores. `order`: position -> node row."""
        self._rules = [each for each, _ in rules]
        self._weights = [weight for _, weight in rules]
        self._order = order
        self._seen = -1
        self._now: BoolColumn = np.empty(0, dtype=np.bool_)
        self._later: BoolColumn = self._now
        self._scores: NDArray[np.float64] | None = None

    @property
    def now(self) -> BoolColumn:
        """Position -> whether a pod may be placed there now."""
        self._catch_up()
        return self._now

    @property
    def later(self) -> BoolColumn:
        """Position -> whether a pod may be placed there after all releasing pods have gone."""
        self._catch_up()
        return self._later

    @property
    def scores(self) -> NDArray[np.float64] | None:
        """Position -> score; None if there are none."""
        self._catch_up()
        return self._scores

    def failures(self) -> Iterable[NodeFailure]:
        """Return the reasons of all plugins against nodes."""
        return (failure for rules in self._rules for failure in rules.failures())

    def _catch_up(self) -> None:
        version = sum(rules.version for rules in self._rules)
        if version == self._seen:
            return
        self._seen = version
        self._now = np.logical_and.reduce([rules.open_now() for rules in self._rules])[self._order]
        later = [rules.open_later() for rules in self._rules]
        self._later = np.logical_and.reduce(later)[self._order]
        scores = [
            scores * weight
            for rules, weight in zip(self._rules, self._weights, strict=True)
            if weight and (scores := rules.scores()) is not None
        ]
        self._scores = np.sum(scores, axis=0)[self._order] if scores else None
