"""Steps that `search` and `rearrange` share: evict whole units, promise places, move victims.

A victim that fits on another node is moved: it is evicted and promised a place there.
"""

from collections.abc import Sequence
from itertools import islice

from bindery.api.gpushare import WHOLE
from bindery.scheduler.ledgers.base import LedgerRefusalError, OperationKind
from bindery.scheduler.model.evictions import claimant_of, room_reason
from bindery.scheduler.model.jobs import Job, Task, TaskStatus
from bindery.scheduler.placing.domains import DomainChoices, DomainFinders
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Plan, Savepoint, Statement, promise
from bindery.scheduler.solver.context import SearchContext

_MOST_CHOICES = 8
"""How many choices of domains are tried for pods that move."""


def evict_unit(context: SearchContext, gone: Sequence[int], index: int) -> bool:
    """Evict all pods of the unit at `index`, in their order, or none; return whether it was done.

    `gone`: the units that the plan has evicted. The rule may limit how many jobs they belong to.
    """
    statement, table, rule = context.statement, context.table, context.rule
    context.session.timer.check()
    most = rule.most_jobs
    if most is not None and table.job_count((*gone, index)) > most:
        return False
    table.returning.of(index)  # the answer is cached now, while the gang is still whole
    savepoint = statement.savepoint()
    try:
        claimant = claimant_of(context.claim.job)
        for task in table.units[index].tasks:
            statement.evict(task, room_reason(rule.name, claimant, task.namespace))
    except LedgerRefusalError:
        statement.rollback(savepoint)
        return False
    return True


def units_to_empty(context: SearchContext) -> list[int]:
    """Return the units with the pods that must go before the domains of the claim can be used."""
    units = (context.table.of_pod[uid] for uid in context.domains.going)
    return sorted(set(units), key=lambda index: int(context.table.place[index]))


def move_victims(context: SearchContext, gone: Sequence[int]) -> set[int]:
    """Promise other places to the victims `gone`, where there are any; return the units moved.

    The most valuable unit, which was evicted last, chooses first.
    """
    table, moved = context.table, set[int]()
    for index in reversed(gone):
        unit = table.units[index]
        may_stay = len(unit.tasks) > 1  # some pods of a gang may already be on good nodes
        if table.returning.of(index) and move_all(context, unit.job, unit.tasks, may_stay=may_stay):
            moved.add(index)
    return moved


def move_all(context: SearchContext, job: Job, tasks: Sequence[Task], *, may_stay: bool) -> bool:
    """Promise other places to all evicted `tasks` of `job`, or to none; return whether it was done.

    All places are in the domains of `job`, beside its pods that stay. `may_stay`: a pod may also
    keep its node.
    """
    session, statement = context.session, context.statement
    if session.calls.over_capacity(job, tasks) is not None:
        return False
    savepoint = statement.savepoint()
    # A gang must be in its domains after the move, too.
    for found in islice(DomainChoices(session, job).of(tasks), _MOST_CHOICES):
        finders = DomainFinders(session, job, found)
        if all(
            _move(session, statement, t, finders, may_stay=may_stay) for t in tasks
        ) and session.calls.is_pipelined(job):
            return True
        statement.rollback(savepoint)
    return False


def keep_in_place(statement: Statement) -> None:
    """Take back the evictions of pods that `statement` promises their own nodes again.

    The rest of the plan stays. Such a pod frees as much as it takes, so the plan normally still
    fits. If the room comes from a change of devices on the node, the plan is left as it was.
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
    # Evictions first: a promise must not be checked before the room for it is freed.
    steps.sort(key=lambda step: step.kind is not OperationKind.EVICT)
    statement.rollback(Savepoint(0))
    try:
        statement.replay(Plan(tuple(steps)))
    except LedgerRefusalError:
        statement.replay(plan)  # the evictions were needed after all


def _move(
    session: Session,
    statement: Statement,
    task: Task,
    finders: DomainFinders,
    *,
    may_stay: bool,
) -> bool:
    """Promise the evicted `task` a place in its domain; return False if there is none.

    `may_stay`: its own node counts as a place too.
    """
    assert task.status is TaskStatus.RELEASING, "only what was evicted is moved"
    place = finders.of(task).best(task)
    if place is not None and place.row == task.row and not may_stay:
        # Other GPUs of the same node count as a move: they can make room for a whole GPU.
        if _changes_devices(session, statement, task):
            return True
        finder = finders.new(task)  # the shared finder must not lose the node for equal pods
        finder.exclude(task, task.row, "it is moved away from it")
        place = finder.best(task)
    return place is not None and promise(statement, task, place.row)


def _changes_devices(session: Session, statement: Statement, task: Task) -> bool:
    """Promise `task` parts of other GPUs of its own node; return False if it would get the same."""
    table, savepoint = session.state.nodes.devices, statement.savepoint()
    share = task.shape.request.share
    if share is None or share.portion == WHOLE or not promise(statement, task, task.row):
        return False
    old, new = table.held_by.get(task.uid), table.promised_to.get(task.uid)
    if old is not None and new is not None and old.devices != new.devices:
        return True
    statement.rollback(savepoint)
    return False
