"""Whose turn it is: the place of a job among those that wait."""

from dataclasses import dataclass

from bindery.scheduler.actions.base import WorkList
from bindery.scheduler.model.jobs import Job, JobKey
from bindery.scheduler.session import Session

_SHOWN_AHEAD = 5


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the order in which jobs are tried; 1 is first."""

    place: int
    of: int
    """How many jobs wait."""
    place_in_queue: int
    of_queue: int
    """How many of them wait in the same queue."""
    ahead: tuple[JobKey, ...]
    """Some that come before it, the first in the order first."""


def position(session: Session, job: Job) -> Position | None:
    """Return the place of `job` among all that still wait in `session`; None if it does not.

    Asked at the end of a cycle: what has been placed in it counts in the order of the queues.
    """
    waiting = [each for each in session.state.waiting.values() if each.pending]
    order = [each.key for each in WorkList(session, waiting)]
    if job.key not in order:
        return None
    place = order.index(job.key)
    queue = {each.key for each in waiting if each.queue == job.queue}
    ahead = order[:place]
    return Position(
        place=place + 1,
        of=len(order),
        place_in_queue=sum(key in queue for key in ahead) + 1,
        of_queue=len(queue),
        ahead=tuple(ahead[:_SHOWN_AHEAD]),
    )
