"""The walk over the queue tree: items of queues, best queue first, from the root down.

The work list of the actions uses it for jobs, the solver for victims. The key of a queue is
computed again after each item taken from it, because its holdings change. Other keys stay valid.
A queue without siblings that have items needs no key.
"""

import heapq
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from bindery.scheduler.model.jobs import NO_ROW, Job
from bindery.scheduler.model.verdicts import SortKey
from bindery.scheduler.planning.view import PlanningView

_ROOT = NO_ROW
Item = TypeVar("Item")


def serving_key(session: PlanningView, row: int, job: Job) -> SortKey:
    """Return the key of the queue at `row`; the queue with the smallest key is served next."""
    return (*session.calls.queue_key(row, job), *_age(session, row))


def victim_key(session: PlanningView, row: int, job: Job, released: Mapping[int, int]) -> SortKey:
    """Return the key of the queue at `row`; the queue with the largest loses the next victim."""
    return (*session.calls.victim_key(row, job, released), *_age(session, row))


def _age(session: PlanningView, row: int) -> SortKey:
    """Return the tie-break between queues: the older queue is served first."""
    entry = session.state.queues.entries[row]
    return entry.created, entry.name


class QueueWalk(ABC, Generic[Item]):
    """Iterates over the items of queues in the order of the tree. Subclasses have the items."""

    def __init__(self, chains: Sequence[Sequence[int]]) -> None:
        self._chains = chains
        """Queue row -> its row and the rows above it, up to the top."""
        self._below: defaultdict[int, list[tuple[SortKey, int]]] = defaultdict(list)
        """Queue row, or _ROOT -> heap of the queues below it that have items."""

    def __iter__(self) -> Iterator[Item]:
        """Yield the next item until none is left."""
        while self._below[_ROOT]:
            path, row = [], _ROOT
            while not self._has(row):
                path.append(row)
                _, row = self._below[row][0]
            yield self._pop(row)
            for above in reversed(path):
                self._settle(above)

    @abstractmethod
    def _has(self, row: int) -> bool:
        """Return whether the queue at `row` has items of its own left."""

    @abstractmethod
    def _first(self, row: int) -> Item:
        """Return the next item of the queue at `row`, which must not be empty."""

    @abstractmethod
    def _pop(self, row: int) -> Item:
        """Take the next item of the queue at `row`."""

    @abstractmethod
    def _key(self, row: int, item: Item) -> SortKey:
        """Return the key of the queue at `row`; its next item, or the next below it, is `item`."""

    def _plant(self, rows: Iterable[int]) -> None:
        """Add the queues `rows`, and all queues above them, to the tree, lowest queues first."""
        chains = [self._chains[row] for row in rows]
        parents = {row: above for chain in chains for row, above in pairwise((*chain, _ROOT))}
        depth = {row: len(chain) - i for chain in chains for i, row in enumerate(chain)}
        siblings = Counter(parents.values())
        for row in sorted(parents, key=lambda row: (-depth[row], row)):
            above = parents[row]
            # Keys take most of the time of a short list.
            key = self._queue_key(row) if siblings[above] > 1 else ()
            self._below[above].append((key, row))
        for heap in self._below.values():
            heapq.heapify(heap)

    def _settle(self, above: int) -> None:
        """Move the first queue below `above` to its new position after an item was taken."""
        heap = self._below[above]
        _, row = heap[0]
        if not self._has(row) and not self._below[row]:
            heapq.heappop(heap)
        elif len(heap) > 1:
            heapq.heapreplace(heap, (self._queue_key(row), row))

    def _queue_key(self, row: int) -> SortKey:
        best = row
        while not self._has(best):
            _, best = min(self._below[best])
        return self._key(row, self._first(best))
