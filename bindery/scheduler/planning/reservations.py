"""Reservations of one session: room that is kept for gangs that do not fit now.

`actions/reserving.py` makes them while jobs are served, `actions/backfill.py` lifts them for jobs
that end in time, and the end of the session drops them. Reserved room is entered as promised, so
every placement sees it as taken. The invariant: a node keeps what the gang needs there at its start
minus what ending pods give back by then, and never more than it has.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.ledgers.nodes import NodeLedger
from bindery.scheduler.ledgers.queues import QueueLedger
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.holdings import running_pods
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.resources import Request


@dataclass(eq=False)
class Reservation:
    """Room for the gang of `job`."""

    job: Job
    rows: tuple[int, ...]
    """The node rows of its pods, each once, sorted by name."""
    start: float | None
    """Its expected start, seconds since the epoch; None if unknown."""
    needs: IntColumns
    """Its needs: [resource, node]."""
    returned: IntColumns
    """Amounts that pods with an end before its start give back: [resource, node]."""
    queue_needs: IntColumns
    """Amounts that it adds to its queue and the queues above: [resource, queue]."""
    queue_returned: IntColumns
    """Amounts that ending pods give back to queues, with all queues below: [resource, queue]."""
    awaited: int = 0
    """Number of its nodes that wait for pods with an unknown end."""

    places: Sequence[tuple[Task, int]] = ()
    """The node row of each pod; only if its start is known and planning asks more than sums."""
    stage: str = ""
    """The later stage that the room is for; "" for a gang that does not fit now."""
    leaves: frozenset[str] = frozenset()
    """The leaves of the stage."""
    may_be_lent: bool = True
    """Whether jobs that end before its start may use its room."""

    def is_for(self, job: Job, tasks: Iterable[Task]) -> bool:
        """Return whether `tasks` of `job` may use the room."""
        if self.job is not job:
            return False
        return not self.stage or any(task.sub_group in self.leaves for task in tasks)

    def lends_until(self, end: float) -> bool:
        """Return whether jobs that end at `end` may use its room."""
        return self.may_be_lent and self.start is not None and self.start >= end


class _Kept(NamedTuple):
    """The reserved room at one moment."""

    in_force: Sequence[Reservation]
    entries: tuple[tuple[int, Request], ...]
    leaving: tuple[tuple[int, Request], ...]
    on_nodes: IntColumns | None
    in_queues: IntColumns | None


class Reservations:
    """The reservations of a session, in the order of creation.

    As a ledger, they let the room of later stages go with the last pod of their gang that the plan
    evicts, and keep it again if the eviction is undone. Such room counts as the pod does: it is
    being released, as the API server may still refuse the eviction.
    """

    name = "reservations"

    def __init__(self, nodes: NodeTable, node_ledger: NodeLedger, queues: QueueLedger) -> None:
        self._nodes = nodes
        self._node_ledger = node_ledger
        self._queues = queues
        self._kept: list[tuple[int, Request]] = []
        """Node row and reserved amounts."""
        self._leaving: list[tuple[int, Request]] = []
        """Node row and amounts that count as being released."""
        self._let_go: list[Reservation] = []
        """Room of gangs whose evictions are not seen yet."""
        self._in_force: Sequence[Reservation] = ()
        """The reservations whose room is kept at the moment."""
        self._ended: dict[Job, tuple[Uid, _Kept]] = {}
        """Gang whose running pods are all evicted -> the last of them, and what was kept before."""
        self.all: list[Reservation] = []
        self.kept: IntColumns | None = None
        """Reserved amounts on nodes: [resource, node]; None without reservations."""
        self.kept_in_queues: IntColumns | None = None
        """Amounts of the limits of queues that are reserved for gangs that do not fit now:
        [resource, queue]. What is kept for later stages is charged (`planning/account.py`)."""
        self.on_change: Callable[[Iterable[Job]], None] = lambda _: None
        """Called with the gangs whose room for later stages may have changed."""

    @property
    def keep_something(self) -> bool:
        """Whether any room is reserved, on a node or in a queue's limit."""
        of_stages = (each.queue_needs for each in self.of_stages())
        kept = (self.kept, self.kept_in_queues, *of_stages)
        return any(columns is not None and bool(columns.any()) for columns in kept)

    def of(self, job: Job) -> Reservation | None:
        """Return the reservation of the gang `job`, which does not fit now; None without one."""
        return next((each for each in self.all if each.job is job and not each.stage), None)

    def of_stages(self) -> list[Reservation]:
        """Return the reservations for later stages whose room is kept at the moment."""
        return [each for each in self._in_force if each.stage]

    def of_gangs(self) -> list[Reservation]:
        """Return the reservations of gangs that do not fit now."""
        return [each for each in self.all if not each.stage]

    def replace_stages(
        self, job: Job, names: Collection[str], by: Sequence[Reservation] = ()
    ) -> None:
        """Replace the room of the stages `names` of `job`."""
        kept = [each for each in self.all if each.job is not job or each.stage not in names]
        # Room of running gangs comes first: it has been promised longest.
        self.all = [*(e for e in kept if e.stage), *by, *(e for e in kept if not e.stage)]
        self._keep(self.all)

    def let_go(self, job: Job) -> None:
        """Let the room of the stages of `job` go with its pods, all of which are being evicted."""
        self._let_go += [each for each in self.all if each.job is job and each.stage]
        self.replace_stages(job, [stage.name for stage in job.stages])

    def add(self, reservation: Reservation) -> None:
        """Reserve room for one more gang."""
        self.all.append(reservation)
        self._keep(self.all)

    def drop(self, job: Job) -> None:
        """Drop the reservation of the gang `job`: it has its places."""
        self.all = [each for each in self.all if each.job is not job or each.stage]
        self._keep(self.all)

    @contextmanager
    def lifted(self, which: Callable[[Reservation], bool]) -> Iterator[None]:
        """Lift the reservations that `which` selects, inside the block.

        Afterwards room is reserved again, with regard to the pods placed meanwhile.
        """
        if not any(which(each) for each in self.all):
            yield
            return
        self._keep([each for each in self.all if not which(each)])
        try:
            yield
        finally:
            self._keep(self.all)

    @contextmanager
    def counted_as_started(self, waiting: Job) -> Iterator[None]:
        """Reserve all needs, as if the gangs other than `waiting` had started, inside the block."""
        if not self.all:
            yield
            return
        before = self._in_force
        others = (each for each in self.all if each.job is not waiting)
        started = [e.needs for e in others if not e.stage or e.job not in self._ended]
        self._keep(())
        self._enter(sum(started, np.zeros_like(self._nodes.idle)))
        try:
            yield
        finally:
            self._keep(before)

    def lend(self, tasks: Iterable[Task], end: float) -> None:
        """Note that `tasks`, which were just placed, end by `end`, before some gangs start."""
        for task in tasks:
            index, amounts = list(task.shape.request.indices), task.shape.request.amounts
            charged = task.shape.request.in_queues
            for reservation in self.all:
                if reservation.lends_until(end):
                    reservation.returned[index, task.row] += amounts
                    for row in self._queues.chains[task.queue_row]:
                        reservation.queue_returned[list(charged.indices), row] += charged.amounts

    def close(self) -> None:
        """Drop all reservations."""
        self._ended.clear()
        self._let_go.clear()
        self._keep(())

    # ---- the ledger -----------------------------------------------------------------------------

    def apply(self, operation: Operation) -> None:
        """Let the room of the stages of a gang go with its last pod.

        A pod of such a gang is not moved: at its new place the gang would be without the room.
        """
        key = operation.task.job
        if operation.kind is not OperationKind.EVICT:
            if any(job.key == key for job in self._ended):
                raise LedgerRefusalError("its gang would lose the room for a later stage")
            return
        job = next((e.job for e in self._in_force if e.stage and e.job.key == key), None)
        # The pod itself still counts: tasks change after the ledgers.
        if job is not None and job not in self._ended and running_pods(job) <= 1:
            entries = tuple(self._kept), tuple(self._leaving)
            before = _Kept(self._in_force, *entries, self.kept, self.kept_in_queues)
            self._ended[job] = operation.task.uid, before
            self._keep(self._in_force)

    def revert(self, operation: Operation) -> None:
        """Keep the room again that the eviction has let go."""
        if operation.kind is not OperationKind.EVICT or not self._ended:
            return
        task = operation.task
        job = next((job for job, (uid, _) in self._ended.items() if uid == task.uid), None)
        if job is not None:
            _, before = self._ended.pop(job)
            self._take_back()
            for row, request in before.entries:
                self._node_ledger.keep(row, request, 1)
                self._kept.append((row, request))
            for row, request in before.leaving:
                self._node_ledger.let_go(row, request, 1)
                self._leaving.append((row, request))
            self._in_force, _, _, self.kept, self.kept_in_queues = before
            self.on_change((job,))

    # ---- inside ---------------------------------------------------------------------------------

    def _keep(self, reservations: Sequence[Reservation]) -> None:
        """Replace all reserved room with the room of `reservations`."""
        # Take back the old room first: the new room is computed from the room that is left.
        self._take_back()
        reservations = [e for e in reservations if not e.stage or e.job not in self._ended]
        staged = [each.job for each in (*self._in_force, *reservations) if each.stage]
        self._in_force = reservations
        if staged:
            self.on_change(staged)
        self.kept = self.kept_in_queues = None
        ended = [e for e in self.all if e.stage and e.job in self._ended]
        nodes = self._nodes
        if ended or self._let_go:
            leaving = sum((e.needs for e in (*self._let_go, *ended)), np.zeros_like(nodes.idle))
            for row, request in _by_node(np.minimum(leaving, np.maximum(nodes.idle, 0))):
                self._node_ledger.let_go(row, request, 1)
                self._leaving.append((row, request))
        if not reservations:
            return
        room = np.maximum(nodes.idle + nodes.releasing - nodes.pipelined, 0)
        kept = kept_room([(each.needs, each.returned) for each in reservations], room)
        waiting = [each for each in reservations if not each.stage]
        if waiting:
            queue_room = np.full_like(waiting[0].queue_needs, np.iinfo(np.int64).max)
            self.kept_in_queues = kept_room(
                [(each.queue_needs, each.queue_returned) for each in waiting], queue_room
            )
        self.kept = kept
        self._enter(kept)

    def _take_back(self) -> None:
        for row, request in self._kept:
            self._node_ledger.keep(row, request, -1)
        self._kept.clear()
        for row, request in self._leaving:
            self._node_ledger.let_go(row, request, -1)
        self._leaving.clear()

    def _enter(self, kept: IntColumns) -> None:
        """Reserve `kept` [resource, node] on the nodes."""
        for row, request in _by_node(kept):
            self._node_ledger.keep(row, request, 1)
            self._kept.append((row, request))


def _by_node(amounts: IntColumns) -> Iterator[tuple[int, Request]]:
    """Yield node row and amounts of all nodes with some of `amounts` [resource, node]."""
    for row in np.flatnonzero(amounts.any(axis=0)).tolist():
        indices = np.flatnonzero(amounts[:, row])
        yield row, Request(tuple(indices.tolist()), tuple(amounts[indices, row].tolist()))


def kept_room(
    reservations: Sequence[tuple[IntColumns, IntColumns]], room: NDArray[np.int64]
) -> IntColumns:
    """Return the room that pods without an end must not take: [resource, node or queue].

    `reservations`: the needs of each, and the amounts that other pods give back by its start. All
    earlier reservations count as started by then. `room`: the maximum that can be kept.
    """
    kept, needed = np.zeros_like(room), np.zeros_like(room)
    for needs, returned in reservations:
        needed = needed + needs
        # Only on nodes of the gang itself: the start of earlier gangs elsewhere does not matter.
        here = np.maximum(needed - returned - kept, 0) * (needs > 0)
        kept = kept + here
    return np.asarray(np.minimum(kept, room))
