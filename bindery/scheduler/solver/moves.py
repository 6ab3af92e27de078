"""Taking victims out and moving them: those that find another place are moved, not just killed.

What the search and the rearrangement do alike in their Statements: evict whole units, promise
places, and move who can be moved once the claim has its places.
"""

from collections.abc import Sequence

from bindery.api.gpushare import WHOLE
from bindery.scheduler.ledgers.base import LedgerRefusalError, OperationKind
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Job, Task, TaskStatus
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Plan, Savepoint, Statement
from bindery.scheduler.solver.context import SearchContext


def over_capacity(session: Session, job: Job, tasks: Sequence[Task]) -> Refusal | None:
    """Return what the first gate says against `tasks` in the queue of `job`."""
    for gate in session.plugins.capacity_gates:
        refusal = gate.over_capacity(session, job, tasks)
        if refusal is not None:
            return refusal
    return None


def evict_unit(context: SearchContext, gone: Sequence[int], index: int) -> bool:
    """Evict all pods of the unit at `index`, in their order, or none; return whether it was done.

    `gone`: the units that the plan has evicted. The rule may limit how many jobs they belong to.
    """
    statement, table, rule = context.statement, context.table, context.rule
    most = rule.most_jobs
    if most is not None and table.job_count((*gone, index)) > most:
        return False
    table.returning.of(index)  # the answer is cached now, while the gang is still whole
    savepoint = statement.savepoint()
    try:
        for task in table.units[index].tasks:
            statement.evict(task, f"{rule.name} for {context.claim.job.key}")
    except LedgerRefusalError:
        statement.rollback(savepoint)
        return False
    return True


def promise(statement: Statement, task: Task, row: int) -> bool:
    """Promise `task` the node at `row`; return False where a ledger refuses it."""
    try:
        statement.pipeline(task, row)
    except LedgerRefusalError:
        return False
    return True


def move_victims(context: SearchContext, gone: Sequence[int]) -> set[int]:
    """Promise other places to victims where there are any; return the units that have one.

    The last that went, which is worth most, comes first.
    """
    table, moved = context.table, set[int]()
    for index in reversed(gone):
        unit = table.units[index]
        may_stay = len(unit.tasks) > 1  # of a gang that moves some may stand well
        if table.returning.of(index) and move_all(context, unit.job, unit.tasks, may_stay=may_stay):
            moved.add(index)
    return moved


def move_all(context: SearchContext, job: Job, tasks: Sequence[Task], *, may_stay: bool) -> bool:
    """Promise other places to the evicted `tasks` of `job`, all in one of the sets of nodes that
    plugins leave to it, or to none of them. `may_stay`: the nodes on which they stand will do, too.
    """
    session, statement = context.session, context.statement
    if over_capacity(session, job, tasks) is not None:
        return False
    savepoint = statement.savepoint()
    for domain in session.domains(job):
        if all(_move(session, statement, t, domain, may_stay=may_stay) for t in tasks) and all(
            plugin.is_pipelined(session, job) for plugin in session.plugins.pipelining
        ):
            return True
        statement.rollback(savepoint)
    return False


def keep_in_place(statement: Statement) -> None:
    """Take back the evictions of pods that `statement` has promised the nodes on which they stand.

    Nothing else changes: they would leave as much room as they take, unless what makes the room is
    that they change devices on their node; then all stays as it was.
    """
    stand = {o.task.uid: o.row for o in statement.operations if o.kind is OperationKind.EVICT}
    back = {
        o.task.uid
        for o in statement.operations
        if o.kind is OperationKind.PIPELINE and stand.get(o.task.uid) == o.row
    }
    if not back:
        return
    plan = statement.extract()
    steps = [step for step in plan.operations if step.task.uid not in back]
    # Promises must not ask for room before all who leave have left.
    steps.sort(key=lambda step: step.kind is not OperationKind.EVICT)
    statement.rollback(Savepoint(0))
    try:
        statement.replay(Plan(tuple(steps)))
    except LedgerRefusalError:
        statement.replay(plan)


def _move(
    session: Session,
    statement: Statement,
    task: Task,
    domain: BoolColumn | None,
    *,
    may_stay: bool,
) -> bool:
    """Promise the evicted `task` another place in `domain`. `may_stay`: its own will do, too."""
    assert task.status is TaskStatus.RELEASING, "only what was evicted is moved"
    finder = session.placement.finder(session.state.jobs[task.job], domain)
    place = finder.best(task)
    if place is not None and place.row == task.row and not may_stay:
        if _changes_devices(session, statement, task):
            return True
        finder.exclude(task, task.row, "it is moved away from it")
        place = finder.best(task)
    return place is not None and promise(statement, task, place.row)


def _changes_devices(session: Session, statement: Statement, task: Task) -> bool:
    """Promise `task` parts of other GPUs of its own node, if that is what it gets there."""
    table, savepoint = session.state.nodes.devices, statement.savepoint()
    share = task.shape.request.share
    if share is None or share.portion == WHOLE or not promise(statement, task, task.row):
        return False
    old, new = table.held_by.get(task.uid), table.promised_to.get(task.uid)
    if old is not None and new is not None and old.devices != new.devices:
        return True
    statement.rollback(savepoint)
    return False
