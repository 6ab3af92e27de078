"""The position of a job among the waiting jobs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bindery.scheduler.model.jobs import Job, JobKey
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.planning.hopeless import can_run
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.work_list import UserParts, WorkList

_SHOWN_AHEAD = 5
_PASSING = frozenset(
    {JobReason.COMMIT_FAILED, JobReason.COMMIT_UNDER_WAY, JobReason.PLANNING_TOOK_TOO_LONG}
)
"""Temporary reasons."""


@dataclass(frozen=True, slots=True)
class UserTurn:
    """A user with waiting jobs in a queue whose users take turns."""

    user: str
    """Empty for the jobs without a user."""
    part: float
    """What the user holds, as a part of the queue's share."""
    is_own: bool
    """Whether it is the user of the job."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the order of serving; 1 is first."""

    place: int
    of: int
    """Number of jobs that wait for their turn."""
    place_in_queue: int
    of_queue: int
    """Number of them in the same queue."""
    ahead: tuple[JobKey, ...]
    """The first of the jobs before it, in order."""
    users: tuple[UserTurn, ...] = ()
    """The users with waiting jobs in the same queue, in order; empty if they take no turns."""


class Turns:
    """The order of serving of the jobs that still wait in a session.

    Jobs that could not run on an empty cluster are left out: no other job waits for them. Made at
    the end of a cycle, so the pods that the cycle placed count in the order of queues.
    """

    def __init__(self, session: Session) -> None:
        waiting = [
            each
            for each in session.state.waiting.values()
            if each.pending and each not in session.failed and can_ever_run(session, each)
        ]
        self.order = [each.key for each in WorkList(session, waiting)]
        """The jobs, in order."""
        self._queues = {each.key: each.queue for each in waiting}
        self._users, self._parts = _users_of(session, waiting)

    def position(self, job: Job) -> Position | None:
        """Return the position of `job`; None if it does not wait for its turn."""
        if job.key not in self._queues:
            return None
        place = self.order.index(job.key)
        same = [key for key in self.order if self._queues[key] == job.queue]
        ahead = self.order[:place]
        return Position(
            place=place + 1,
            of=len(self.order),
            place_in_queue=same.index(job.key) + 1,
            of_queue=len(same),
            ahead=tuple(ahead[:_SHOWN_AHEAD]),
            users=self._turns(job),
        )

    def _turns(self, job: Job) -> tuple[UserTurn, ...]:
        own = self._users.get(job.key)
        parts = self._parts.get(job.queue, {})
        order = sorted(parts, key=lambda user: (parts[user], user))
        return tuple(UserTurn(user, parts[user], user == own) for user in order)


def _users_of(
    session: Session, jobs: Sequence[Job]
) -> tuple[dict[JobKey, str], dict[str, dict[str, float]]]:
    """Return the users of `jobs` in queues whose users take turns, and what each of them holds.

    The first: job -> user. The second: queue -> user -> part of the queue's share.
    """
    users: dict[JobKey, str] = {}
    parts: defaultdict[str, dict[str, float]] = defaultdict(dict)
    ledger = session.users
    for job in jobs if ledger is not None else ():
        row = session.queue_row(job)
        if ledger is not None and ledger.is_fair(row):
            user = users[job.key] = ledger.user(row, job)
            parts[job.queue][user] = UserParts(session, ledger, row).part(user)
    return users, parts


def can_ever_run(session: Session, job: Job) -> bool:
    """Return whether more pods of `job` would fit if nothing else ran."""
    refusal = session.invalid(job)
    # A job with a temporary refusal keeps its turn.
    if refusal is not None and refusal.reason not in _PASSING:
        return False
    tasks = session.next_pods(job)
    if not tasks or any(session.calls.task_refusal(task) is not None for task in tasks):
        return False
    return can_run(session, job)
