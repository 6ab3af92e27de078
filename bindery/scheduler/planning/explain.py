"""Why a pod fits nowhere: nodes counted by the first reason against each.

Computed from the masks that the session itself planned with, so it cannot say something else than
what was decided. The engine puts it into conditions; `bindery explain` shows it.
"""

from collections import Counter

import numpy as np

from bindery.scheduler.model.jobs import Task
from bindery.scheduler.planning.placement import JobFinder, Placement
from bindery.scheduler.planning.view import PlanningView


def node_reasons(
    session: PlanningView, placement: Placement, finder: JobFinder, task: Task
) -> Counter[str]:
    """Return how many nodes cannot take `task`, by reason.

    A node is counted once: by the first static filter against it, else by a filter of the job's
    own, else by the first resource that it lacks.
    """
    rows, shape = session.order, task.shape
    open_rows = np.ones(len(rows), dtype=np.bool_)
    counts: Counter[str] = Counter()
    for failure in (*placement.failures(shape), *finder.against(task)):
        against = failure.nodes[rows] & open_rows
        counts[failure.reason] += int(against.sum())
        open_rows &= ~against
    nodes, axis = session.state.nodes, session.state.axis
    for index, amount in nodes.demands(shape.request, rows):
        future = nodes.idle[index] + nodes.releasing[index] - nodes.pipelined[index]
        allocatable = nodes.allocatable[index]
        too_small = (allocatable[rows] < amount) & open_rows
        counts[f"too small, {axis.names[index]}"] += int(too_small.sum())
        open_rows &= ~too_small
        if session.reservations.kept is not None:
            kept = session.reservations.kept[index]
            reserved = (future[rows] < amount) & (future[rows] + kept[rows] >= amount) & open_rows
            counts["reserved for gangs that come first"] += int(reserved.sum())
            open_rows &= ~reserved
        short = (future[rows] < amount) & open_rows
        counts[f"insufficient {axis.names[index]}"] += int(short.sum())
        open_rows &= ~short
    for room in placement.rooms(shape):
        full = ~room.has_room(session, shape, rows, True) & open_rows
        counts[room.no_room_text(shape)] += int(full.sum())
        open_rows &= ~full
    return Counter({reason: count for reason, count in counts.items() if count})


def no_place_text(session: PlanningView, counts: Counter[str]) -> str:
    """Return `counts` as one sentence, most nodes first."""
    total = len(session.order)
    if not total:
        return "there are no nodes"
    parts = [
        f"{count} {reason}" for reason, count in sorted(counts.items(), key=lambda c: (-c[1], c[0]))
    ]
    return f"0/{total} nodes are available: {', '.join(parts)}"
