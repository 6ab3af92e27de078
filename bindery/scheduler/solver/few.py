"""The last search for a claim with few possible victims: every set of them, the smallest first.

The search node by node takes victims in their order and takes no choice back. So it may take a
queue to its quota with one gang, although another one would have made the room. Tried when that
search has found no plan; so it changes no plan that exists.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from bindery.scheduler.planning.statement import Savepoint
from bindery.scheduler.solver.bounds import can_never_fit
from bindery.scheduler.solver.search import Search

_MOST_UNITS = 6
"""With more possible victims, their sets are not tried: each unit doubles them."""
_MOST_PODS = 64
"""The most pods of a claim that is placed again for each set."""


class FewVictims(Search):
    """One attempt to make room by any set of the units that may go."""

    def run(self) -> bool:
        """Write an acceptable plan into the Statement; return False if there is none.

        If it returns False, the caller must undo the Statement.
        """
        units = np.flatnonzero(self._left).tolist()
        if not 0 < len(units) <= _MOST_UNITS or len(self._claim.tasks) > _MOST_PODS:
            return False
        if not self._is_possible():
            return False
        return any(self._goes(chosen) for chosen in self._sets(units))

    def _sets(self, units: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the sets of `units` that can go together, those with the fewest pods first."""
        sets = [each for size in range(1, len(units) + 1) for each in combinations(units, size)]
        sets.sort(key=lambda each: sum(len(self._table.units[i].tasks) for i in each))
        for each in sets:
            cores = [i for i in each if self._table.units[i].is_core]
            extras = {j for i in cores for j in range(self._table.first_of_job(i), i)}
            if extras.union(self._to_empty) <= set(each):
                yield each

    def _goes(self, chosen: Sequence[int]) -> bool:
        """Evict `chosen` and place the claim; return whether that is an acceptable plan."""
        self._go_back(Savepoint(0), 0)
        going = np.zeros(len(self._table.units), dtype=np.bool_)
        going[list(chosen)] = True
        if can_never_fit(self._context, going) is not None:
            return False
        order = self._by_loss(chosen)
        return (
            all(self._left[i] and self._evict(i) for i in order)
            and self._fits()
            and self._is_acceptable()
        )
