"""Room for the later stages of gangs: reservations for future pods.

`allocate` and the actions that make room call `keep_rooms` when a gang starts; `actions/holding.py`
finds the room again at the beginning of each session. No other job may use such room.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from bindery.scheduler.cache.stage_rooms import KeptPlace
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.stages import Stage
from bindery.scheduler.planning.futures import Placed
from bindery.scheduler.planning.reports import StageReport
from bindery.scheduler.planning.reservations import Reservation
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.staging import awaited, kept_until


def own_stages(job: Job, starts: Collection[str]) -> frozenset[str]:
    """Return the stages whose room the groups `starts` of `job` may use."""
    later = (stage.name for stage in awaited(job, starts))
    return frozenset((*starts, *later))


def later_pods(session: Session, job: Job, starts: Collection[str]) -> list[Task]:
    """Return the future pods of the stages that run at the same time as the groups `starts`."""
    stages = awaited(job, starts) if starts else ()
    return [task for stage in stages for task in session.futures.of(job, stage)]


def keep_rooms(
    session: Session, job: Job, starts: Collection[str], placed: Sequence[Placed]
) -> None:
    """Keep the room of the future pods `placed` for the stages that follow the groups `starts`."""
    stages = awaited(job, starts)
    rooms = [(stage, _of_stage(stage, placed)) for stage in stages]
    session.reservations.replace_stages(
        job,
        own_stages(job, starts),
        [reservation(session, job, stage, counts(room)) for stage, room in rooms if room],
    )
    until = kept_until(job, stages, session.state.max_stage_timeout_s)
    session.stage_reports[job] = [
        note_room(session, job, stage, room, until[stage.name]) for stage, room in rooms
    ]


def note_room(
    session: Session, job: Job, stage: Stage, placed: Sequence[Placed], until: float | None
) -> StageReport:
    """Remember the room of `stage`, and return the report about it."""
    nodes = session.state.nodes
    if not placed:
        problem = "it has no template, so the room that it needs is not known"
        return StageReport(stage.name, lacking_pods(job, stage), (), until, problem)
    places = {task.uid: KeptPlace(task.sub_group, nodes.name(row)) for task, row in placed}
    session.memory.keep_room(job, stage.name, places)
    names = {place.node_name for place in places.values()}
    return StageReport(stage.name, len(placed), tuple(sorted(names)), until)


def lacking_pods(job: Job, stage: Stage) -> int:
    """Return how many pods `stage` lacks for the minima of its leaves."""
    return sum(max(0, job.lacking(leaf)) for leaf in stage.group.leaves())


def _of_stage(stage: Stage, placed: Iterable[Placed]) -> list[Placed]:
    leaves = {leaf.name for leaf in stage.group.leaves()}
    return [(task, row) for task, row in placed if task.sub_group in leaves]


RoomCounts = Mapping[tuple[Shape, int], int]
"""Shape and node row -> how many future pods of the shape have room there."""


def counts(placed: Iterable[Placed]) -> RoomCounts:
    """Return `placed` as counts."""
    return Counter((task.shape, row) for task, row in placed)


def needs_on_nodes(session: Session, rooms: RoomCounts) -> IntColumns:
    """Return what the pods of `rooms` hold on nodes: [resource, node]."""
    nodes = session.state.nodes
    needs = np.zeros_like(nodes.idle)
    for (shape, row), count in rooms.items():
        request = nodes.demand(row, shape.request)
        needs[list(request.indices), row] += np.multiply(request.amounts, count)
    return needs


def reservation(session: Session, job: Job, stage: Stage, rooms: RoomCounts) -> Reservation:
    """Return the reservation that keeps `rooms`, which are not empty, for `stage`."""
    queues, needs = session.queue_ledger, needs_on_nodes(session, rooms)
    queue_needs = np.zeros_like(queues.allocated)
    chain = list(queues.chains[session.queue_row(job)])
    for (shape, _), count in rooms.items():
        in_queues = shape.request.in_queues
        for index, amount in zip(in_queues.indices, in_queues.amounts, strict=True):
            queue_needs[index, chain] += amount * count
    return Reservation(
        job=job,
        rows=tuple(sorted({row for _, row in rooms}, key=lambda r: int(session.position[r]))),
        start=None,
        needs=needs,
        returned=np.zeros_like(needs),
        queue_needs=queue_needs,
        queue_returned=np.zeros_like(queue_needs),
        stage=stage.name,
        leaves=frozenset(leaf.name for leaf in stage.group.leaves()),
        may_be_lent=False,
    )
