"""backfill: jobs with a known end run on room that is reserved for gangs.

Runs after `allocate`, which reserves room for gangs and places what fits beside it. The invariants:
pods placed here end, by their declared runtime, before the gang is expected to start; and a gang
does not lend its room if a later action can make room for it at once.
"""

import math
from collections.abc import Iterator, Sequence

from bindery.scheduler.actions.allocate import Attempts, UncommittedResult
from bindery.scheduler.actions.making_room import MakeRoom
from bindery.scheduler.model.expected_ends import last_end
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Commit
from bindery.scheduler.planning.work_list import WorkList


class Backfill:
    """Lends reserved room to jobs that end in time. `makers`: the later actions that make room."""

    name = "backfill"
    tries_jobs = True
    fills = False

    def __init__(self, makers: Sequence[MakeRoom] = ()) -> None:
        self._makers = makers

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:
        """Serve the waiting jobs that end before the start of a reserved gang."""
        starts = [each.start for each in session.reservations.all if each.start is not None]
        latest = max(starts, default=session.now)
        # Without reserved room, allocate has tried all that fits.
        if latest <= session.now or not session.reservations.keep_something:
            return
        candidates = turn.members(
            job
            for job in session.state.waiting.values()
            if _may_try(session, job) and _end(session, job) <= latest
        )
        if not candidates:
            return
        for reservation in session.reservations.of_gangs():
            made = (maker.could_serve(session, reservation.job) for maker in self._makers)
            reservation.may_be_lent = not any(made)
        yield from _fill(session, candidates, turn)


def _fill(session: Session, candidates: Sequence[Job], turn: Turn) -> Iterator[Commit]:
    attempts: dict[frozenset[Job], Attempts] = {}
    work = WorkList(session, candidates)
    for job in turn.take(work):
        end = _end(session, job)
        lent = frozenset(r.job for r in session.reservations.all if r.lends_until(end))
        if not lent:  # it would only see the room that allocate has tried
            continue
        # One memory of failures for each set of lenders: room of the same lenders only shrinks.
        served = _serve(session, job, end, attempts.setdefault(lent, Attempts(session)))
        if isinstance(served, Commit):
            yield served
            if job.pending:
                work.put_back(job)


def _serve(
    session: Session, job: Job, end: float, attempts: Attempts
) -> Commit | UncommittedResult:
    """Place the next pods of `job`, also on reserved room. `end`: when the job ends."""
    with session.reservations.lifted(lambda each: each.lends_until(end)):
        served = attempts.serve(job)
        if isinstance(served, Commit):
            placed = [operation.task for operation in served.operations]
            session.reservations.lend(placed, end)
        return served


def _end(session: Session, job: Job) -> float:
    """Return when the last pending pod of `job` would end if all started now."""
    with session.guarded(job):
        return last_end(job, job.pending.values(), session.now)
    return math.inf


def _may_try(session: Session, job: Job) -> bool:
    """Return whether `job` waits, with no room promised or reserved for it."""
    waits = job not in session.failed and bool(job.pending) and not job.promised.total
    return waits and session.reservations.of(job) is None
