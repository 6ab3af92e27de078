"""Room for the later stages of gangs: reservations for future pods.

`allocate` and the actions that make room call `keep_rooms` when a gang starts; `actions/holding.py`
finds the room again at the beginning of each session. No other job may use such room.
"""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from bindery.scheduler.cache.stage_rooms import KeptPlace
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.resources import total
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


def keep_rooms(
    session: Session, job: Job, starts: Collection[str], placed: Sequence[Placed]
) -> None:
    """Keep the room of the future pods `placed` for the stages that follow the groups `starts`."""
    stages = awaited(job, starts)
    rooms = [(stage, _of_stage(stage, placed)) for stage in stages]
    session.reservations.replace_stages(
        job,
        own_stages(job, starts),
        [reservation(session, job, stage, room) for stage, room in rooms if room],
    )
    until = kept_until(job, stages)
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


def reservation(session: Session, job: Job, stage: Stage, placed: Sequence[Placed]) -> Reservation:
    """Return the reservation that keeps `placed`, which is not empty, for `stage`."""
    nodes, queues = session.state.nodes, session.queue_ledger
    needs = np.zeros_like(nodes.idle)
    for task, row in placed:
        request = nodes.demand(row, task.shape.request)
        needs[list(request.indices), row] += request.amounts
    queue_needs = np.zeros_like(queues.allocated)
    chain = list(queues.chains[session.queue_row(job)])
    for index, amount in total(task.shape.request.in_queues for task, _ in placed).items():
        queue_needs[index, chain] = amount
    return Reservation(
        job=job,
        rows=tuple(sorted({row for _, row in placed}, key=lambda r: int(session.position[r]))),
        start=None,
        needs=needs,
        returned=np.zeros_like(needs),
        queue_needs=queue_needs,
        queue_returned=np.zeros_like(queue_needs),
        stage=stage.name,
        leaves=frozenset(leaf.name for leaf in stage.group.leaves()),
        may_be_lent=False,
    )
