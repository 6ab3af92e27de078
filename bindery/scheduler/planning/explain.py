"""The reasons why a pod fits nowhere: nodes are counted by the first reason against each.

Computed from the masks that the session planned with, so text and decision agree. The engine writes
it into conditions, and `bindery explain` shows it.
"""

from collections import Counter

import numpy as np

from bindery.scheduler.model.jobs import Task
from bindery.scheduler.planning.placement import JobFinder, Placement
from bindery.scheduler.planning.view import PlanningView


def node_reasons(
    session: PlanningView, placement: Placement, finder: JobFinder, task: Task
) -> Counter[str]:
    """Return the number of nodes that cannot take `task`, by reason.

    A node counts once: for the first static filter against it, else for an own filter of the job,
    else for the first missing resource.
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
        without = too_small & (allocatable[rows] <= 0)
        counts[f"have no {axis.names[index]}"] += int(without.sum())
        counts[f"have less {axis.names[index]} in all than requested"] += int(
            (too_small & ~without).sum()
        )
        open_rows &= ~too_small
        if session.reservations.kept is not None:
            kept = session.reservations.kept[index]
            reserved = (future[rows] < amount) & (future[rows] + kept[rows] >= amount) & open_rows
            counts["reserved for gangs that come first"] += int(reserved.sum())
            open_rows &= ~reserved
        if finder.nominated is not None:
            left = future - finder.nominated.amounts[index]
            taken = (future[rows] >= amount) & (left[rows] < amount) & open_rows
            counts["have room only for pods that other schedulers have nominated"] += int(
                taken.sum()
            )
            open_rows &= ~taken
        short = (future[rows] < amount) & open_rows
        counts[f"insufficient {axis.names[index]}"] += int(short.sum())
        open_rows &= ~short
    # Plugins last: a node that lacks a plain resource is counted for that.
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
