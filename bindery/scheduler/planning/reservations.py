"""Reservations: room that is kept for gangs which do not fit now, in one session.

Made by `actions/reserving.py` while jobs are served, lifted by `actions/backfill.py` for jobs that
end in time, given back when the session closes. Room is kept by entering it as promised, so every
placement sees it taken without asking. The invariant: of a node, as much is kept as the gang needs
there when it starts and as pods that end by then do not give back, and never more than there is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.ledgers.nodes import NodeLedger
from bindery.scheduler.ledgers.queues import QueueLedger
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.resources import Request


@dataclass(eq=False)
class Reservation:
    """Room for the gang of `job`."""

    job: Job
    rows: tuple[int, ...]
    """The node rows on which its pods would stand, each once, sorted by name."""
    start: float | None
    """When it is expected to start, seconds since the epoch; None: nothing says."""
    needs: IntColumns
    """What it needs: [resource, node]."""
    returned: IntColumns
    """What pods that end by its start give back: [resource, node]."""
    queue_needs: IntColumns
    """What it adds to its queue and those above: [resource, queue]."""
    queue_returned: IntColumns
    """What pods that end by its start give back to queues, with all below: [resource, queue]."""
    awaited: int = 0
    """How many of its nodes wait for pods of which nobody knows when they end."""

    may_be_lent: bool = True
    """Whether jobs that end before its start may use its room."""

    def lends_until(self, end: float) -> bool:
        """Return whether its room may be used by jobs that end at `end`."""
        return self.may_be_lent and self.start is not None and self.start >= end


class Reservations:
    """The reservations of a session, in the order in which they were made."""

    def __init__(self, nodes: NodeTable, node_ledger: NodeLedger, queues: QueueLedger) -> None:
        self._nodes = nodes
        self._node_ledger = node_ledger
        self._queues = queues
        self._kept: list[tuple[int, Request]] = []
        """Node row and what is kept there."""
        self.all: list[Reservation] = []
        self.kept: IntColumns | None = None
        """What is kept on nodes: [resource, node]; None while nothing has been."""
        self.kept_in_queues: IntColumns | None = None
        """What is kept of queues' limits: [resource, queue]."""

    @property
    def keep_something(self) -> bool:
        """Whether anything is kept that could be lent, on a node or of a queue's limit."""
        kept = (self.kept, self.kept_in_queues)
        return any(columns is not None and bool(columns.any()) for columns in kept)

    def of(self, job: Job) -> Reservation | None:
        """Return the reservation of `job`, if it has one."""
        return next((each for each in self.all if each.job is job), None)

    def add(self, reservation: Reservation) -> None:
        """Keep room for one more gang."""
        self.all.append(reservation)
        self._keep(self.all)

    def drop(self, job: Job) -> None:
        """Keep no room for `job` any more: it has got its places."""
        self.all = [each for each in self.all if each.job is not job]
        self._keep(self.all)

    @contextmanager
    def lifted(self, which: Callable[[Reservation], bool]) -> Iterator[None]:
        """Give free, for a while, what is kept for those reservations only for which `which` holds.

        What is placed meanwhile is taken into account afterwards.
        """
        if not any(which(each) for each in self.all):
            yield
            return
        self._keep([each for each in self.all if not which(each)])
        try:
            yield
        finally:
            self._keep(self.all)

    def lend(self, tasks: Iterable[Task], end: float) -> None:
        """Note that `tasks`, placed just now, end by `end`, before some of the gangs start."""
        for task in tasks:
            index, amounts = list(task.shape.request.indices), task.shape.request.amounts
            for reservation in self.all:
                if reservation.lends_until(end):
                    reservation.returned[index, task.row] += amounts
                    for row in self._queues.chains[task.queue_row]:
                        reservation.queue_returned[index, row] += amounts

    def close(self) -> None:
        """Give everything back."""
        self._keep(())

    def _keep(self, reservations: Sequence[Reservation]) -> None:
        """Keep room for `reservations`, and for nobody else."""
        for row, request in self._kept:
            self._node_ledger.keep(row, request, -1)
        self._kept.clear()
        self.kept = self.kept_in_queues = None
        if not reservations:
            return
        nodes = self._nodes
        room = np.maximum(nodes.idle + nodes.releasing - nodes.pipelined, 0)
        kept = kept_room([(each.needs, each.returned) for each in reservations], room)
        queue_room = np.full(self._queues.allocated.shape, np.iinfo(np.int64).max, dtype=np.int64)
        self.kept_in_queues = kept_room(
            [(each.queue_needs, each.queue_returned) for each in reservations], queue_room
        )
        self.kept = kept
        for row in np.flatnonzero(kept.any(axis=0)).tolist():
            indices = np.flatnonzero(kept[:, row])
            request = Request(tuple(indices.tolist()), tuple(kept[indices, row].tolist()))
            self._node_ledger.keep(row, request, 1)
            self._kept.append((row, request))


def kept_room(
    reservations: Sequence[tuple[IntColumns, IntColumns]], room: NDArray[np.int64]
) -> IntColumns:
    """Return what must not be taken now by pods that stay: [resource, place].

    `reservations`: what each needs, and what others give back by its start. At the start of each,
    all that were made before it are there too. `room`: the most that can be kept.
    """
    kept, needed = np.zeros_like(room), np.zeros_like(room)
    for needs, returned in reservations:
        needed = needed + needs
        # Only where the gang itself stands: elsewhere it does not matter when others start.
        here = np.maximum(needed - returned - kept, 0) * (needs > 0)
        kept = kept + here
    return np.asarray(np.minimum(kept, room))
