"""What an action is, and the work list that actions share."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from bindery.scheduler.ledgers.base import Operation
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.plugins.interface import SortKey
from bindery.scheduler.queuewalk import QueueWalk
from bindery.scheduler.rounds import Turn
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

    @property
    def tries_jobs(self) -> bool:
        """Whether it tries waiting jobs one by one, so that the next cycle can continue it."""
        ...

    @property
    def fills(self) -> bool:
        """Whether it only uses free room: it runs also where a cycle continues a later action."""
        ...

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:
        """Plan what `turn` allows; yield what every Statement did, as soon as it is committed."""
        ...


class WorkList(QueueWalk[Job]):
    """Jobs in the order in which they are served: from the root down the best queue, in it the best
    job.
    """

    def __init__(self, session: Session, jobs: Iterable[Job]) -> None:
        super().__init__(session.queue_ledger.chains)
        self._session = session
        self._jobs: defaultdict[int, list[tuple[SortKey, Job]]] = defaultdict(list)
        """Queue row -> heap of its own jobs."""
        for job in jobs:
            self._jobs[session.queue_row(job)].append((self._session.job_sort_key(job), job))
        for heap in self._jobs.values():
            heapq.heapify(heap)
        self._plant(list(self._jobs))

    def put_back(self, job: Job) -> None:
        """Serve `job`, which has just been yielded, once more when its turn comes."""
        heapq.heappush(
            self._jobs[self._session.queue_row(job)], (self._session.job_sort_key(job), job)
        )

    def _has(self, row: int) -> bool:
        return bool(self._jobs[row])

    def _first(self, row: int) -> Job:
        return self._jobs[row][0][1]

    def _pop(self, row: int) -> Job:
        return heapq.heappop(self._jobs[row])[1]

    def _key(self, row: int, item: Job) -> SortKey:
        entry, plugins = self._session.state.queues.entries[row], self._session.plugins.queue_order
        keys = tuple(plugin.queue_key(self._session, row, item) for plugin in plugins)
        return (*keys, entry.created, entry.name)
