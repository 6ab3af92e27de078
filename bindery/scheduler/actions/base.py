"""What an action is, and the work list that actions share."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from bindery.scheduler.ledgers.base import Operation
from bindery.scheduler.model.jobs import NO_ROW, Job
from bindery.scheduler.plugins.interface import SortKey
from bindery.scheduler.session import Session


@dataclass(frozen=True, slots=True)
class Commit:
    """What a committed Statement did, and how it was meant."""

    job: Job
    operations: tuple[Operation, ...]
    is_gang: bool
    """Whether its pods stand or fall together; False for one extra or independent pod."""


class Action(Protocol):
    """One step of a cycle."""

    @property
    def name(self) -> str:
        """The name by which the configuration calls it."""
        ...

    def execute(self, session: Session) -> Iterator[Commit]:
        """Plan; yield what every Statement did, as soon as it is committed."""
        ...


_ROOT = NO_ROW


class WorkList:
    """Jobs in the order in which they are served: from the root down the best queue, in it the best
    job.

    A queue's key is made anew each time one of its jobs has been served, as that changes what it
    holds; where there is nothing to choose from, no key is made.
    """

    def __init__(self, session: Session, jobs: Iterable[Job]) -> None:
        self._session = session
        self._jobs: defaultdict[int, list[tuple[SortKey, Job]]] = defaultdict(list)
        """Queue row -> heap of its own jobs."""
        self._below: defaultdict[int, list[tuple[SortKey, int]]] = defaultdict(list)
        """Queue row, or _ROOT -> heap of the queues below it that have jobs."""
        for job in jobs:
            self._jobs[session.queue_row(job)].append((self._session.job_sort_key(job), job))
        for heap in self._jobs.values():
            heapq.heapify(heap)
        self._plant()

    def __iter__(self) -> Iterator[Job]:
        """Yield the next job until none is left; `put_back` may be called in between."""
        while self._below[_ROOT]:
            path, row = [], _ROOT
            while not self._jobs[row]:
                path.append(row)
                _, row = self._below[row][0]
            _, job = heapq.heappop(self._jobs[row])
            yield job
            for above in reversed(path):
                self._settle(above)

    def put_back(self, job: Job) -> None:
        """Serve `job`, which has just been yielded, once more when its turn comes."""
        heapq.heappush(
            self._jobs[self._session.queue_row(job)], (self._session.job_sort_key(job), job)
        )

    def _plant(self) -> None:
        """Hang every queue with jobs, and all above it, into the tree; lowest queues first."""
        chains = [self._session.queue_ledger.chains[row] for row in list(self._jobs)]
        parents = {row: above for chain in chains for row, above in pairwise((*chain, _ROOT))}
        depth = {row: len(chain) - i for chain in chains for i, row in enumerate(chain)}
        for row in sorted(parents, key=lambda row: (-depth[row], row)):
            self._below[parents[row]].append((self._queue_key(row), row))
        for heap in self._below.values():
            heapq.heapify(heap)

    def _settle(self, above: int) -> None:
        """Put the first queue below `above`, which has just been served, into its new place."""
        heap = self._below[above]
        _, row = heap[0]
        if not self._jobs[row] and not self._below[row]:
            heapq.heappop(heap)
        elif len(heap) > 1:
            heapq.heapreplace(heap, (self._queue_key(row), row))

    def _next_job(self, row: int) -> Job:
        while not self._jobs[row]:
            _, row = min(self._below[row])
        return self._jobs[row][0][1]

    def _queue_key(self, row: int) -> SortKey:
        entry, job = self._session.state.queues.entries[row], self._next_job(row)
        plugins = self._session.plugins.queue_order
        keys = tuple(plugin.queue_key(self._session, row, job) for plugin in plugins)
        return (*keys, entry.created, entry.name)
