"""In which order victims go: from the queue that is served last, there the last job first.

Asked by the search. Queues are compared from the top down, as when jobs are served, only the other
way round (KAI-Scheduler v0.17, plugins/proportion/queue_order with planned victims): what has been
evicted in the plan at hand counts, and so does what would go next.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.plugins.interface import SortKey
from bindery.scheduler.queuewalk import QueueWalk
from bindery.scheduler.session import Session
from bindery.scheduler.solver.victims import VictimTable


def victims(session: Session, table: VictimTable, among: BoolColumn) -> Iterator[int]:
    """Yield the chunks of `among` (mask) in the order in which they go."""
    waiting: dict[int, list[int]] = {}
    for queue, ranked in table.by_queue.items():
        chunks = ranked[among[ranked]]
        if len(chunks):
            waiting[queue] = chunks[::-1].tolist()
    if len(waiting) == 1:
        yield from reversed(next(iter(waiting.values())))
    elif waiting:
        yield from _Walk(session, table, waiting)


@dataclass(frozen=True, slots=True)
class _Last:
    """Orders the other way round."""

    key: SortKey

    def __lt__(self, other: "_Last") -> bool:
        return self.key > other.key


class _Walk(QueueWalk[int]):
    """Chunks of several queues. `waiting`: queue row -> its chunks, the last to go first."""

    def __init__(self, session: Session, table: VictimTable, waiting: dict[int, list[int]]) -> None:
        super().__init__(session.queue_ledger.chains)
        self._session = session
        self._table = table
        self._waiting = waiting
        self._plant(list(waiting))

    def _has(self, row: int) -> bool:
        return bool(self._waiting.get(row))

    def _first(self, row: int) -> int:
        return self._waiting[row][-1]

    def _pop(self, row: int) -> int:
        return self._waiting[row].pop()

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
