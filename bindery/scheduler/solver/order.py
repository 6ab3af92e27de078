"""The order of victims: the last job of the queue that is served last goes first.

The search calls this. The plugins that order queues for serving order them here too, from the top
down, and the order is reversed (KAI-Scheduler v0.17, plugins/proportion/queue_order with planned
victims). The plan's evictions so far count, and so does the next victim.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.verdicts import SortKey
from bindery.scheduler.planning.queue_walk import QueueWalk, victim_key
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.victims import VictimTable

_FEW = 64
"""Up to this many units, such as those of one node, are sorted; more are picked from the ranking of
all units."""
_BLOCK = 1024
"""How many ranked units are compared with the mask at once."""
_TAKEN, _SPARED = range(2)
"""A queue whose plugin fails comes last: its pods must not go because of an error."""


def victims(session: Session, table: VictimTable, among: BoolColumn) -> Iterator[int]:
    """Yield the units of `among` (mask) in the order of eviction; mostly the first few suffice."""
    yield from _in_turn(session, table, _by_queue(table, among))


def victims_of(session: Session, table: VictimTable, few: NDArray[np.intp]) -> Iterator[int]:
    """Yield the units `few`, such as those of one node, in the order of eviction."""
    yield from _in_turn(session, table, _few_by_queue(table, few))


def _in_turn(
    session: Session, table: VictimTable, lines: Iterable[tuple[int, Iterator[int]]]
) -> Iterator[int]:
    """Yield the units of `lines` (queue row, its units in order) in the order of eviction."""
    waiting = {queue: _Line(units) for queue, units in lines}
    waiting = {queue: line for queue, line in waiting.items() if line}
    if len(waiting) == 1:  # no queues to compare, so no plugin is called
        yield from next(iter(waiting.values()))
    elif waiting:
        yield from _Walk(session, table, waiting)


def _by_queue(table: VictimTable, among: BoolColumn) -> Iterator[tuple[int, Iterator[int]]]:
    """Yield the units of `among` of each queue, in their order."""
    if np.count_nonzero(among) > _FEW:
        for queue, ranked in table.by_queue.items():
            yield queue, _picked(ranked, among)
        return
    yield from _few_by_queue(table, np.flatnonzero(among))


def _few_by_queue(table: VictimTable, few: NDArray[np.intp]) -> Iterator[tuple[int, Iterator[int]]]:
    """Yield the units `few` of each queue, in their order."""
    few = few[np.argsort(table.place[few])]
    units: dict[int, list[int]] = {}
    for index, queue in zip(few.tolist(), table.queue[few].tolist(), strict=True):
        units.setdefault(queue, []).append(index)
    for queue in sorted(units):
        yield queue, iter(units[queue])


def _picked(ranked: NDArray[np.intp], among: BoolColumn) -> Iterator[int]:
    for start in range(0, len(ranked), _BLOCK):
        block = ranked[start : start + _BLOCK]
        yield from block[among[block]].tolist()


class _Line(Iterator[int]):
    """The units of one queue. `first` is the next unit; None at the end."""

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
class _Reversed:
    """Reverses the order of `key`: the queue that is served last loses its pods first."""

    key: SortKey

    def __lt__(self, other: "_Reversed") -> bool:
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
        job = self._table.units[item].job
        released = dict(enumerate(self._table.held_from(item).tolist()))
        with self._session.guarded(job):
            return (_TAKEN, _Reversed(victim_key(self._session, row, job, released)))
        return (_SPARED, self._session.state.queues.entries[row].name)
