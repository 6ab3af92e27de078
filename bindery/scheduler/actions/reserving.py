"""Reservations: their gangs, their nodes, and the expected start.

`allocate` calls this for each gang that does not fit now, in the order of serving. No cycle
remembers reservations: the same snapshot gives the same ones. Free room counts first, so the start
of a gang only comes nearer while the gang is served first.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bindery.api.configuration import BackfillConfiguration
from bindery.api.times import timestamp
from bindery.scheduler.actions.later_places import LaterPlaces, at_later_moments, has_rules
from bindery.scheduler.actions.reserved_places import ReservedPlaces
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.domains import Domain, Freeable
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.packing import Item, pack, pack_with_shortfall
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import Request, total
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.placing.claims import choices
from bindery.scheduler.placing.domains import DomainChoices, DomainFinders, PodDomains
from bindery.scheduler.planning.reservations import Reservation
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.bounds import slots

_ONE_BY_ONE = 4
"""How many moments are tried before some are left out, from the first at which sums suffice."""
_CHOICES_TRIED = 16
"""In how many domains a reservation is sought; those with the most free room come first."""
_NODES_NAMED = 8
"""How many nodes a message lists."""
_HELD_BACK_BY_ROOM = (JobReason.UNSCHEDULABLE, JobReason.OVER_LIMIT)
"""The reasons for waiting that the end of running pods can remove."""


class Reserver:
    """Gives the configured number of reservations to the first gangs that need one."""

    def __init__(self, configuration: BackfillConfiguration) -> None:
        self._configuration = configuration

    def consider(self, session: Session, job: Job) -> None:
        """Reserve room for `job`, which was just refused, if the configuration allows it."""
        refusal = session.refusals.get(job)
        if refusal is None or refusal.reason not in _HELD_BACK_BY_ROOM or job.is_satisfied:
            return
        wanted, since = self._configuration, session.pending_since(job)
        waited_s = session.now - since if since > 0 else 0.0  # the creation time is unknown
        if (
            len(session.reservations.of_gangs()) >= wanted.reservations
            or waited_s < wanted.after_seconds
        ):
            return
        is_starving = waited_s >= wanted.unknown_start_after_seconds
        # Without a known end of any pod, the start of the gang cannot be known.
        if not is_starving and not len(session.expected_ends.end):
            return
        reservation = find(session, job)
        session.futures.clear()
        if reservation is None:
            return
        start = reservation.start
        is_near = start is not None and start <= session.now + wanted.window_seconds
        if is_near or is_starving:
            session.reservations.add(reservation)
            reserved = session.once(ReservedPlaces, ReservedPlaces)
            if reservation.places and not reserved.hold(reservation):
                reservation.places = ()  # they depend on more than is tried
            text = f"{refusal.message}; {reservation_text(session, reservation)}"
            session.refusals[job] = replace(refusal, message=text)


def reservation_text(session: Session, reservation: Reservation) -> str:
    """Return the message about `reservation`."""
    names = [session.state.nodes.name(row) for row in reservation.rows]
    more = len(names) - _NODES_NAMED
    places = ", ".join(names[:_NODES_NAMED]) + (f" and {more} more" if more > 0 else "")
    if reservation.start is None:
        why = f"pods without an expected runtime run on {reservation.awaited} of them"
        return f"reserved on nodes {places}, expected start unknown: {why}"
    text = f"reserved on nodes {places}, expected start {timestamp(reservation.start)}"
    is_late = reservation.start <= session.now
    return f"{text}, which has passed: pods exceed their expected runtime" if is_late else text


def find(session: Session, job: Job) -> Reservation | None:
    """Return the earliest reservation for the gang of `job`, or None.

    None: it never fits on nodes of this size, the limit of its queue never allows it, or it does
    not wait for room.
    """
    best: Reservation | None = None
    nodes = session.state.nodes
    held = np.maximum(nodes.allocatable - nodes.foreign - nodes.idle, 0)
    freeable = Freeable(held, pods=session.state.tasks)  # any pod may have ended by then

    domains = DomainChoices(session, job, freeable, is_widest_only=True)
    several: list[PodDomains] = []
    choice, claim = next(choices(session, job), None), None
    while choice is not None and (claim := choice.next()) is not None:
        several = list(islice(domains.of(claim.tasks), _CHOICES_TRIED))
        if several or not choice.leave_out(claim, domains.lost(claim.tasks)):
            break
    if claim is None:
        return None
    # Pods that require each other are never placed apart; only their own domains ensure it.
    tied = [found for found in several if found.whole.of_shapes]
    for found in tied or several:
        latest = np.inf if best is None or best.start is None else best.start
        reservation = _Timeline(session, job, claim.tasks, found).earliest(latest)
        if best is None or (reservation is not None and reservation.start is not None):
            best = reservation or best
    return best


@dataclass(frozen=True, slots=True)
class _Gang:
    """The requests of a gang."""

    tasks: tuple[Task, ...]
    """In the order of placement."""
    items: tuple[Item, ...]
    """In the same order."""
    kinds: Counter[tuple[Shape, Domain]]
    """Number of pods by shape and domain."""
    total: dict[int, int]
    """Position on the resource axis -> units."""


class _Timeline:
    """The room for `job` in the domains `found` over time."""

    def __init__(
        self, session: Session, job: Job, tasks: Sequence[Task], found: PodDomains
    ) -> None:
        self._session = session
        self._job = job
        self._domains = found
        nodes, others = session.state.nodes, session.reservations
        room = nodes.idle + nodes.releasing - nodes.pipelined
        self._now: IntColumns = room if others.kept is None else room + others.kept
        """Free room now: [resource, node]."""
        self._empty_at = _last_end(session, found.going)
        """When the exclusive domains are empty; infinite if that is not known."""
        self._promised: IntColumns = sum((each.needs for each in others.all), np.zeros_like(room))
        """The needs of gangs with earlier reservations: [resource, node]."""
        self._held: IntColumns = session.queue_ledger.allocated.copy()
        """The amounts of queues now: [resource, queue]."""
        self._has_rules = has_rules(session, tasks)
        finders = DomainFinders(session, job, found)
        self._gang = _gang(tasks, found, finders, self._now, session)
        self._asked = dict(self._gang.total)
        """What its queue will hold more: position on the resource axis -> units."""
        if (beside := found.beside_pods(session, job, tasks)) is not None:
            for index in np.flatnonzero(beside).tolist():
                self._asked[index] = self._asked.get(index, 0) + int(beside[index])
        self._open = {
            (task.shape, found.of(task)): finders.of(task).allowed(task.shape) for task in tasks
        }
        """Shape and domain -> node rows that may take such a pod, as a mask."""
        self._chain = list(session.queue_ledger.chains[session.queue_row(job)])
        self._places: LaterPlaces | None = None
        """Finds places for a gang with rules; None if sums of resources are enough."""

    def earliest(self, latest: float = np.inf) -> Reservation | None:
        """Return the reservation with the earliest start; else with an unknown start; or None.

        `latest`: a start at this time or later is of no use.
        """
        if not self._has_rules:
            return self._earliest(latest)
        session, gang = self._session, self._gang
        pods = list(zip(gang.tasks, gang.items, strict=True))
        with at_later_moments(session, self._job) as statement:
            self._places = LaterPlaces(session, self._job, self._domains, statement, pods)
            return self._earliest(latest)

    def _earliest(self, latest: float) -> Reservation | None:
        moments = self._session.expected_ends.moments()
        useful = int(np.searchsorted(moments, latest))
        first, last = 0, useful
        while first < last:  # room only grows with time, so bisection finds the first moment
            middle = (first + last) // 2
            if self._is_possible(float(moments[middle])):
                last = middle
            else:
                first = middle + 1
        # It fits before any pod ends, so something other than room holds it back.
        if first == 0 and self._rows(-np.inf) is not None:
            return None
        at = self._first_that_fits(moments[first:useful])
        if at is not None:
            moment, rows = at
            return self._reservation(rows, moment, moment, 0)
        return self._of_unknown_start() if useful == len(moments) else None

    def _first_that_fits(self, moments: NDArray[np.float64]) -> tuple[float, list[int]] | None:
        """Return the first of `moments` at which the gang fits, and its places then.

        Mostly it fits soon. Later moments are tried in growing steps, and then those in between.
        As rules may close nodes again, a time in which it fits may be missed there.
        """
        below, last = -1, len(moments) - 1
        above, found = below, None
        while found is None and above < last:
            below = above
            above = min(below + max(1, below // _ONE_BY_ONE), last)
            found = self._rows(float(moments[above]))
        if found is None:
            return None
        while above - below > 1:
            middle = (below + above) // 2
            rows = self._rows(float(moments[middle]))
            if rows is None:
                below = middle
            else:
                above, found = middle, rows
        return float(moments[above]), found

    def _rows(self, moment: float) -> list[int] | None:
        """Return the node row of each pod if the gang fits at `moment`."""
        self._session.timer.check()
        if not self._is_possible(moment):
            return None
        if self._places is not None:
            return self._places.at(moment)
        return pack(self._gang.items, self._room(moment))

    def _room(self, moment: float) -> IntColumns:
        ends = self._session.expected_ends
        return np.asarray(self._now + ends.on_nodes(moment) - self._promised)

    def _is_possible(self, moment: float) -> bool:
        """Return whether queues and sums of room let the gang start at `moment`."""
        if moment < self._empty_at or not self._queues_allow(moment):
            return False
        room = self._room(moment)
        return all(
            slots(self._session, kind[0].request, room, self._open[kind]) >= count
            for kind, count in self._gang.kinds.items()
        )

    def _queues_allow(self, moment: float) -> bool:
        session, chain = self._session, self._chain
        held = self._held - self._returned_to_queues(moment)
        for other in session.reservations.of_gangs():
            held = held + other.queue_needs
        return all(
            bool((held[index, chain] + amount <= session.shares.limit[index, chain]).all())
            for index, amount in self._asked.items()
        )

    def _returned_to_queues(self, moment: float) -> IntColumns:
        session = self._session
        ends = session.expected_ends
        gone = {task.uid for task in ends.tasks[: ends.count(moment)]}
        return session.queue_ledger.rolled_up(ends.in_queues(moment)) + session.account.without(
            gone
        )

    def _of_unknown_start(self) -> Reservation | None:
        """Return a reservation on the nodes that lack least, with an unknown start; or None."""
        if not self._queues_allow(np.inf):
            return None
        nodes = self._session.state.nodes
        most = nodes.allocatable - nodes.foreign - self._promised
        room = self._room(np.inf)
        if self._places is not None:
            rows = self._places.with_shortfall(room, most)
        else:
            rows = pack_with_shortfall(self._gang.items, room, most)
        if rows is None:
            return None
        short = room - self._needs(rows)
        awaited = {row for row in rows if (short[:, row] < 0).any()}
        if self._places is not None:
            awaited |= self._places.emptied
        return self._reservation(rows, None, np.inf, len(awaited))

    def _needs(self, rows: Sequence[int]) -> IntColumns:
        """Return what is reserved: the requests of the pods, and exclusive domains as a whole."""
        needs = np.zeros_like(self._now)
        nodes = self._session.state.nodes
        for mask in self._domains.exclusive_nodes:
            needs[:, mask] = np.maximum(nodes.allocatable - nodes.foreign, 0)[:, mask]
        taken = np.zeros_like(needs)
        for item, row in zip(self._gang.items, rows, strict=True):
            taken[list(item.request.indices), row] += item.request.amounts
        return np.maximum(needs, taken)

    def _reservation(
        self, rows: Sequence[int], start: float | None, until: float, awaited: int
    ) -> Reservation:
        session = self._session
        queue_needs = np.zeros_like(session.queue_ledger.allocated)
        for index, amount in self._asked.items():
            queue_needs[index, self._chain] = amount
        return Reservation(
            job=self._job,
            rows=tuple(sorted(set(rows), key=lambda row: int(session.position[row]))),
            start=start,
            needs=self._needs(rows),
            returned=session.expected_ends.on_nodes(until),
            queue_needs=queue_needs,
            queue_returned=self._returned_to_queues(until),
            awaited=awaited,
            places=self._tried_places(rows, start),
        )

    def _tried_places(self, rows: Sequence[int], start: float | None) -> list[tuple[Task, int]]:
        if self._places is None or start is None:
            return []
        return list(zip(self._gang.tasks, rows, strict=True))


def _last_end(session: Session, pods: Collection[Uid]) -> float:
    """Return when the last of `pods` ends: seconds since the epoch; infinite if it is not known."""
    ends = session.expected_ends
    of_pod = {task.uid: float(end) for task, end in zip(ends.tasks, ends.end, strict=True)}
    return max((of_pod.get(uid, np.inf) for uid in pods), default=-np.inf)


def _gang(
    tasks: Sequence[Task],
    found: PodDomains,
    finders: DomainFinders,
    now: IntColumns,
    session: Session,
) -> _Gang:
    """Return the requests of `tasks`, largest pods first: they are the hardest to place."""
    kinds = Counter((task.shape, found.of(task)) for task in tasks)
    wholes = np.maximum(session.cluster_total, 1)

    def size(shape: Shape) -> float:
        request = shape.request
        return float((np.array(request.amounts) / wholes[list(request.indices)]).max(initial=0.0))

    in_order = {shape: _least_idle_first(shape.request, now, session) for shape, _ in kinds}
    rows: dict[tuple[Shape, Domain], Rows] = {}
    for task in tasks:
        kind, ordered = (task.shape, found.of(task)), in_order[task.shape]
        if kind not in rows:
            rows[kind] = ordered[finders.of(task).allowed(task.shape)[ordered]]
    # A pod that requires another pod of the gang comes after it.
    is_tied = any(shape.unruled is not None for shape, _ in kinds)
    placed = tasks if is_tied else sorted(tasks, key=lambda task: size(task.shape), reverse=True)
    items = (Item(task.shape.request, rows[task.shape, found.of(task)]) for task in placed)
    return _Gang(tuple(placed), tuple(items), kinds, total(task.shape.request for task in tasks))


def _least_idle_first(request: Request, now: IntColumns, session: Session) -> Rows:
    """Return node rows by free room for `request`, the least first, then by name.

    The gang must wait for the full nodes anyway, so other jobs can use the emptier ones meanwhile.
    """
    order = session.order
    share = np.full(len(order), np.inf)
    for index, amount in zip(request.indices, request.amounts, strict=True):
        np.minimum(share, np.maximum(now[index, order], 0) / amount, out=share)
    return order[np.argsort(share, kind="stable")]
