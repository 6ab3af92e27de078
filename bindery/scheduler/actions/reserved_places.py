"""Keeps the places of reserved gangs open for what sums of resources do not count.

A reservation keeps sums of resources. A job behind the gang could still take a host port, a part of
a NUMA zone or a device there, or close a domain by a rule about other pods. So each pod that might
is tried: the places of the gang must still hold at its start.
"""

from collections.abc import Sequence

from bindery.scheduler.actions.later_places import at_later_moments, end_all, has_rules
from bindery.scheduler.model.expected_ends import last_end
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.planning.reservations import Reservation
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import promise
from bindery.scheduler.solver.room import lacks_room

_MOST_STEPS = 20_000
"""How many pods are ended and placed for all trials of a session; then no more are made."""


class ReservedPlaces:
    """The trials of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._steps = 0
        self._ending: dict[Job, list[Task]] = {}
        """Gang -> the pods that matter to its places and end before its start."""

    def allow(self, task: Task) -> bool:
        """Return whether gangs with reservations can still have their places beside `task`.

        `task` was just placed.
        """
        reservations = self._session.reservations.all
        if not reservations:  # nearly always, and it is asked for each pod that is placed
            return True
        tried = [each for each in reservations if each.places]
        if not tried or not has_rules(self._session, [task]):
            return True
        return all(self._allows(each, task) for each in tried)

    def hold(self, reservation: Reservation) -> bool:
        """Return whether the places of `reservation` hold at its start, or are not tried."""
        return self._do_hold(reservation, reservation.places)

    def _allows(self, reservation: Reservation, task: Task) -> bool:
        start = reservation.start
        if reservation.job.key == task.job or start is None:
            return True
        if task.shape.unruled is not None:
            places = reservation.places
        else:  # it matters only on its own node
            places = [(each, row) for each, row in reservation.places if row == task.row]
        job = self._session.state.jobs[task.job]
        if not places or last_end(job, [task], self._session.now) <= start:
            return True
        return self._do_hold(reservation, places)

    def _do_hold(self, reservation: Reservation, places: Sequence[tuple[Task, int]]) -> bool:
        session, ending = self._session, self._ends_before(reservation)
        self._steps += len(ending) + len(places)
        if self._steps > _MOST_STEPS:
            return True
        with at_later_moments(session, reservation.job) as statement:
            end_all(statement, ending)
            return all(
                not lacks_room(session, task, row) and promise(statement, task, row)
                for task, row in places
            )

    def _ends_before(self, reservation: Reservation) -> list[Task]:
        found = self._ending.get(reservation.job)
        if found is None and reservation.start is not None:
            ends, rows = self._session.expected_ends, frozenset(reservation.rows)
            found = self._ending[reservation.job] = [
                task
                for task in ends.tasks[: ends.count(reservation.start)]
                if task.row in rows or task.shape.unruled is not None
            ]
        return found or []
