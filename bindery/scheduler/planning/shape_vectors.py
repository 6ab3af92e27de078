"""The nodes for one pod shape: a mask and a score vector over nodes, updated with the plan.

All vectors are in *position* order, nodes sorted by name: ties go to the first name, so the same
input gives the same plan. `placement` makes them and shares them between equal pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, ge

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.nominations import Nominated
from bindery.scheduler.model.row_rules import Combined
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.planning.view import PlanningView
from bindery.scheduler.plugins.interface import nodes as points

_NOWHERE = -np.inf


@dataclass(frozen=True, slots=True)
class Place:
    """A node for a pod."""

    row: int
    fits_now: bool
    """False: it fits only after pending releases."""


class ShapeVectors:
    """Scores of one shape over all positions, updated when nodes change."""

    def __init__(
        self,
        session: PlanningView,
        shape: Shape,
        allowed: BoolColumn,
        rooms: Sequence[points.NodeRoom],
        bonus: NDArray[np.float64] | None = None,
        nominated: Nominated | None = None,
    ) -> None:
        """`bonus`: node row -> what is added to its score. `nominated`: the pods that count."""
        self._bonus = bonus
        self._nominated = nominated
        self._session = session
        self._shape = shape
        self._allowed = allowed[session.order]
        """bool over positions: nodes that pass every filter."""
        self.now: NDArray[np.float64] = np.full(len(session.order), _NOWHERE)
        """Score by position; minus infinity where the pod does not fit into idle room."""
        self._later: BoolColumn = np.zeros(len(session.order), dtype=np.bool_)
        """Position -> whether the pod fits after all pending releases."""
        self._rooms = rooms
        self._seen = len(session.node_ledger.touched)
        candidates = np.flatnonzero(self._allowed)
        self._refresh(candidates)

    def best(self, rules: Combined | None = None, *, may_wait: bool = True) -> Place | None:
        """Return the best place for one more pod; None if it fits nowhere.

        `rules`: the pod's rules about other pods. `may_wait`: plugins may prefer room that is being
        released to idle room.
        """
        self._catch_up()
        if not len(self.now):
            return None
        now, later = self.now, self._later
        is_releasing = self._session.is_releasing
        if rules is not None:
            now = np.where(rules.now, now, _NOWHERE)
            if rules.scores is not None:
                now += rules.scores
            if is_releasing:
                later = later & rules.later
        position = int(now.argmax())
        # Without idle room, any room that is being released will do.
        if now[position] == _NOWHERE:
            return self._best_later(later, rules) if is_releasing else None
        row = int(self._session.order[position])
        place = self._worth_waiting(row, later, rules) if may_wait and is_releasing else None
        return place or Place(row, True)

    def at(self, row: int, rules: Combined | None = None) -> Place | None:
        """Return the node at `row` as a place for one more pod; None if it does not fit there."""
        self._catch_up()
        position = self._session.position[row]
        if self.now[position] != _NOWHERE and (rules is None or rules.now[position]):
            return Place(row, True)
        fits_later = self._later[position] and (rules is None or rules.later[position])
        return Place(row, False) if fits_later else None

    def fitting(self, *, later: bool) -> NDArray[np.intp]:
        """Return the rows where one more pod fits now, or after all pending releases."""
        self._catch_up()
        fits = self._later if later else self.now != _NOWHERE
        return np.asarray(self._session.order[fits])

    def exclude(self, row: int) -> None:
        """Exclude the node at `row` from now on."""
        position = self._session.position[row]
        self._allowed[position] = False
        self._later[position] = False
        self.now[position] = _NOWHERE

    def readmit(self, row: int) -> None:
        """Undo `exclude`."""
        position = self._session.position[row]
        self._allowed[position] = True
        self._refresh(np.array([position]))

    def _worth_waiting(self, row: int, later: BoolColumn, rules: Combined | None) -> Place | None:
        """Return the place that plugins prefer to wait for, although the pod fits at `row` now."""
        rows = self._session.order[later]
        better = self._session.packing.worth_waiting(self._shape, row, rows)
        if better is None:
            return None
        wanted = np.zeros(len(later), dtype=np.bool_)
        wanted[self._session.position[rows[better]]] = True
        return self._best_later(wanted, rules)

    def _best_later(self, wanted: BoolColumn, rules: Combined | None) -> Place | None:
        """Return the best of the `wanted` positions (mask), after pending releases."""
        session = self._session
        rows = session.order[wanted]
        if not len(rows):
            return None
        scores = self._scores(rows)
        if rules is not None and rules.scores is not None:
            scores = scores + rules.scores[wanted]
        return Place(int(rows[scores.argmax()]), False)

    def _scores(self, rows: Rows) -> NDArray[np.float64]:
        scores = self._session.calls.scores(self._shape, rows)
        return scores if self._bonus is None else scores + self._bonus[rows]

    def _catch_up(self) -> None:
        touched = self._session.node_ledger.touched
        if self._seen == len(touched):  # no operation since the last call
            return
        positions = self._session.position[touched[self._seen :]]
        self._seen = len(touched)
        if len(positions) > 1:
            positions = np.unique(positions)
        self._refresh(positions[self._allowed[positions]])

    def _refresh(self, positions: NDArray[np.intp]) -> None:
        if not len(positions):
            return
        session, rows = self._session, self._session.order[positions]
        differs_later = session.is_releasing or session.node_ledger.has_kept
        fits, fits_later = self._fits(rows, differs_later=differs_later)
        for room in self._rooms:
            if fits.any():
                fits &= room.has_room(session, self._shape, rows, False)
            if differs_later and fits_later.any():
                fits_later &= room.has_room(session, self._shape, rows, True)
        if not differs_later:
            fits_later = fits
        self._later[positions] = fits_later
        self.now[positions] = _NOWHERE
        if fits.any():  # on a full cluster nothing fits, and scores are the largest cost here
            self.now[positions[fits]] = self._scores(rows[fits])

    def _fits(self, rows: Rows, *, differs_later: bool) -> tuple[BoolColumn, BoolColumn]:
        """Return masks of `rows`: room for the request now, and later if `differs_later`."""
        request, nodes = self._shape.request, self._session.state.nodes
        if len(rows) == 1 and self._nominated is None:
            return self._fits_on(int(rows[0]), differs_later=differs_later)
        all_idle = nodes.idle
        fits = np.ones(len(rows), dtype=np.bool_)
        fits_later = fits.copy()
        for index, amount in nodes.demands(request, rows):
            idle = all_idle[index, rows]
            if self._nominated is not None:
                idle = idle - self._nominated.amounts[index, rows]
            if differs_later:
                future = idle + nodes.releasing[index, rows] - nodes.pipelined[index, rows]
                fits_later &= future >= amount
                # Promised room is not idle for others: `future` is smaller where it was promised.
                idle = np.minimum(idle, future)
            else:
                fits_later &= idle >= amount
            fits &= idle >= amount
        return fits, fits_later

    def _fits_on(self, row: int, *, differs_later: bool) -> tuple[BoolColumn, BoolColumn]:
        """Return the same for one row: the usual case, after each operation on a node."""
        nodes = self._session.state.nodes
        request = nodes.demand(row, self._shape.request)
        at = list(request.indices)
        idle = nodes.idle[:, row][at].tolist()
        fits = all(map(ge, idle, request.amounts))
        if not differs_later:
            return np.array([fits]), np.array([fits])
        coming = (nodes.releasing[:, row] - nodes.pipelined[:, row])[at].tolist()
        fits_later = all(map(ge, map(add, idle, coming), request.amounts))
        # Promised room is not idle for others: there is less later where it was promised.
        return np.array([fits and fits_later]), np.array([fits_later])
