"""Any sequence of operations on any number of Statements, with a ledger that refuses at random.

The model of a Statement is the list of its operations; all columns are recounted from the statuses
of the pods after every step.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bindery.api.configuration import SchedulerConfiguration
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.jobs import Task, TaskStatus
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import (
    Plan,
    Savepoint,
    Statement,
    StatementClosedError,
    StatementState,
)
from tests.scheduler.plannedworlds import World, worlds
from tests.scheduler.recounting import charged, recount, view
from tests.scheduler.schedulerworld import NOW, add, session_of


class MoodyLedger:
    """A third-party ledger: keeps its own books, and refuses on request."""

    name = "moody"

    def __init__(self) -> None:
        self.entries: dict[str, list[tuple[str, int]]] = {}
        """Pod uid -> kind of operation, row; the oldest first."""
        self.refuses_after = -1
        """How many more operations it takes before it refuses one; below 0: never."""

    def apply(self, operation: Operation) -> None:
        if self.refuses_after == 0:
            self.refuses_after = -1
            raise LedgerRefusalError("not in the mood")
        self.refuses_after -= 1
        log = self.entries.setdefault(operation.task.uid, [])
        log.append((operation.kind.value, operation.row))
        # A pod takes part once; only one that is moved is evicted and then promised a place.
        assert len(log) == 1 or [kind for kind, _ in log] == ["evict", "pipeline"]

    def revert(self, operation: Operation) -> None:
        log = self.entries[operation.task.uid]
        assert log.pop() == (operation.kind.value, operation.row)
        if not log:
            del self.entries[operation.task.uid]


class MoodyPlugin:
    """Offers the ledger to a session."""

    name = "moody"

    def __init__(self) -> None:
        self.books = MoodyLedger()

    def ledger(self, session: Session, state: PlanState) -> MoodyLedger:  # noqa: ARG002
        return self.books


class StatementMachine(RuleBasedStateMachine):
    """I1 to I6 of any operations."""

    statements: Bundle[Statement] = Bundle("statements")
    savepoints: Bundle[tuple[Statement, Savepoint, int]] = Bundle("savepoints")
    plans: Bundle[Plan] = Bundle("plans")

    @initialize(world=worlds())
    def begin(self, world: World) -> None:
        self.cluster = Cluster(SchedulerConfiguration(), lambda: NOW)
        add(self.cluster, *world.objects)
        self.plugin = MoodyPlugin()
        self.session = session_of(self.cluster, self.plugin)
        self.first = self.look()
        self.opened: list[Statement] = []
        self.baseless: list[Statement] = []
        """Statements that may have promised room of an eviction that another one has undone."""
        self.committed: list[Operation] = []
        self.tasks = sorted(self.cluster.state.tasks.values(), key=lambda task: task.uid)

    def look(self) -> tuple[Any, ...]:
        """Return everything that a discard must restore, bit for bit."""
        state, session = self.cluster.state, self.session
        nodes = state.nodes
        columns = [nodes.allocatable, nodes.idle, nodes.releasing, nodes.pipelined, nodes.foreign]
        columns += [state.queues.allocated, state.queues.non_preemptible, state.queues.pending]
        columns.append(state.queues.releasing)
        return (
            *(column.tobytes() for column in columns),
            session.queue_ledger.allocated.tobytes(),
            session.queue_ledger.non_preemptible.tobytes(),
            session.queue_ledger.releasing.tobytes(),
            view(state),
            {uid: tuple(log) for uid, log in self.plugin.books.entries.items()},
        )

    # -- operations ----------------------------------------------------------------------------

    @rule(target=statements)
    def open_statement(self) -> Statement:
        return self._opened()

    def _opened(self) -> Statement:
        statement = self.session.statement()
        self.opened.append(statement)
        return statement

    @precondition(lambda self: self.tasks and self.cluster.state.nodes.rows)
    @rule(statement=statements, data=st.data(), refuses=st.integers(0, 5))
    def allocate(self, statement: Statement, data: st.DataObject, refuses: int) -> None:
        task, row = self._drawn(data, TaskStatus.PENDING)
        if self._tried(statement, refuses, lambda: statement.allocate(task, row)):
            request = task.shape.request
            assert (self.cluster.state.nodes.idle[list(request.indices), row] >= 0).all()

    @precondition(lambda self: self.tasks and self.cluster.state.nodes.rows)
    @rule(statement=statements, data=st.data(), refuses=st.integers(0, 5))
    def pipeline(self, statement: Statement, data: st.DataObject, refuses: int) -> None:
        task, row = self._drawn(data, TaskStatus.PENDING)
        self._tried(statement, refuses, lambda: statement.pipeline(task, row))

    @precondition(lambda self: self.tasks and self.cluster.state.nodes.rows)
    @rule(statement=statements, data=st.data(), refuses=st.integers(0, 5))
    def move(self, statement: Statement, data: st.DataObject, refuses: int) -> None:
        """Promise another place to a pod that is evicted; only the Statement that evicts it may."""
        task, row = self._drawn(data, TaskStatus.RELEASING)
        was_releasing = task.status is TaskStatus.RELEASING
        if self._tried(statement, refuses, lambda: statement.pipeline(task, row)):
            evicted = [o.task for o in statement.operations if o.kind is OperationKind.EVICT]
            assert not was_releasing or task in evicted

    @precondition(lambda self: self.tasks)
    @rule(statement=statements, data=st.data(), refuses=st.integers(0, 5))
    def evict(self, statement: Statement, data: st.DataObject, refuses: int) -> None:
        task, _ = self._drawn(data, TaskStatus.RUNNING)
        self._tried(statement, refuses, lambda: statement.evict(task, "for a test"))

    def _drawn(self, data: st.DataObject, wanted: TaskStatus) -> tuple[Task, int]:
        """Draw a task, mostly one of which the operation makes sense, and a row."""
        fitting = [task for task in self.tasks if task.status is wanted]
        any_task = not fitting or data.draw(st.integers(0, 9)) == 0
        task = data.draw(st.sampled_from(self.tasks if any_task else fitting))
        rows = sorted(self.cluster.state.nodes.rows.values())
        return task, data.draw(st.sampled_from(rows)) if rows else -1

    def _tried(self, statement: Statement, refuses: int, operation: Any) -> bool:
        """Do `operation`; return whether it was done. If not, nothing may have changed."""
        before, log = self.look(), statement.operations
        self.plugin.books.refuses_after = 0 if refuses == 0 else -1
        try:
            operation()
        except StatementClosedError:
            assert statement.state is not StatementState.OPEN
        except LedgerRefusalError:
            assert statement.state is StatementState.OPEN
        else:
            assert statement.state is StatementState.OPEN
            assert len(statement.operations) == len(log) + 1
            return True
        finally:
            self.plugin.books.refuses_after = -1
        assert self.look() == before
        assert statement.operations == log
        return False

    # -- going back ----------------------------------------------------------------------------

    @rule(target=savepoints, statement=statements)
    def take_savepoint(self, statement: Statement) -> tuple[Statement, Savepoint, int]:
        if statement.state is not StatementState.OPEN:
            with pytest.raises(StatementClosedError):
                statement.savepoint()
            return statement, Savepoint(0), -1
        return statement, statement.savepoint(), len(statement.operations)

    @rule(taken=savepoints)
    def rollback(self, taken: tuple[Statement, Savepoint, int]) -> None:
        statement, savepoint, length = taken
        log = statement.operations
        if statement.state is not StatementState.OPEN or length > len(log):
            with pytest.raises(StatementClosedError):
                statement.rollback(savepoint)
            assert statement.operations == log
        else:
            self._undoing(statement, log[length:])
            statement.rollback(savepoint)
            assert statement.operations == log[:length]

    @rule(statement=statements)
    def discard(self, statement: Statement) -> None:
        if statement.state is not StatementState.OPEN:
            before = self.look()
            with pytest.raises(StatementClosedError):
                statement.discard()
            assert self.look() == before
        else:
            self._undoing(statement, statement.operations)
            statement.discard()
            assert statement.operations == ()

    def _undoing(self, statement: Statement, operations: Sequence[Operation]) -> None:
        """Note whose promises lose their ground when `operations` of `statement` are undone."""
        if any(operation.kind is OperationKind.EVICT for operation in operations):
            self.baseless += [s for s in self.opened if s is not statement and s.operations]

    # -- plans ---------------------------------------------------------------------------------

    @precondition(lambda self: self.opened)
    @rule(target=plans, statement=statements)
    def extract(self, statement: Statement) -> Plan:
        if statement.state is not StatementState.OPEN:
            with pytest.raises(StatementClosedError):
                statement.extract()
            return Plan(())
        return statement.extract()

    @rule(statement=statements, plan=plans, refuses=st.integers(0, 4))
    def replay(self, statement: Statement, plan: Plan, refuses: int) -> None:
        before, log = self.look(), statement.operations
        self.plugin.books.refuses_after = refuses if refuses < 3 else -1
        try:
            statement.replay(plan)
        except StatementClosedError:
            assert statement.state is not StatementState.OPEN
        except LedgerRefusalError:
            assert statement.state is StatementState.OPEN
        else:
            assert len(statement.operations) == len(log) + len(plan.operations)
            return
        finally:
            self.plugin.books.refuses_after = -1
        assert self.look() == before
        assert statement.operations == log

    @rule(target=statements, statement=statements, refuses=st.integers(0, 3))
    def discard_and_replay(self, statement: Statement, refuses: int) -> Statement:
        others = [s for s in self.opened if s is not statement and s.operations]
        if statement.state is not StatementState.OPEN or any(
            other.state is StatementState.OPEN for other in others
        ):
            return self._opened()
        if statement in self.baseless:  # then there may be no room for its plan any more
            return self._opened()
        before, plan = self.look(), statement.extract()
        statement.discard()
        again = self._opened()
        if refuses < len(plan.operations):
            empty = self.look()
            self.plugin.books.refuses_after = refuses
            with pytest.raises(LedgerRefusalError, match="not in the mood"):
                again.replay(plan)
            assert self.look() == empty
            assert again.operations == ()
        again.replay(plan)
        assert self.look() == before
        assert again.extract() == plan
        return again

    @rule(statement=statements, other=statements)
    def merge(self, statement: Statement, other: Statement) -> None:
        before = self.look()
        logs = statement.operations, other.operations
        if (
            statement.state is StatementState.OPEN
            and other.state is StatementState.OPEN
            and other is not statement
        ):
            statement.merge([other])
            assert statement.operations == logs[0] + logs[1]
            if other in self.baseless:
                self.baseless.append(statement)
            with pytest.raises(StatementClosedError, match="merged"):
                other.savepoint()
        else:
            with pytest.raises(StatementClosedError):
                statement.merge([other])
            assert statement.operations == logs[0]
        assert self.look() == before

    # -- the end -------------------------------------------------------------------------------

    @rule(statement=statements)
    def commit(self, statement: Statement) -> None:
        before = self.look()
        if statement.state is not StatementState.OPEN:
            with pytest.raises(StatementClosedError):
                statement.commit()
        else:
            self.committed += statement.commit()
        assert self.look() == before

    def teardown(self) -> None:
        if not hasattr(self, "opened"):
            return
        for statement in self.opened:
            if statement.state is StatementState.OPEN:
                with statement:
                    pass  # leaving it without a commit discards
        if not self.committed:
            assert self.look() == self.first
        planned = {operation.task.uid for operation in self.committed}
        assert set(self.plugin.books.entries) == planned

    # -- what always holds ---------------------------------------------------------------------

    @invariant()
    def columns_are_what_the_pods_say(self) -> None:
        seen, counted = view(self.cluster.state), recount(self.cluster.state)
        # A Statement leaves `waiting` to the commit: nothing reads it during a session.
        assert (seen.nodes, seen.queues) == (counted.nodes, counted.queues)
        assert seen.counts == counted.counts

    @invariant()
    def queues_hold_what_is_below_them(self) -> None:
        state, ledger = self.cluster.state, self.session.queue_ledger
        for name, row in state.queues.rows.items():
            below = [
                task
                for task in self.tasks
                if task.is_ours
                and (task.status.is_active or task.status is TaskStatus.PIPELINED)
                and row in ledger.chains[task.queue_row]
            ]
            pinned = [task for task in below if not task.is_preemptible]
            for column, tasks in ((ledger.allocated, below), (ledger.non_preemptible, pinned)):
                held = Counter[str]()
                for task in tasks:
                    place = state.nodes.name(task.row) if task.row >= 0 else ""
                    held.update(charged(state, task.shape.request, place))
                amounts = zip(state.axis.names, column[:, row].tolist(), strict=True)
                assert dict(amounts) == {axis: held[axis] for axis in state.axis.names}, name
