"""Later stages of gangs: which run at the same time as others, and the room that is kept for them.

`allocate` and the actions that make room call `keep_rooms` when a gang starts; `actions/holding.py`
finds the room again at the beginning of each session. No other job may use such room. Only the
counts and the objects of the job are read, so a restarted scheduler finds the same.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from bindery.api.times import seconds
from bindery.scheduler.cache.stage_rooms import KeptPlace
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import Job, Task, TaskStatus
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.stages import COMPLETE, Stage
from bindery.scheduler.planning.futures import Placed
from bindery.scheduler.planning.reports import StageReport
from bindery.scheduler.planning.reservations import Reservation
from bindery.scheduler.planning.session import Session


def awaited(job: Job, starting: Collection[str] = ()) -> list[Stage]:
    """Return the stages without their pods that run together with what runs now.

    A stage whose predecessors have all ended runs with nothing, so nothing waits for its room.

    `starting`: the sub-groups that are about to start; they count as running. A stage that waits
    for others to complete is not awaited before they have.
    """
    if not job.stages or not (starting or job.placed.total):
        return []
    running, found = set(starting), []
    for stage in job.stages:
        if stage.name in running or stage.group.is_satisfied(job.lacking):
            continue
        if _is_next(job, stage, running):
            running.update(stage.group.together())
            found.append(stage)
    return found


def _is_next(job: Job, stage: Stage, running: Collection[str]) -> bool:
    """Return whether the pods of `stage` come next, and while those of another group run.

    `running`: groups that start now or are awaited themselves.
    """
    runs_with_others = False
    for other, condition in stage.after:
        group = _group(job, other)
        if condition == COMPLETE:
            if not is_complete(job, group):
                return False
        elif other in running:
            runs_with_others = True
        elif group.is_satisfied(job.lacking):
            runs_with_others |= any(job.runs(leaf) for leaf in group.leaves())
        else:
            return False
    return runs_with_others


def is_complete(job: Job, group: Group) -> bool:
    """Return whether enough pods of `group` have succeeded."""
    return group.is_satisfied(lambda leaf: job.lacking_of(leaf, job.succeeded))


def _group(job: Job, name: str) -> Group:
    return job.groups[name]


def kept_until(job: Job, stages: Sequence[Stage], max_timeout_s: float) -> dict[str, float | None]:
    """Return stage -> the time at which its room is released; None: not known yet.

    The time is minus infinity if the pods of the sub-groups before the stage no longer exist.

    Times are in seconds since the epoch. The time counts from the binding of the last pod of these
    sub-groups. `stages`: the awaited stages, in order.
    """
    found: dict[str, float | None] = {}
    for stage in stages:
        leaves = {
            leaf.name
            for other, condition in stage.after
            if condition != COMPLETE
            for leaf in _group(job, other).leaves()
        }
        earlier = [found[other] for other, _ in stage.after if other in found]
        before = (task for task in job.tasks.values() if task.sub_group in leaves)
        timeout_s = min(job.stage_timeout_s, max_timeout_s)
        found[stage.name] = _latest([*_ends(before, timeout_s), *earlier])
    return found


def _ends(tasks: Iterable[Task], timeout_s: float) -> Iterator[float | None]:
    for task in tasks:
        if task.status.is_active or task.status is TaskStatus.SUCCEEDED:
            bound_at = task.bound_at if task.bound_at is not None else _created(task)
            yield bound_at + timeout_s if bound_at is not None else None


def _created(task: Task) -> float | None:
    """Return when a bound pod without a time of its binding was created."""
    return seconds(task.created) if task.pod_node else None


def _latest(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return max(known, default=-math.inf) if len(known) == len(times) else None


def gathering(job: Job) -> tuple[Stage, int] | None:
    """Return the first later stage of which only some pods exist, and the number of its pods that
    wait; None if there is none.
    """
    for stage in job.stages:
        count = sum(job.waiting.groups[leaf.name] for leaf in stage.group.leaves())
        has_come = stage.group.is_satisfied(
            lambda leaf: job.lacking_of(leaf, job.placed, job.promised, job.waiting)
        )
        if count and not has_come:
            return stage, count
    return None


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
