"""Whether a node has, or could have, room for a pod. The search asks before it evicts.

Sums of resources are compared first, then plugins with room of their own, such as devices. Nothing
here changes the plan or an argument.
"""

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.victims import VictimTable


def useful_nodes(
    session: Session, table: VictimTable, left: BoolColumn, allowed: BoolColumn, task: Task
) -> BoolColumn:
    """Return the `allowed` nodes that could take `task` without the units `left`, as a new mask.

    Compares sums of resources only. `left`: mask over units; `allowed`: mask over node rows.
    """
    nodes, request, useful = session.state.nodes, task.shape.request, allowed.copy()
    nominated = session.nominated(session.state.jobs[task.job])
    freed = table.evictable(left, request.indices)
    every = np.arange(len(nodes.nodes))
    for held, (index, amount) in zip(freed, nodes.demands(request, every), strict=True):
        room = nodes.idle[index] + nodes.releasing[index] - nodes.pipelined[index]
        if nominated is not None:
            room = room - nominated.amounts[index]
        useful &= room + held >= amount
    return useful


def shortfall(session: Session, task: Task, row: int) -> NDArray[np.int64]:
    """Return how much of each requested resource is missing on the node at `row`.

    One entry for each resource of the request, in its order; at most 0 if nothing is missing.
    """
    return np.array(_lacking(session, task, row), dtype=np.int64)


def _lacking(session: Session, task: Task, row: int) -> list[int]:
    """Return what `shortfall` returns, as a list: it is asked for each victim."""
    nodes = session.state.nodes
    request = nodes.demand(row, task.shape.request)
    idle, releasing, pipelined = nodes.idle, nodes.releasing, nodes.pipelined
    lacking = [
        amount - int(idle[index, row]) - int(releasing[index, row]) + int(pipelined[index, row])
        for index, amount in zip(request.indices, request.amounts, strict=True)
    ]
    nominated = session.nominated(session.state.jobs[task.job])
    if nominated is not None:
        kept = nominated.amounts[list(request.indices), row].tolist()
        lacking = [amount + more for amount, more in zip(lacking, kept, strict=True)]
    return lacking


def lacks_room(session: Session, task: Task, row: int) -> bool:
    """Return whether `task` does not fit at `row`, even after all pending releases."""
    if any(amount > 0 for amount in _lacking(session, task, row)):
        return True
    rows = np.array([row])
    rooms = session.placement.rooms(task.shape)
    if not all(room.has_room(session, task.shape, rows, True).all() for room in rooms):
        return True
    if session.placement.is_closed(task, row):
        return True
    return any(failure.nodes[row] for failure in session.placement.task_failures(task))
