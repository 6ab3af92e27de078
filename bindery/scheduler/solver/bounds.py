"""Cheap proofs that a claim cannot be met, whatever is evicted: answered without a search."""

from collections import Counter

import numpy as np

from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.resources import Request
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.session import Session
from bindery.scheduler.solver.rules import Claim
from bindery.scheduler.solver.victims import VictimTable


def slots(request: Request, room: IntColumns, nodes: BoolColumn) -> int:
    """Return how many pods of `request` fit into `room` [resource, node] on `nodes` (mask)."""
    fit = np.full(room.shape[1], np.iinfo(np.int64).max, dtype=np.int64)
    for index, amount in zip(request.indices, request.amounts, strict=True):
        np.minimum(fit, np.maximum(room[index], 0) // amount, out=fit)
    return int(fit[nodes].clip(max=10**9).sum())


def exceeds_idle(session: Session, claim: Claim) -> bool:
    """Return whether `claim` asks for more than all nodes have left together: moving others, who
    need as much elsewhere, cannot help then.
    """
    nodes = session.state.nodes
    return _exceeds(claim, nodes.idle + nodes.releasing - nodes.pipelined)


def can_never_fit(session: Session, claim: Claim, table: VictimTable, eligible: BoolColumn) -> bool:
    """Return whether `claim` fits nowhere even when all eligible victims have gone."""
    nodes = session.state.nodes
    room = nodes.idle + nodes.releasing - nodes.pipelined
    freed = table.evictable(eligible, range(len(room)))
    room = room + freed
    shapes: Counter[Shape] = Counter(task.shape for task in claim.tasks)
    for shape, count in shapes.items():
        passing = session.placement.passing(shape)
        if slots(shape.request, room, passing) < count:
            return True
    return _exceeds(claim, room)


def _exceeds(claim: Claim, room: IntColumns) -> bool:
    """Return whether more of a resource is asked for than there is in `room` on all nodes."""
    return any(amount > np.maximum(room[index], 0).sum() for index, amount in claim.request.items())
