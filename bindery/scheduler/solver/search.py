"""The search for a plan that makes room: node by node, victims in their order, and no more of them
than needed.

Pod by pod of the claim: into room that is free, or being released; else onto the node on which the
first eligible victims stand. Of those only as many go as the pod needs, and the most valuable are
spared first. At the end victims that find another place are moved, and the action's rule judges the
whole. Everything happens in one Statement, so a plan that fails leaves nothing behind. Bounded by
counts, not by time: the same session gives the same plan.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Task, TaskStatus
from bindery.scheduler.model.resources import Request
from bindery.scheduler.session import Session
from bindery.scheduler.solver.bounds import can_never_fit
from bindery.scheduler.solver.rules import Claim, Rule
from bindery.scheduler.solver.victims import Chunk, VictimTable
from bindery.scheduler.statement import Statement

NODES_TRIED = 64
"""How many nodes are tried for one pod before the claim is given up for this cycle."""


class Search:
    """One attempt to make room for `claim` by `rule`."""

    def __init__(
        self, session: Session, statement: Statement, claim: Claim, rule: Rule, table: VictimTable
    ) -> None:
        self._session = session
        self._statement = statement
        self._claim = claim
        self._rule = rule
        self._table = table
        self._left = rule.eligible(session, claim, table) & table.alive
        """Chunk -> whether it may still go in this plan."""
        self.gone: list[int] = []
        """Chunks that go, in the order in which they were chosen."""

    def run(self) -> bool:
        """Write an acceptable plan into the Statement; False: there is none, undo the Statement."""
        if not self._left.any():
            return False
        if can_never_fit(self._session, self._claim, self._table, self._left):
            return False
        if not self._place_all() or not self.gone:
            return False
        moved = self._move_victims()
        stays_gone = [self._table.chunks[i] for i in self.gone if i not in moved]
        if self._rule.moves_all and stays_gone:
            return False
        return self._rule.accepts(self._session, self._claim, stays_gone)

    # -- placing the claim -----------------------------------------------------------------------

    def _place_all(self) -> bool:
        for position, task in enumerate(self._claim.tasks):
            if not self._make_capacity(self._claim.tasks[position:]):
                return False
            if not self._place(task) and not self._make_room(task):
                return False
        return True

    def _place(self, task: Task) -> bool:
        """Promise `task` the best node that has, or will have, room; evicts nobody."""
        place = self._session.placement.finder(self._claim.job).best(task.shape)
        return place is not None and self._pipeline(task, place.row)

    def _pipeline(self, task: Task, row: int) -> bool:
        try:
            self._statement.pipeline(task, row)
        except LedgerRefusalError:
            return False
        return True

    def _make_capacity(self, tasks: Sequence[Task]) -> bool:
        """Evict until no gate is against `tasks`: a queue at its limit needs its own pods gone."""
        gates = self._session.plugins.capacity_gates
        while any(g.over_capacity(self._session, self._claim.job, tasks) for g in gates):
            index = next(self._in_order(self._left), None)
            if index is None or not self._evict(index):
                return False
        return True

    def _make_room(self, task: Task) -> bool:
        """Evict on one node as much as `task` needs there, and promise it the room."""
        request = task.shape.request
        useful = self._useful_nodes(task)
        for row in self._nodes_in_order(useful):
            savepoint, chosen, left = self._statement.savepoint(), len(self.gone), self._left.copy()
            if self._clear(row, request) and self._pipeline(task, row):
                return True
            self._statement.rollback(savepoint)
            del self.gone[chosen:]
            self._left = left
        return False

    def _useful_nodes(self, task: Task) -> BoolColumn:
        """Return the nodes that could take `task` if all that may go had gone."""
        session, nodes = self._session, self._session.state.nodes
        useful = session.placement.finder(self._claim.job).allowed(task.shape).copy()
        freed = self._table.evictable(self._left, len(nodes.nodes))
        request = task.shape.request
        for index, amount in zip(request.indices, request.amounts, strict=True):
            room = nodes.idle[index] + nodes.releasing[index] - nodes.pipelined[index]
            useful &= room + freed[index] >= amount
        return useful

    def _nodes_in_order(self, useful: BoolColumn) -> Iterator[int]:
        """Yield useful nodes by the first victim on them; a fixed number at the most."""
        table, tried = self._table, 0
        on_useful = np.zeros(len(table.chunks), dtype=np.bool_)
        on_useful[table.chunk[useful[table.row]]] = True
        seen: set[int] = set()
        for index in self._in_order(self._left & on_useful):
            for row in table.row[table.pods(index)]:
                if useful[row] and row not in seen:
                    seen.add(int(row))
                    tried += 1
                    yield int(row)
                    if tried >= NODES_TRIED:
                        return

    def _clear(self, row: int, request: Request) -> bool:
        """Evict on the node at `row` until `request` fits, sparing what need not go."""
        table = self._table
        here = np.zeros(len(table.chunks), dtype=np.bool_)
        here[table.chunk[table.row == row]] = True
        needed = self._shortfall(row, request)
        chosen: list[int] = []
        for index in self._in_order(self._left & here):
            if not (needed > 0).any():
                break
            if not self._rule.allows(self._session, self._claim, table.chunks[index]):
                continue
            chosen.append(index)
            needed = needed - self._held(index, row, request)
        if (needed > 0).any():
            return False
        for index in reversed(list(chosen)):
            held = self._held(index, row, request)
            if not (needed + held > 0).any():
                chosen.remove(index)
                needed = needed + held
        return (
            all(self._evict(index) for index in chosen)
            and not (self._shortfall(row, request) > 0).any()
        )

    def _shortfall(self, row: int, request: Request) -> NDArray[np.int64]:
        """Return by how much each requested resource falls short on the node at `row`."""
        nodes, index = self._session.state.nodes, list(request.indices)
        room = nodes.idle[index, row] + nodes.releasing[index, row] - nodes.pipelined[index, row]
        return np.asarray(np.array(request.amounts, dtype=np.int64) - room)

    def _held(self, chunk: int, row: int, request: Request) -> NDArray[np.int64]:
        """Return what `chunk` holds of each requested resource on the node at `row`."""
        pods = self._table.pods(chunk)
        held = self._table.request[list(request.indices), pods]
        return np.asarray(held[:, self._table.row[pods] == row].sum(axis=1))

    # -- victims ---------------------------------------------------------------------------------

    def _in_order(self, among: BoolColumn) -> Iterator[int]:
        """Yield chunks in the order in which they go: from the queue that has most of its share,
        there the last job first. A chunk comes after all that go before it in its job.
        """
        table = self._table
        indices = np.flatnonzero(among)
        queues = np.unique(table.queue[indices])
        held = {int(q): -self._session.shares.dominant(int(q)) for q in queues}
        key = np.array([held[int(q)] for q in table.queue[indices]])
        for index in indices[np.lexsort((table.rank[indices], key))]:
            if self._left[index]:
                yield int(index)

    def _evict(self, index: int) -> bool:
        """Evict a chunk, and before it those of its job that go first."""
        chunk, table = self._table.chunks[index], self._table
        if not self._rule.allows(self._session, self._claim, chunk):
            self._left[index] = False
            return False
        reason = f"{self._rule.name} for {self._claim.job.key}"
        first = (
            [i for i in range(index) if table.chunks[i].job is chunk.job and self._left[i]]
            if chunk.is_core
            else []
        )
        for each in (*first, index):
            try:
                for task in table.chunks[each].tasks:
                    self._statement.evict(task, reason)
            except LedgerRefusalError:
                return False
            self._left[each] = False
            self.gone.append(each)
        return True

    def _move_victims(self) -> set[int]:
        """Promise other places to victims where there are any; return the chunks that have one."""
        moved: set[int] = set()
        order = sorted(self.gone, key=lambda i: -int(self._table.rank[i]))
        for index in order:
            savepoint = self._statement.savepoint()
            if all(self._move(task) for task in self._table.chunks[index].tasks):
                moved.add(index)
            else:
                self._statement.rollback(savepoint)
        return moved

    def _move(self, task: Task) -> bool:
        assert task.status is TaskStatus.RELEASING, "only what was evicted is moved"
        place = self._session.placement.finder(self._session.state.jobs[task.job]).best(task.shape)
        return place is not None and place.row != task.row and self._pipeline(task, place.row)


def chunks_of(search: Search, table: VictimTable) -> list[Chunk]:
    """Return the chunks that a plan takes."""
    return [table.chunks[index] for index in search.gone]
