"""What an action is, and the work list that actions share."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from bindery.scheduler.ledgers.base import Operation
from bindery.scheduler.model.jobs import Job
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


class WorkList:
    """Jobs in the order in which they are served: best queue first, in it the best job.

    Keys are made anew for a queue and a job each time they are put back, as serving them changes
    what they hold.
    """

    def __init__(self, session: Session, jobs: Iterable[Job]) -> None:
        self._session = session
        self._jobs: defaultdict[int, list[tuple[SortKey, Job]]] = defaultdict(list)
        """Queue row -> heap of its jobs."""
        for job in jobs:
            self._jobs[session.queue_row(job)].append((self._job_key(job), job))
        for heap in self._jobs.values():
            heapq.heapify(heap)
        self._queues = [(self._queue_key(row), row) for row in self._jobs]
        heapq.heapify(self._queues)

    def __iter__(self) -> Iterator[Job]:
        """Yield the next job until none is left; `put_back` may be called in between."""
        while self._queues:
            _, row = self._queues[0]
            _, job = heapq.heappop(self._jobs[row])
            yield job
            if self._jobs[row]:
                heapq.heapreplace(self._queues, (self._queue_key(row), row))
            else:
                heapq.heappop(self._queues)

    def put_back(self, job: Job) -> None:
        """Serve `job`, which has just been yielded, once more when its turn comes."""
        heapq.heappush(self._jobs[self._session.queue_row(job)], (self._job_key(job), job))

    def _job_key(self, job: Job) -> SortKey:
        plugins = self._session.plugins.job_order
        keys = tuple(plugin.job_key(self._session, job) for plugin in plugins)
        return (*keys, job.created, job.key)

    def _queue_key(self, row: int) -> SortKey:
        entry = self._session.state.queues.entries[row]
        plugins = self._session.plugins.queue_order
        keys = tuple(plugin.queue_key(self._session, row) for plugin in plugins)
        return (*keys, entry.created, entry.name)
