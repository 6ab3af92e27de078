"""Laying out the ranks of a gang: neighbours in rank become neighbours in the tree.

Equal pods can change places, so the places that a plan has found are given out again in the order
of the tree. The plan stays as good as it was: the same nodes hold the same number of such pods.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Plan, PlannedOperation, Savepoint, Statement


def lay_out(
    session: Session, job: Job, statement: Statement, part: Callable[[Task], Hashable]
) -> None:
    """Exchange the places of equal pods of `job` in `statement` so that they follow the ranks.

    `part`: the segment or other part of the gang that a pod must not leave.
    """
    alike: defaultdict[Hashable, list[Operation]] = defaultdict(list)
    for operation in statement.operations:
        task = operation.task
        if task.rank and not session.placement.is_filtered(task.shape):
            alike[task.shape, task.sub_group, part(task)].append(operation)
    changed: dict[Uid, Operation] = {}
    for operations in alike.values():
        changed |= _exchanged(session, job, operations)
    if changed:
        _exchange(session, statement, changed)


def _exchanged(session: Session, job: Job, operations: Sequence[Operation]) -> dict[Uid, Operation]:
    """Return pod -> the operation whose place it gets, where that is another node."""
    if len(operations) < 2:
        return {}
    found = session.calls.tree_positions(job)
    position = session.position if found is None else found
    by_rank = sorted((o.task for o in operations), key=lambda task: task.order)
    in_tree = sorted(operations, key=lambda o: int(position[o.row]))
    own = {o.task.uid: o.row for o in operations}
    pairs = zip(by_rank, in_tree, strict=True)
    return {t.uid: o for t, o in pairs if own[t.uid] != o.row}


def _exchange(session: Session, statement: Statement, changed: dict[Uid, Operation]) -> None:
    plan, nodes = statement.extract(), session.state.nodes
    steps = []
    for step in plan.operations:
        instead = changed.get(step.task.uid)
        if instead is not None:
            step = PlannedOperation(  # noqa: PLW2901  # the same step at another place
                instead.kind, step.task, nodes.name(instead.row), step.reason
            )
        steps.append(step)
    statement.rollback(Savepoint(0))
    try:
        statement.replay(Plan(tuple(steps)))
    except LedgerRefusalError:  # devices of the nodes may differ where sums do not
        statement.replay(plan)
