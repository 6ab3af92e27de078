"""In which order victims go: from the queue that has most of its share, there the last job first.

Asked by the search. Each level of the queue tree is compared from the top down, as when jobs are
served, only the other way round; what has been evicted in the plan at hand counts.
"""

import heapq
from collections.abc import Iterator

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.session import Session
from bindery.scheduler.solver.victims import VictimTable

_Urgency = tuple[float, ...]
"""Smaller goes first: the negative parts of their shares, from the top queue down."""


def victims(session: Session, table: VictimTable, among: BoolColumn) -> Iterator[int]:
    """Yield the chunks of `among` (mask) in the order in which they go.

    A queue's part of its share only shrinks while victims are taken, so one that stands first and
    has not changed is first.
    """
    waiting: list[tuple[_Urgency, int, Iterator[int]]] = []
    for queue, ranked in table.by_queue.items():
        chunks = ranked[among[ranked]]
        if len(chunks):
            entry = (_urgency(session, queue), queue, map(int, chunks))
            waiting.append(entry)
    if len(waiting) == 1:
        yield from waiting[0][2]
        return
    heapq.heapify(waiting)
    while waiting:
        urgency, queue, chunks_left = waiting[0]
        now = _urgency(session, queue)
        if now != urgency:
            heapq.heapreplace(waiting, (now, queue, chunks_left))
            continue
        chunk = next(chunks_left, None)
        if chunk is None:
            heapq.heappop(waiting)
        else:
            yield chunk


def _urgency(session: Session, queue: int) -> _Urgency:
    shares = session.shares
    return tuple(-shares.dominant(row) for row in reversed(session.queue_ledger.chains[queue]))
