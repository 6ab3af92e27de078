"""The work list of actions and of consolidation: jobs in the order of serving."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter

from bindery.scheduler.fairness.users import UserTurns
from bindery.scheduler.ledgers.users import UserLedger
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.verdicts import LAST, SortKey
from bindery.scheduler.planning.queue_walk import QueueWalk, serving_key
from bindery.scheduler.planning.session import Session


class UserParts:
    """What the users of one queue hold in a session."""

    def __init__(self, session: Session, users: UserLedger, row: int) -> None:
        self._shares, self._users, self._row = session.shares, users, row

    def part(self, user: str) -> float:
        """Return the dominant share of `user` in the queue."""
        return self._shares.part(self._row, self._users.held(self._row, user))

    def changes(self) -> Sequence[str]:
        """Return the users whose amounts have changed, in order."""
        return self._users.changes(self._row)


class WorkList(QueueWalk[Job]):
    """Jobs in the order of serving: the best queue from the root down, and its best job.

    In a queue that is fair between its users, the user comes after the keys of plugins, such as
    the priority, and before the age.
    """

    def __init__(self, session: Session, jobs: Iterable[Job]) -> None:
        super().__init__(session.queue_ledger.chains)
        self._session = session
        self._jobs: defaultdict[int, list[tuple[SortKey, Job]]] = defaultdict(list)
        """Queue row -> its own jobs, the first at the end, for queues whose users take no turns."""
        self._turns: dict[int, UserTurns[Job]] = {}
        """Queue row -> its own jobs, for the others."""
        for job in jobs:
            with session.guarded(job):
                row = session.queue_row(job)
                if session.users is not None and session.users.is_fair(row):
                    self._add_to_turns(session.users, row, job)
                else:
                    key = session.calls.job_sort_key(job)  # may raise before the list is made
                    self._jobs[row].append((key, job))
        for entries in self._jobs.values():
            entries.sort(key=itemgetter(0), reverse=True)
        self._plant([*self._jobs, *self._turns])

    def put_back(self, job: Job) -> None:
        """Add `job`, which was just yielded, again at its new position."""
        session = self._session
        if job in session.failed:  # its state may be wrong: no further attempts in this session
            return
        with session.guarded(job):
            row = session.queue_row(job)
            if session.users is not None and row in self._turns:
                self._add_to_turns(session.users, row, job)
            else:
                _insert(self._jobs[row], (session.calls.job_sort_key(job), job))

    def _add_to_turns(self, users: UserLedger, row: int, job: Job) -> None:
        user = users.user(row, job)
        rank, age = self._session.calls.job_key(job), (job.created, job.key)
        turns = self._turns.get(row)
        if turns is None:
            turns = self._turns[row] = UserTurns(UserParts(self._session, users, row))
        turns.add(user, rank, age, job)

    def _has(self, row: int) -> bool:
        turns = self._turns.get(row)
        return bool(self._jobs[row] if turns is None else turns)

    def _first(self, row: int) -> Job:
        turns = self._turns.get(row)
        return self._jobs[row][-1][1] if turns is None else turns.first()

    def _pop(self, row: int) -> Job:
        turns = self._turns.get(row)
        return self._jobs[row].pop()[1] if turns is None else turns.pop()

    def _key(self, row: int, item: Job) -> SortKey:
        with self._session.guarded(item):
            return serving_key(self._session, row, item)
        entry = self._session.state.queues.entries[row]
        return (LAST, entry.created, entry.name)


def _insert(entries: list[tuple[SortKey, Job]], entry: tuple[SortKey, Job]) -> None:
    """Insert `entry` into `entries`, which are in descending order of their keys."""
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        if entries[middle][0] < entry[0]:
            high = middle
        else:
            low = middle + 1
    entries.insert(low, entry)
