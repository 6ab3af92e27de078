"""Finds the room of later stages again, at the beginning of each session.

The first stages of a gang run, and the pods of later ones do not exist or wait. Their room is
planned from their templates before any job is served, so that no other job takes it. Only the
objects count: after a restart of the scheduler the room is kept as before, until the same time.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bindery.api.times import timestamp
from bindery.scheduler.actions.later_places import has_rules
from bindery.scheduler.actions.reserved_places import ReservedPlaces
from bindery.scheduler.model.jobs import Job, Task, TaskStatus
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.stages import Stage
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.placing.claims import Choice
from bindery.scheduler.placing.idle import IdleRoom
from bindery.scheduler.planning.futures import Placed
from bindery.scheduler.planning.next_pods import JobPart
from bindery.scheduler.planning.reports import StageReport
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.staging import (
    RoomCounts,
    awaited,
    counts,
    kept_until,
    lacking_pods,
    needs_on_nodes,
    note_room,
    reservation,
)
from bindery.scheduler.planning.statement import Statement


def hold_rooms(session: Session) -> None:
    """Keep the room of all awaited stages until their time is over.

    Gangs that find their room where it was come first, as others must not take it. Then gangs with
    a topology, because other room may be elsewhere; then the oldest.
    """
    if not session.state.staged:
        return
    staged = session.state.staged.values()
    in_order = sorted(staged, key=lambda job: (not job.is_constrained, job.created, job.key))
    in_order = [job for job in in_order if job.exists and job.invalid is None]
    evicted = {job: tasks for job in in_order if (tasks := _evicted_unseen(job))}
    for tasks in evicted.values():
        _move(session, tasks, TaskStatus.RUNNING)
    try:
        _hold_in_order(session, [job for job in in_order if job.placed.total])
    finally:
        for job, tasks in evicted.items():
            _move(session, tasks, TaskStatus.RELEASING)
            session.reservations.let_go(job)
            session.stage_reports.pop(job, None)


def _evicted_unseen(job: Job) -> list[Task]:
    """Return the pods of `job` with evictions that their objects do not show yet.

    None if other pods of it stay. The API server may still refuse these evictions, so until then
    the room goes to no other gang.
    """
    if job.placed.total:
        return []
    return [
        task
        for task in job.tasks.values()
        if task.eviction_committed and task.pod_status is TaskStatus.RUNNING
    ]


def _move(session: Session, tasks: Sequence[Task], status: TaskStatus) -> None:
    for task in tasks:
        session.state.move(task, status, task.row)


def _hold_in_order(session: Session, jobs: Sequence[Job]) -> None:
    """Keep the room of `jobs`, in this order if room was where it was."""
    is_new = not any(session.memory.knows_rooms(job) for job in jobs)
    for job in jobs:
        if not session.memory.knows_rooms(job):
            with session.guarded(job):
                session.memory.recall_rooms(job, awaited(job))
    moved = _hold_all(session, jobs, only_in_place=True)
    without = _hold_all(session, moved)
    if not without or not is_new or len(moved) == 1:
        return
    # After a restart it is not known where the room was, and this order does not find it.
    _let_all_go(session, moved)
    if _hold_all(session, sorted(moved, key=lambda job: job not in without)):
        _let_all_go(session, moved)
        _hold_all(session, moved)


def _hold_all(session: Session, jobs: Sequence[Job], *, only_in_place: bool = False) -> list[Job]:
    """Keep the room of `jobs` in this order; return those of which a stage has none.

    `only_in_place`: keep only room that is where it was, and return the others.
    """
    room = IdleRoom(session, session.once(ReservedPlaces, ReservedPlaces).allow)
    without = []
    for job in jobs:
        with session.guarded(job):
            if not _hold(session, job, room, only_in_place=only_in_place):
                without.append(job)
    return without


def _let_all_go(session: Session, jobs: Sequence[Job]) -> None:
    for job in jobs:
        session.reservations.replace_stages(job, [stage.name for stage in job.stages])
        for stage in job.stages:
            session.memory.let_room_go(job, stage.name)


def _hold(session: Session, job: Job, room: IdleRoom, *, only_in_place: bool) -> bool:
    """Keep the room of `job`; return whether each stage whose time is not over has room.

    `only_in_place`: if a part of it is not where it was, keep nothing and return False.
    """
    stages = awaited(job)
    names = {stage.name for stage in stages}
    for stage in job.stages:
        if stage.name not in names:
            session.memory.let_room_go(job, stage.name)
    until = kept_until(job, stages, session.state.max_stage_timeout_s)
    due = [stage for stage in stages if _is_kept(session, until[stage.name])]
    reports = _hold_by_sums(session, job, due, until)
    aside = session.memory.set_aside(job)
    if reports is None and aside is not None:  # planning its room again would take as long again
        reports = [_without(job, stage, until, aside) for stage in due]
    if reports is None:
        try:
            reports = _hold_by_plan(session, job, due, until, room, only_in_place)
        finally:
            session.futures.clear()
            session.refusals.pop(job, None)
    if reports is None:
        return False
    of_due = iter(reports)
    session.stage_reports[job] = [
        next(of_due) if stage in due else _let_go(session, job, stage, until[stage.name])
        for stage in stages
    ]
    lacking = session.futures.lacking
    kept = (
        report.nodes or not lacking(job, each) for each, report in zip(due, reports, strict=True)
    )
    return aside is not None or all(kept)


_Until = Mapping[str, float | None]
"""Stage -> when its room is let go; see `kept_until`."""


def _hold_by_sums(
    session: Session, job: Job, stages: Sequence[Stage], until: _Until
) -> list[StageReport] | None:
    """Keep the room of `stages` where it was, if sums of resources are enough to do so.

    None: it must be planned again. Most sessions change nothing about kept room, and this takes the
    same time for any number of pods.
    """
    futures, finder = session.futures, session.placement.finder(job)
    if job.is_constrained or finder.is_restricted or finder.nominated is not None:
        return None
    rooms: dict[str, RoomCounts] = {}
    asked: list[Task] = []
    for stage in stages:
        lacking = futures.lacking(job, stage)
        kept = session.memory.room_counts(job, stage.name)
        of_leaf: Counter[str] = Counter()
        for (leaf, _), count in kept.items():
            of_leaf[leaf] += count
        if not lacking or of_leaf != {name: count for name, (_, count) in lacking.items()}:
            return None
        rooms[stage.name] = {(lacking[leaf][0].shape, row): n for (leaf, row), n in kept.items()}
        for first, count in lacking.values():
            asked += [first] * count
    if not asked or not _fit_by_sums(session, job, asked, rooms.values()):
        return None
    session.reservations.replace_stages(
        job, [*rooms], [reservation(session, job, each, rooms[each.name]) for each in stages]
    )
    return [
        StageReport(
            each.name,
            sum(rooms[each.name].values()),
            tuple(sorted({session.state.nodes.name(row) for _, row in rooms[each.name]})),
            until[each.name],
        )
        for each in stages
    ]


def _fit_by_sums(
    session: Session, job: Job, asked: Sequence[Task], rooms: Iterable[RoomCounts]
) -> bool:
    """Return whether the pods `asked` fit into `rooms` now, and planning asks no more than that."""
    different = {task.shape: task for task in asked}.values()
    if has_rules(session, [*different]):
        return False
    if any(session.calls.task_refusal(task) is not None for task in different):
        return False
    if session.calls.over_capacity(job, asked) is not None:
        return False
    nodes, needs = session.state.nodes, np.zeros_like(session.state.nodes.idle)
    for room in rooms:
        if not all(session.placement.passing(shape)[row] for shape, row in room):
            return False
        needs += needs_on_nodes(session, room)
    left = nodes.idle + nodes.releasing - nodes.pipelined
    return not bool(((needs > 0) & (needs > left)).any())


def _hold_by_plan(
    session: Session,
    job: Job,
    stages: Sequence[Stage],
    until: _Until,
    room: IdleRoom,
    only_in_place: bool,
) -> list[StageReport] | None:
    """Plan the room of `stages` and keep it; None as for `only_in_place` of `_hold`."""
    placed = _places(session, job, stages, room) if stages else {}
    if only_in_place and not _are_in_place(session, job, placed):
        return None
    rooms = [(each, placed[each.name]) for each in stages]
    kept = [reservation(session, job, each, counts(room)) for each, room in rooms if room]
    if kept:
        session.reservations.replace_stages(job, [each.stage for each in kept], kept)
    return [
        note_room(session, job, stage, room, until[stage.name])
        if room or not session.futures.lacking(job, stage)
        else _without(job, stage, until, _why(session, job))
        for stage, room in rooms
    ]


def _without(job: Job, stage: Stage, until: _Until, problem: str) -> StageReport:
    """Return the report about `stage`, which has no room because of `problem`."""
    return StageReport(stage.name, lacking_pods(job, stage), (), until[stage.name], problem)


def _is_kept(session: Session, until: float | None) -> bool:
    return until is None or session.now < until


def _places(
    session: Session, job: Job, stages: Sequence[Stage], room: IdleRoom
) -> dict[str, list[Placed]]:
    """Return stage -> the places of its future pods, all at once; none where they do not fit."""
    found: dict[str, list[Placed]] = {}
    with session.statement() as statement:
        for stage in sorted(stages, key=lambda stage: not _has_domain(stage)):
            start = statement.savepoint()
            _place(session, job, stage, statement, room)
            found[stage.name] = [(o.task, o.row) for o in statement.operations[start:]]
    return found


def _place(session: Session, job: Job, stage: Stage, statement: Statement, room: IdleRoom) -> None:
    """Place the future pods of `stage`, or none and note why."""
    futures = session.futures
    problem = futures.problem(job, stage) or futures.shortage(job, stage)
    if problem is not None:
        session.refusals[job] = Refusal(JobReason.UNSCHEDULABLE, problem)
        return
    room.place(Choice(session, JobPart(job, futures.of(job, stage), stage.group)), statement)


def _are_in_place(session: Session, job: Job, placed: Mapping[str, Sequence[Placed]]) -> bool:
    """Return whether all of `placed` (stage -> future pods) is where the room was before."""
    before = session.memory.promised_rows(job)
    return all(
        bool(room) and all(before.get(task.uid) == row for task, row in room)
        for room in placed.values()
    )


def _has_domain(stage: Stage) -> bool:
    return any(group.topology is not None for group in stage.path)


def _why(session: Session, job: Job) -> str:
    refusal = session.refusals.get(job)
    return refusal.message if refusal is not None else "its pods do not fit"


def _let_go(session: Session, job: Job, stage: Stage, until: float | None) -> StageReport:
    """Return the report about a stage after its timeout, and record one event about it."""
    is_known = until is not None and math.isfinite(until)
    problem = "its time is over"
    if is_known and until is not None:
        text = (
            f"the room of its later stage {stage.name} was kept until {timestamp(until)} and is "
            "free for others now, as its pods have not come"
        )
        session.memory.let_room_go(job, stage.name, text)
    else:
        session.memory.let_room_go(job, stage.name)
        problem = "no pods run that it follows"
    return StageReport(
        stage.name, lacking_pods(job, stage), (), until if is_known else None, problem
    )
