"""The Statement: a transaction over the plan.

    with session.statement() as statement:
        savepoint = statement.savepoint()
        statement.allocate(task, row)
        statement.rollback(savepoint)
        statement.commit()

Leaving the block without `commit` discards the Statement. Every operation enters all ledgers or
none. Undoing replays the typed log backwards, so a discard restores everything by construction.
Cost: O(1) to open, O(operations) to undo.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NewType, Self, TypeVar

from bindery.scheduler.ledgers.base import Ledger, LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.jobs import NO_ROW, Job, Task, TaskStatus, Uid
from bindery.scheduler.model.state import PlanState

Item = TypeVar("Item")
Savepoint = NewType("Savepoint", int)
"""A position in a Statement's log."""

_STATUS_AFTER = {
    OperationKind.ALLOCATE: TaskStatus.ALLOCATED,
    OperationKind.PIPELINE: TaskStatus.PIPELINED,
    OperationKind.EVICT: TaskStatus.RELEASING,
}


class StatementClosedError(RuntimeError):
    """A Statement was used after its commit, discard or merge; a bug of the caller."""


class StatementState(Enum):
    """Whether a Statement can still be used."""

    OPEN = "open"
    COMMITTED = "committed"
    DISCARDED = "discarded"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class PlannedOperation:
    """One step of a plan, independent of the state in which it was made."""

    kind: OperationKind
    task: Task
    node_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a Statement. A later Statement can replay them, and users can see them."""

    operations: tuple[PlannedOperation, ...]


class Statement:
    """One transaction. Changes tasks, jobs and ledgers, and undoes all of it unless committed."""

    def __init__(self, state: PlanState, ledgers: Sequence[Ledger]) -> None:
        self._plan_state = state
        self._ledgers = ledgers
        self._log: list[Operation] = []
        self._evicted: set[Uid] = set()
        """Pods with an eviction in the log."""
        self.state = StatementState.OPEN

    # -- operations ----------------------------------------------------------------------------

    def allocate(self, task: Task, row: int) -> None:
        """Plan the pending `task` onto idle room of the node at `row`.

        Raises:
            LedgerRefusalError: it does not fit; nothing has changed.
        """
        self._demand(task, TaskStatus.PENDING)
        self._do(Operation(OperationKind.ALLOCATE, task, row, "", task.status, task.row))

    def pipeline(self, task: Task, row: int) -> None:
        """Promise `task` room on the node at `row` that is free or being released.

        The task is pending, or this Statement evicts it; then it moves to the node at `row`. A task
        that another Statement evicts is refused: undoing that one first would leave it halfway.

        Raises:
            LedgerRefusalError: it does not fit; nothing has changed.
        """
        moves = task.uid in self._evicted  # the eviction is in this Statement
        self._demand(task, TaskStatus.RELEASING if moves else TaskStatus.PENDING)
        self._do(Operation(OperationKind.PIPELINE, task, row, "", task.status, task.row))

    def evict(self, task: Task, reason: str) -> None:
        """Plan to take `task` off its node, for `reason`.

        Raises:
            LedgerRefusalError: a ledger cannot take it; nothing has changed.
        """
        self._demand(task, TaskStatus.RUNNING)
        if task.row == NO_ROW or not task.is_ours:
            raise LedgerRefusalError(f"pod {task.name} is not on a node that this scheduler plans")
        self._do(Operation(OperationKind.EVICT, task, task.row, reason, task.status, task.row))

    def end(self, task: Task) -> None:
        """Plan as if `task`, which runs or will soon, had ended. The caller must not commit it.

        Raises:
            LedgerRefusalError: a ledger cannot take it; nothing has changed.
        """
        self._demand_open()
        self._do(Operation(OperationKind.EVICT, task, task.row, "", task.status, task.row))

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations so far, oldest first."""
        return tuple(self._log)

    # -- going back ----------------------------------------------------------------------------

    def savepoint(self) -> Savepoint:
        """Return a position for `rollback`."""
        self._demand_open()
        return Savepoint(len(self._log))

    def rollback(self, savepoint: Savepoint) -> None:
        """Undo everything since `savepoint`."""
        self._demand_open()
        if savepoint > len(self._log):
            raise StatementClosedError("the savepoint has been rolled back already")
        undone = self._log[savepoint:]
        del self._log[savepoint:]
        _last_first(self._undo, undone)

    def discard(self) -> None:
        """Undo everything; the Statement cannot be used again."""
        self._demand_open()
        try:
            self.rollback(Savepoint(0))
        finally:
            self.state = StatementState.DISCARDED

    # -- plans ---------------------------------------------------------------------------------

    def extract(self, since: Savepoint = Savepoint(0)) -> Plan:  # it is a number
        """Return the operations since a savepoint as a plan that outlives this Statement."""
        self._demand_open()
        return Plan(
            tuple(
                PlannedOperation(o.kind, o.task, self._plan_state.nodes.name(o.row), o.reason)
                for o in self._log[since:]
            )
        )

    def replay(self, plan: Plan) -> None:
        """Do the whole `plan`, or none of it.

        Raises:
            LedgerRefusalError: a step does not fit, or its node is gone; nothing has changed.
        """
        savepoint = self.savepoint()
        try:
            for step in plan.operations:
                self._replay_step(step)
        except Exception:
            self.rollback(savepoint)
            raise

    def merge(self, others: Iterable["Statement"]) -> None:
        """Take over the operations of `others`, in order; they cannot be used again."""
        self._demand_open()
        for other in others:
            if other is self:
                raise StatementClosedError("a Statement cannot be merged into itself")
            self._extend(other.surrender())

    def surrender(self) -> tuple[Operation, ...]:
        """Return the operations for another Statement; the Statement cannot be used afterwards."""
        self._demand_open()
        self.state = StatementState.MERGED
        return tuple(self._log)

    # -- the end -------------------------------------------------------------------------------

    def take_over(self, operations: Iterable[Operation]) -> None:
        """Take over operations of a committed Statement, to undo them later."""
        self._demand_open()
        self._extend(operations)

    def commit(self) -> tuple[Operation, ...]:
        """Make the plan final and return its operations; this Statement cannot be used again."""
        self._demand_open()
        self.state = StatementState.COMMITTED
        return tuple(self._log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.state is StatementState.OPEN:
            self.discard()

    # -- inside --------------------------------------------------------------------------------

    def _demand_open(self) -> None:
        if self.state is not StatementState.OPEN:
            raise StatementClosedError(f"the Statement has been {self.state.value}")

    def _demand(self, task: Task, status: TaskStatus) -> None:
        self._demand_open()
        if self._plan_state.tasks.get(task.uid) is not task:
            raise LedgerRefusalError(f"pod {task.name} has changed or gone since it was looked at")
        if task.status is not status:
            raise LedgerRefusalError(f"pod {task.name} is {task.status.value}, not {status.value}")

    def _do(self, operation: Operation) -> None:
        applied = 0
        try:
            # The tasks change last, so that ledgers see them as they were before the operation.
            for ledger in self._ledgers:
                ledger.apply(operation)
                applied += 1
        except Exception:
            _revert(self._ledgers[:applied], operation)
            raise
        self._plan_state.move(operation.task, _STATUS_AFTER[operation.kind], operation.row)
        self._note(operation)

    def _extend(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self._note(operation)

    def _note(self, operation: Operation) -> None:
        self._log.append(operation)
        if operation.kind is OperationKind.EVICT:
            self._evicted.add(operation.task.uid)

    def _undo(self, operation: Operation) -> None:
        if operation.kind is OperationKind.EVICT:
            self._evicted.discard(operation.task.uid)
        self._plan_state.move(operation.task, operation.previous_status, operation.previous_row)
        _revert(self._ledgers, operation)

    def _replay_step(self, step: PlannedOperation) -> None:
        row = self._plan_state.nodes.rows.get(step.node_name, NO_ROW)
        if row == NO_ROW:
            raise LedgerRefusalError(f"node {step.node_name} is gone")
        if step.kind is OperationKind.EVICT:
            self.evict(step.task, step.reason)
        elif step.kind is OperationKind.PIPELINE:
            self.pipeline(step.task, row)
        else:
            self.allocate(step.task, row)


def promise(statement: Statement, task: Task, row: int) -> bool:
    """Promise `task` the node at `row`; return False if a ledger refuses."""
    try:
        statement.pipeline(task, row)
    except LedgerRefusalError:
        return False
    return True


def _revert(ledgers: Sequence[Ledger], operation: Operation) -> None:
    """Take `operation` back from all `ledgers`, last first, even if one of them fails."""
    _last_first(lambda ledger: ledger.revert(operation), list(ledgers))


def _last_first(undo: Callable[[Item], None], items: list[Item]) -> None:
    """Call `undo` for all `items`, last first, even if a plugin's ledger fails; take them out."""
    failure: Exception | None = None
    while items:
        try:
            while items:
                undo(items.pop())
        except Exception as error:  # raised below
            failure = error
    if failure is not None:
        raise failure


@dataclass(frozen=True, slots=True)
class Commit:
    """The operations of a committed Statement, with their job."""

    job: Job
    operations: tuple[Operation, ...]
    is_gang: bool
    """Whether its pods must be bound together; False for an extra or independent pod."""
