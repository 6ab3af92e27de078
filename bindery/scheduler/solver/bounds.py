"""Cheap proofs that no eviction can meet a claim, without a search."""

from collections import Counter

import numpy as np

from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.domains import Domain
from bindery.scheduler.model.fits import pods_per_node
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.resources import Request, total
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.context import SearchContext

_ENDLESS = 10**9


def slots(session: Session, request: Request, room: IntColumns, nodes: BoolColumn) -> int:
    """Return how many pods of `request` fit into `room` [resource, node] on `nodes` (mask)."""
    # A request of nothing fits without end on each node; the sum must not overflow.
    return int(pods_per_node(session.state.nodes, request, room, _ENDLESS)[nodes].sum())


def exceeds_idle(session: Session, claim: RoomClaim) -> Task | None:
    """Return the first pod of `claim` beyond what all nodes together have left; None if all fit.

    Moving other pods cannot help then: they need as much elsewhere.
    """
    nodes = session.state.nodes
    return _exceeding(session, claim, nodes.idle + nodes.releasing - nodes.pipelined)


def can_never_fit(context: SearchContext, eligible: BoolColumn) -> Task | None:
    """Return a pod of the claim that fits on no node even without the eligible victims, or None."""
    session, claim, table = context.session, context.claim, context.table
    nodes = session.state.nodes
    if len(claim.tasks) == 1:
        return None if _could_fit(context, eligible) else claim.tasks[0]
    room = nodes.idle + nodes.releasing - nodes.pipelined
    room = room + table.evictable(eligible, range(len(room)))
    kinds: Counter[tuple[Shape, Domain]] = Counter(
        (task.shape, context.domains.of(task)) for task in claim.tasks
    )
    for (shape, domain), count in kinds.items():
        passing = session.placement.passing(shape)
        if domain.nodes is not None:
            passing = passing & domain.nodes
        if slots(session, shape.request, room, passing) < count:
            return next(task for task in claim.tasks if task.shape is shape)
    return _exceeding(session, claim, room)


def _could_fit(context: SearchContext, eligible: BoolColumn) -> bool:
    """Return whether the only pod of the claim fits on some node without the eligible victims."""
    nodes, table, task = context.session.state.nodes, context.table, context.claim.tasks[0]
    request, domain = task.shape.request, context.domains.of(task)
    passing = context.session.placement.passing(task.shape)
    fits = passing.copy() if domain.nodes is None else passing & domain.nodes
    row = table.roomy.get(task.shape)
    if row is not None and fits[row] and _could_take(context, eligible, task, row):
        return True
    freed = table.evictable(eligible, request.indices)
    every = np.arange(len(nodes.nodes))
    for held, (index, amount) in zip(freed, nodes.demands(request, every), strict=True):
        room = nodes.idle[index] + nodes.releasing[index] - nodes.pipelined[index] + held
        # A node may serve a resource without counting it; see `NodesView.serves`.
        fits &= (room >= amount) | (amount == 0)
    if not fits.any():
        return False
    table.roomy[task.shape] = int(fits.argmax())
    return True


def _could_take(context: SearchContext, eligible: BoolColumn, task: Task, row: int) -> bool:
    """Return whether the node at `row` has room for `task` without the eligible victims."""
    nodes = context.session.state.nodes
    request = nodes.demand(row, task.shape.request)
    freed = context.table.evictable_on(eligible, request.indices, row)
    idle, releasing, pipelined = nodes.idle, nodes.releasing, nodes.pipelined
    return all(
        amount <= int(idle[at, row]) + int(releasing[at, row]) - int(pipelined[at, row]) + held
        for at, amount, held in zip(request.indices, request.amounts, freed, strict=True)
    )


def _exceeding(session: Session, claim: RoomClaim, room: IntColumns) -> Task | None:
    """Return the first pod of `claim` whose requests, added up, exceed `room`; None if none does.

    `room`: [resource, node]. Counts the least that each pod takes on any node.
    """
    # The least on any node, as some devices take more on one node than on another.
    nodes = session.state.nodes
    asked = total(nodes.least_on_nodes(task.shape.request) for task in claim.tasks)
    left = {index: int(np.maximum(room[index], 0).sum()) for index in asked}
    if all(amount <= left[index] for index, amount in asked.items()):
        return None
    for task in claim.tasks:
        request = nodes.least_on_nodes(task.shape.request)
        for index, amount in zip(request.indices, request.amounts, strict=True):
            left[index] -= amount
            if left[index] < 0:
                return task
    return None
