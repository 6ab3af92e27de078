"""Places for a gang at a later moment, by the rules that planning follows.

Sums of resources contain no rules about other pods, host ports, devices, volumes and NUMA zones.
For a gang with such rules, the pods that end by the moment leave their nodes in a Statement, and
the gang is placed on the nodes as they are then. The Statement is never committed.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.expected_ends import RUNS
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.packing import Item, shortfalls
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.placing.domains import DomainFinders, PodDomains
from bindery.scheduler.planning.placement import JobFinder
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Savepoint, Statement, promise
from bindery.scheduler.plugins.interface.nodes import NodeRoom, RoomBySums
from bindery.scheduler.solver.room import lacks_room

_NODES_EMPTIED = 16
"""How many nodes are tried for one pod of a gang with an unknown start."""


def has_rules(session: Session, tasks: Sequence[Task]) -> bool:
    """Return whether planning asks more about any of `tasks` than sums of resources."""
    placement = session.placement
    return any(
        shape.unruled is not None
        or placement.is_filtered(shape)
        or any(not _is_by_sums(room, session, shape) for room in placement.rooms(shape))
        for shape in {task.shape for task in tasks}
    )


def _is_by_sums(room: NodeRoom, session: Session, shape: Shape) -> bool:
    return isinstance(room, RoomBySums) and room.is_by_sums(session, shape)


@contextmanager
def at_later_moments(session: Session, waiting: Job) -> Iterator[Statement]:
    """Open a Statement about later moments, in which gangs with reservations have started.

    `waiting`: the gang that has not.
    """
    session.state.is_later = True
    try:
        with session.reservations.counted_as_started(waiting), session.statement() as statement:
            yield statement
    finally:
        session.state.is_later = False


def end_all(statement: Statement, tasks: Iterable[Task]) -> None:
    """Let `tasks` leave their nodes, except tasks that a ledger keeps there."""
    for task in tasks:
        with suppress(LedgerRefusalError):
            statement.end(task)


class LaterPlaces:
    """Finds places for the pods of one gang."""

    def __init__(
        self,
        session: Session,
        job: Job,
        found: PodDomains,
        statement: Statement,
        pods: Sequence[tuple[Task, Item]],
    ) -> None:
        """`found`: the domains of the pods. `statement`: of `at_later_moments`.

        `pods`: in the order of placement, with the nodes that they may use, the best first.
        """
        self._session = session
        self._job = job
        self._domains = found
        self._statement = statement
        self._pods = pods
        self.emptied: set[int] = set()
        """The nodes of `with_shortfall` that pods without an expected end must leave."""
        self._ended: list[Savepoint] = []
        """The positions in the Statement before the end of each pod, in the order of ends."""
        self._ranks: dict[int, NDArray[np.intp]] = {}
        """Identity of an item's rows -> rank of each node row."""

    def at(self, moment: float) -> list[int] | None:
        """Return the node row of each pod at `moment`; None if the gang does not fit then."""
        self._go_to(moment)
        start, rows = self._statement.savepoint(), list[int]()
        finders = DomainFinders(self._session, self._job, self._domains)
        for task, item in self._pods:
            row = self._place(task, item, finders.of(task))
            if row is None:
                break
            rows.append(row)
        self._statement.rollback(start)
        return rows if len(rows) == len(self._pods) else None

    def with_shortfall(self, room: IntColumns, most: IntColumns) -> list[int] | None:
        """Return the node row of each pod if pods without an expected end leave some nodes.

        The pods get the nodes that lack least. `room`, `most`: see `pack_with_shortfall`.
        """
        self._go_to(np.inf)
        start, rows = self._statement.savepoint(), list[int]()
        left, at_most = room.copy(), most.copy()
        for task, item in self._pods:
            lacks = shortfalls(item, left, at_most)
            nearest = np.argsort(lacks, kind="stable")[:_NODES_EMPTIED]
            candidates = item.rows[nearest[np.isfinite(lacks[nearest])]].tolist()
            row = next((row for row in candidates if self._place_emptied(task, row)), None)
            if row is None:
                break
            rows.append(row)
            for columns in (left, at_most):
                columns[list(item.request.indices), row] -= item.request.amounts
        self._statement.rollback(start)
        return rows if len(rows) == len(self._pods) else None

    def _go_to(self, moment: float) -> None:
        """Let exactly the pods that end by `moment` leave their nodes."""
        ends = self._session.expected_ends
        count = ends.count(moment)
        if count < len(self._ended):
            self._statement.rollback(self._ended[count])
            del self._ended[count:]
        for task in ends.tasks[len(self._ended) : count]:
            self._ended.append(self._statement.savepoint())
            end_all(self._statement, [task])

    def _place(self, task: Task, item: Item, finder: JobFinder) -> int | None:
        rank = self._rank(item)
        while len(rows := finder.fitting_later(task)):
            row = int(rows[rank[rows].argmin()])
            try:
                self._statement.pipeline(task, row)
            except LedgerRefusalError as refusal:
                finder.exclude(task, row, str(refusal))
            else:
                return row
        return None

    def _rank(self, item: Item) -> NDArray[np.intp]:
        rank = self._ranks.get(id(item.rows))
        if rank is None:
            rank = np.full(len(self._session.order), len(item.rows), dtype=np.intp)
            rank[item.rows] = np.arange(len(item.rows))
            self._ranks[id(item.rows)] = rank
        return rank

    def _place_emptied(self, task: Task, row: int) -> bool:
        """Promise `task` the node at `row`, if necessary without the pods that run there."""
        start = self._statement.savepoint()
        if self._promise(task, row):
            return True
        end_all(self._statement, self._running_on(row))
        if self._promise(task, row):
            self.emptied.add(row)
            return True
        self._statement.rollback(start)
        return False

    def _promise(self, task: Task, row: int) -> bool:
        return not lacks_room(self._session, task, row) and promise(self._statement, task, row)

    def _running_on(self, row: int) -> Iterator[Task]:
        # A list, as the status of the tasks changes.
        for task in [t for t in self._session.state.tasks.values() if t.row == row]:
            if task.status in RUNS and task.is_ours and task.job != self._job.key:
                yield task
