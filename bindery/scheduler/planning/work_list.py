"""The work list of actions and of consolidation: jobs in the order of serving."""

import heapq
from collections import defaultdict
from collections.abc import Iterable

from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.verdicts import SortKey
from bindery.scheduler.planning.queue_walk import QueueWalk, serving_key
from bindery.scheduler.planning.session import LAST, Session


class WorkList(QueueWalk[Job]):
    """Jobs in the order of serving: the best queue from the root down, and its best job."""

    def __init__(self, session: Session, jobs: Iterable[Job]) -> None:
        super().__init__(session.queue_ledger.chains)
        self._session = session
        self._jobs: defaultdict[int, list[tuple[SortKey, Job]]] = defaultdict(list)
        """Queue row -> heap of its own jobs."""
        for job in jobs:
            with session.guarded(job):
                entry = (session.job_sort_key(job), job)
                self._jobs[session.queue_row(job)].append(entry)
        for heap in self._jobs.values():
            heapq.heapify(heap)
        self._plant(list(self._jobs))

    def put_back(self, job: Job) -> None:
        """Add `job`, which was just yielded, again at its new position."""
        session = self._session
        if job in session.failed:  # its state may be wrong: no further attempts in this session
            return
        with session.guarded(job):
            heapq.heappush(self._jobs[session.queue_row(job)], (session.job_sort_key(job), job))

    def _has(self, row: int) -> bool:
        return bool(self._jobs[row])

    def _first(self, row: int) -> Job:
        return self._jobs[row][0][1]

    def _pop(self, row: int) -> Job:
        return heapq.heappop(self._jobs[row])[1]

    def _key(self, row: int, item: Job) -> SortKey:
        with self._session.guarded(item):
            return serving_key(self._session, row, item)
        entry = self._session.state.queues.entries[row]
        return (LAST, entry.created, entry.name)
