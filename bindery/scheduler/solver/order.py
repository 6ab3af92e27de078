"""In which order victims go: from the queue that is served last, there the last job first.

Asked by the search. Queues are compared from the top down, as when jobs are served, only the other
way round (KAI-Scheduler v0.17, plugins/proportion/queue_order with planned victims): what has been
evicted in the plan at hand counts, and so does what would go next.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.verdicts import SortKey
from bindery.scheduler.planning.queue_walk import QueueWalk
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.victims import VictimTable

_FEW = 64
"""So many units are sorted by themselves, as those of one node; more are picked from all."""
_BLOCK = 1024


def victims(session: Session, table: VictimTable, among: BoolColumn) -> Iterator[int]:
    """Yield the units of `among` (mask) in the order in which they go.

    Mostly the first few are enough, so no more are looked at than are asked for.
    """
    waiting = {queue: _Line(units) for queue, units in _by_queue(table, among)}
    waiting = {queue: line for queue, line in waiting.items() if line}
    if len(waiting) == 1:
        yield from next(iter(waiting.values()))
    elif waiting:
        yield from _Walk(session, table, waiting)


def _by_queue(table: VictimTable, among: BoolColumn) -> Iterator[tuple[int, Iterator[int]]]:
    """Yield the units of `among` of each queue, in their order."""
    if np.count_nonzero(among) > _FEW:
        for queue, ranked in table.by_queue.items():
            yield queue, _picked(ranked, among)
        return
    few = np.flatnonzero(among)
    few = few[np.argsort(table.place[few])]
    queues = table.queue[few]
    for queue in np.unique(queues).tolist():
        yield queue, iter(few[queues == queue].tolist())


def _picked(ranked: NDArray[np.intp], among: BoolColumn) -> Iterator[int]:
    for start in range(0, len(ranked), _BLOCK):
        block = ranked[start : start + _BLOCK]
        yield from block[among[block]].tolist()


class _Line(Iterator[int]):
    """Units of one queue, of which the first can be looked at before it is taken."""

    def __init__(self, units: Iterator[int]) -> None:
        self._units = units
        self.first = next(units, None)

    def __bool__(self) -> bool:
        return self.first is not None

    def __next__(self) -> int:
        if self.first is None:
            raise StopIteration
        taken, self.first = self.first, next(self._units, None)
        return taken


@dataclass(frozen=True, slots=True)
class _Last:
    """Orders the other way round."""

    key: SortKey

    def __lt__(self, other: "_Last") -> bool:
        return self.key > other.key


class _Walk(QueueWalk[int]):
    """Units of several queues. `waiting`: queue row -> its units."""

    def __init__(self, session: Session, table: VictimTable, waiting: dict[int, _Line]) -> None:
        super().__init__(session.queue_ledger.chains)
        self._session = session
        self._table = table
        self._waiting = waiting
        self._plant(list(waiting))

    def _has(self, row: int) -> bool:
        return bool(self._waiting.get(row))

    def _first(self, row: int) -> int:
        first = self._waiting[row].first
        assert first is not None, "the walk asks only where there is one"
        return first

    def _pop(self, row: int) -> int:
        return next(self._waiting[row])

    def _key(self, row: int, item: int) -> SortKey:
        shares, entry = self._session.shares, self._session.state.queues.entries[row]
        without_it = dict(enumerate((-self._table.held_from(item)).tolist()))
        place = (
            shares.is_over(row),
            not shares.fits_quota(row, {}),
            -entry.priority,
            shares.is_undeserving(row, {}),
            shares.dominant(row, without_it),
            shares.dominant(row),
            shares.size(row),
            entry.created,
            entry.name,
        )
        return (_Last(place),)
