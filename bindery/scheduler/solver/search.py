"""The search for a plan that makes room, node by node, with as few victims as possible.

Each pod of the claim goes into free or released room; else onto the node with the first eligible
victims. Only as many of them go as the pod needs, and the most valuable are spared first. At the
end, victims that fit elsewhere are moved, and the rule judges the whole plan. All of it is one
Statement, so a plan that fails leaves nothing behind. Counts bound the search, not time: the same
session gives the same plan.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.placing.domains import DomainFinders
from bindery.scheduler.planning.statement import Plan, Savepoint, promise
from bindery.scheduler.solver.bounds import can_never_fit
from bindery.scheduler.solver.context import SearchContext
from bindery.scheduler.solver.moves import (
    evict_unit,
    keep_in_place,
    move_victims,
    units_to_empty,
)
from bindery.scheduler.solver.order import victims as victims_in_order
from bindery.scheduler.solver.order import victims_of
from bindery.scheduler.solver.room import lacks_room, shortfall, useful_nodes
from bindery.scheduler.solver.rules import is_empty
from bindery.scheduler.solver.vetoes import permitted

NODES_TRIED = 64
"""How many nodes are tried for one pod before the claim fails in this cycle."""
_MOST_TO_SPARE = 4000
"""Above this number (victims x pods of the claim), `_spare` does not try to leave out victims."""


class Search:
    """One attempt to make room for the claim by evicting others.

    `with_moves`: whether units that the rule protects may go too, if they find other places.
    """

    def __init__(self, context: SearchContext, *, with_moves: bool = False) -> None:
        self._context = context
        self._session = session = context.session
        self._statement = context.statement
        self._claim = claim = context.claim
        self._rule = rule = context.rule
        self._table = table = context.table
        eligible = rule.eligible(session, claim, table) & table.alive
        if with_moves:
            movable = rule.movable(session, claim, table) & table.alive
            eligible |= table.returning.among(movable & ~eligible)
        elif rule.moves_all:
            eligible = table.returning.among(eligible)
        self._left = permitted(session, claim, table, eligible, rule.name)
        """EvictionUnit -> whether it may still go in this plan."""
        self._with_moves = with_moves
        self._must_move: set[int] = set()
        self.waits = False
        """Whether a pod has been promised room that is not free yet."""
        self._kept_rows = session.memory.promised_rows(claim.job)
        self._finders = DomainFinders(session, claim.job, context.domains)
        self._closed_by = self._finders.of(claim.tasks[0]).closed_by  # the same in all domains
        """Job -> the rows that it closes to the claim, as a mask."""
        self._to_empty = units_to_empty(context)
        """The units that must go before the domains of the claim can be used."""
        self.gone: list[int] = []
        """Units that are evicted, in the order in which they were chosen."""
        self.lost: Task | None = None
        """The pod of the claim for which no room can be made; None if another reason decided."""

    def run(self) -> bool:
        """Write an acceptable plan into the Statement; return False if there is none.

        If it returns False, the caller must undo the Statement.
        """
        if not self._is_possible() or not self._empty() or not self._place_all():
            return False
        return not self.gone or self._is_acceptable()

    def _is_possible(self) -> bool:
        """Return False if cheap bounds show that no plan exists."""
        has_room = self._session.is_releasing or not self._rule.has_victims
        if not self._left.any() and not has_room:
            return False
        # The caller reads it: the next claim leaves out the pods that need as much.
        self.lost = can_never_fit(self._context, self._left)
        return self.lost is None

    def _empty(self) -> bool:
        """Evict what must go before the domains of the claim can be used; return whether it did.

        All of it goes, so the order is free.
        """
        if not self._to_empty:  # the usual claim
            return True
        return all(self._left[i] and self._evict(i) for i in self._by_loss(self._to_empty))

    def _by_loss(self, going: Sequence[int]) -> list[int]:
        """Return `going` with the largest loss last, without the extra pods of a core that goes.

        A queue may lose a gang as long as it holds too much, so no order allows more. A core takes
        its extra pods along, as one loss.
        """
        table, requested = self._table, list(self._claim.request)
        total = np.maximum(self._session.cluster_total[requested], 1)
        loss = (table.lost[requested] / total[:, None]).max(axis=0, initial=0.0)
        whole = {table.units[i].job.key for i in going if table.units[i].is_core}
        losses = [i for i in going if table.units[i].is_core or table.units[i].job.key not in whole]
        return sorted(losses, key=lambda i: float(loss[i]))

    def _is_acceptable(self) -> bool:
        """Leave out needless victims, move the others where possible, and ask the rule."""
        if not self._spare():
            return False
        moved = move_victims(self._context, self.gone)
        if not moved.issuperset(self._must_move.intersection(self.gone)):
            return False
        stays_gone = [self._table.units[i] for i in self.gone if i not in moved]
        if self._rule.moves_all and stays_gone:
            return False
        keep_in_place(self._statement)
        return is_empty(self._rule.against_plan(self._session, self._claim, stays_gone))

    # -- placing the claim -----------------------------------------------------------------------

    def _place_all(self) -> bool:
        for position, task in enumerate(self._claim.tasks):
            has_capacity = self._make_capacity(self._claim.tasks[position:])
            if not has_capacity or not (self._place(task) or self._make_room(task)):
                self.lost = task
                return False
        return True

    def _place(self, task: Task) -> bool:
        """Promise `task` the best node with free or released room, without an eviction."""
        shared = finder = self._finders.of(task)
        kept_row = self._kept_rows.get(task.uid)
        while (place := finder.best_or_kept(task, kept_row)) is not None:
            if promise(self._statement, task, place.row):
                self.waits |= not place.fits_now
                return True
            if finder is shared:  # the shared finder must not lose the node for later pods
                finder = self._finders.new(task)
            finder.exclude(task, place.row, "a ledger has refused it")
        return False

    def _make_capacity(self, tasks: Sequence[Task]) -> bool:
        """Evict until no capacity gate refuses `tasks`; return whether that was possible.

        A queue at its limit needs evictions in its own tree.
        """
        refusal = self._session.calls.over_capacity(self._claim.job, tasks)
        if refusal is None:
            return True
        # Moved pods stay in their queue, so moves cannot lower what the queue holds.
        if refusal.is_lasting or self._rule.moves_all:
            return False
        chains = self._session.queue_ledger.chains
        own = set(chains[self._session.queue_row(self._claim.job)])
        related = np.array([not own.isdisjoint(chain) for chain in chains], dtype=np.bool_)
        for index in self._in_order(self._left & related[self._table.queue]):
            self._evict(index)
            if self._session.calls.over_capacity(self._claim.job, tasks) is None:
                return True
        return False

    def _make_room(self, task: Task) -> bool:
        """Evict on one node what `task` needs, and promise it the node."""
        allowed = self._finders.of(task).allowed_for(task, emptied=True)
        useful = useful_nodes(self._session, self._table, self._left, allowed, task)
        return any(self._make_room_on(row, task) for row in self._nodes_in_order(useful))

    def _make_room_on(self, row: int, task: Task) -> bool:
        """Evict on the node at `row` what `task` needs; retry without victims that cannot move."""
        kept: list[int] = []
        savepoint, chosen = self._statement.savepoint(), len(self.gone)
        while self._clear(row, task) and promise(self._statement, task, row):
            stuck = self._stuck()
            if not stuck:
                self._left[kept] = True
                return True
            blocking = [index for index in self.gone[chosen:] if index in stuck]
            self._go_back(savepoint, chosen)
            self._left[blocking] = False  # leave these alone, and try others on this node
            kept += blocking
            if not blocking:  # the stuck units stood in the plan before: other victims cannot help
                break
        self._go_back(savepoint, chosen)
        self._left[kept] = True
        return False

    def _stuck(self) -> set[int]:
        """Return the victims so far that must move but find no place."""
        if not self._rule.moves_all and not self._must_move:
            return set()
        gone = set(self.gone)
        must_move = gone if self._rule.moves_all else gone & self._must_move
        if not must_move:
            return set()
        savepoint = self._statement.savepoint()
        moved = move_victims(self._context, self.gone)
        self._statement.rollback(savepoint)
        return must_move - moved

    def _go_back(self, savepoint: Savepoint, chosen: int) -> None:
        """Go back to `savepoint`, at which `chosen` units were evicted."""
        self._statement.rollback(savepoint)
        back = self.gone[chosen:]
        self._left[back] = True
        del self.gone[chosen:]
        self._renew_finders(back)

    def _renew_finders(self, changed: Sequence[int]) -> None:
        """Make new finders if the units `changed` open or close nodes to the claim."""
        if self._closed_by and any(self._closes(index) is not None for index in changed):
            self._finders = DomainFinders(self._session, self._claim.job, self._context.domains)

    def _closes(self, index: int) -> BoolColumn | None:
        """Return the rows that the job of a unit closes to the claim, as a mask; None for none."""
        return self._closed_by.get(self._table.units[index].job.key)

    def _closing(self, rows: BoolColumn) -> BoolColumn:
        """Return the units of jobs that close one of `rows` (mask) to the claim, as a mask."""
        found = np.zeros(len(self._table.units), dtype=np.bool_)
        for index, unit in enumerate(self._table.units):
            closed = self._closed_by.get(unit.job.key)
            found[index] = closed is not None and bool((closed & rows).any())
        return found

    def _lacks_room(self, task: Task, row: int) -> bool:
        """Return whether `task` does not fit at `row`, or the node is closed to its job."""
        is_closed = bool(self._closed_by) and not self._finders.of(task).allowed(task.shape)[row]
        return is_closed or lacks_room(self._session, task, row)

    def _nodes_in_order(self, useful: BoolColumn) -> Iterator[int]:
        """Yield up to `NODES_TRIED` useful nodes, in the order of the first victim on each."""
        table = self._table
        on_useful = table.on_rows(useful)
        if self._closed_by:
            on_useful |= self._closing(useful)
        seen: set[int] = set()
        for index in self._in_order(self._left & on_useful):
            rows = table.row[table.pods(index)].tolist()
            if (closed := self._closes(index)) is not None:
                rows += np.flatnonzero(closed & useful).tolist()
            for row in rows:
                if useful[row] and row not in seen:
                    seen.add(row)
                    yield row
                    if len(seen) >= NODES_TRIED:
                        return

    def _clear(self, row: int, task: Task) -> bool:
        """Evict on the node at `row` until `task` fits, and spare needless victims."""
        session, table = self._session, self._table
        here = table.on_row(row)
        if self._closed_by:
            closing = self._closing(np.arange(len(session.state.nodes.nodes)) == row)
            here = np.union1d(here, np.flatnonzero(closing))
        savepoint, before = self._statement.savepoint(), len(self.gone)
        lacking = self._lacks_room(task, row)
        for index in victims_of(session, table, here[self._left[here]]):
            if not lacking:
                break
            if self._left[index]:
                self._evict(index)
                lacking = self._lacks_room(task, row)
        if lacking:
            return False
        chosen = self.gone[before:]
        if len(chosen) <= 1:  # the only victim was needed, or none was
            return True
        needed = shortfall(session, task, row)
        # The last victims are worth most, so they are spared first.
        for index in reversed(list(chosen)):
            freed = table.held_on(index, row, task.shape.request.indices)
            if (needed + freed > 0).any() or table.goes_with_its_core(index, chosen):
                continue
            self._go_back(savepoint, before)
            others = [other for other in chosen if other != index]
            if all(map(self._evict_alone, others)) and not self._lacks_room(task, row):
                chosen, needed = others, needed + freed
        if self.gone[before:] == chosen:
            return True
        self._go_back(savepoint, before)
        return all(map(self._evict_alone, chosen))

    # -- victims ---------------------------------------------------------------------------------

    def _in_order(self, among: BoolColumn) -> Iterator[int]:
        """Yield the units of `among` in the order of eviction."""
        return victims_in_order(self._session, self._table, among)

    def _evict(self, index: int) -> bool:
        """Evict a unit if the rule allows it; before a core, the extra pods of its job."""
        unit, table = self._table.units[index], self._table
        if not is_empty(self._rule.against_unit(self._session, self._claim, unit)):
            if not self._with_moves or not table.returning.of(index):
                return False
            self._must_move.add(index)
        first = range(table.first_of_job(index), index) if unit.is_core else ()
        return all(self._evict_alone(i) for i in (*first, index) if self._left[i])

    def _evict_alone(self, index: int) -> bool:
        if not evict_unit(self._context, self.gone, index):
            return False
        self._left[index] = False
        self.gone.append(index)
        self._renew_finders((index,))
        return True

    def _spare(self) -> bool:
        """Leave out victims, the last first, if the claim still finds its places without them.

        The first trial leaves out no victim: the claim may find better places with all
        victims gone. Returns False if one of its places needs a victim as a peer.
        """
        asked, gone = len(self._claim.tasks), [self._table.units[i].tasks for i in self.gone]
        has_choice = asked > 1 or sum(map(len, gone)) > 1
        if not has_choice or asked * len(gone) > _MOST_TO_SPARE:
            return True
        start = Savepoint(0)
        best, plan = list(self.gone), self._statement.extract()
        for index in (None, *reversed(self.gone)):
            trial = [i for i in best if i != index]
            if index is not None and (
                index in self._to_empty or self._table.goes_with_its_core(index, trial)
            ):
                continue
            self._go_back(start, 0)
            going = np.zeros(len(self._table.units), dtype=np.bool_)
            going[trial] = True
            if can_never_fit(self._context, going) is not None:
                continue
            if all(self._evict_alone(i) for i in trial) and self._fits() and not self._stuck():
                best, plan = trial, self._statement.extract()
            elif index is None and not self._stands_without(trial, plan):
                return False
        self._go_back(start, 0)
        self._statement.replay(plan)
        self._left[best] = False
        self.gone = best
        return True

    def _stands_without(self, gone: Sequence[int], plan: Plan) -> bool:
        """Return whether rules about other pods allow the places of `plan` when `gone` have gone.

        Pods that were promised places before the last eviction may have counted on a victim.
        """
        if all(task.shape.unruled is None for task in self._claim.tasks):
            return True
        self._go_back(Savepoint(0), 0)
        rows = self._session.state.nodes.rows
        places = {step.task.uid: rows[step.node_name] for step in plan.operations}
        is_closed = self._session.placement.is_closed
        return all(map(self._evict_alone, gone)) and all(
            not is_closed(task, places[task.uid])
            and promise(self._statement, task, places[task.uid])
            for task in self._claim.tasks
        )

    def _fits(self) -> bool:
        """Place the whole claim without further evictions; return whether that was possible."""
        if self._session.calls.over_capacity(self._claim.job, self._claim.tasks) is not None:
            return False
        return all(self._place(task) for task in self._claim.tasks)
