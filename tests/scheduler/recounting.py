"""A view of a plan state by names, and the same view recounted from its pods.

Tests compare the state with the recount: after any events, each sum equals its parts.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bindery.api import quantity
from bindery.api.gpus import MODEL_PREFIX
from bindery.api.names import GPU_MODEL_LABEL, GPU_RESOURCE
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import Job, JobKey, Tally, TaskStatus, Uid
from bindery.scheduler.model.resources import Request
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.state import PlanState


@dataclass(frozen=True)
class View:
    """A plan state by names, so that states whose rows differ can be compared."""

    nodes: dict[str, dict[str, tuple[int, ...]]]
    """Node -> resource -> allocatable, idle, releasing, pipelined, foreign; all-zero ones left out.
    """
    queues: dict[str, dict[str, tuple[int, ...]]]
    """Queue -> resource -> allocated, non-preemptible, pending, releasing; without zeros."""
    tasks: dict[str, tuple[TaskStatus, str, JobKey, str | None, bool]]
    """Pod uid -> status, node, job, queue (None: not ours), whether it may be evicted."""
    jobs: dict[JobKey, tuple[Any, ...]]
    """Job -> the fields of its PodGroup."""
    counts: dict[JobKey, tuple[Any, ...]]
    """Job -> its pods, its pending pods, tallies of the placed, promised and waiting pods, the
    number of gated pods, and the number of active pods in each queue.
    """
    waiting: frozenset[JobKey]
    created: dict[tuple[Any, ...], int]
    """Day of creation and request -> how many pods, ended ones included."""


def view(state: PlanState) -> View:
    """Return `state` by names."""
    nodes, queues = state.nodes, state.queues
    node_columns = (nodes.allocatable, nodes.idle, nodes.releasing, nodes.pipelined, nodes.foreign)
    queue_columns = (
        queues.allocated, queues.non_preemptible, queues.pending, queues.releasing
    )  # fmt: skip
    return View(
        nodes={name: _amounts(state, row, node_columns) for name, row in nodes.rows.items()},
        queues=_without_empty(
            {name: _amounts(state, row, queue_columns) for name, row in queues.rows.items()}
        ),
        tasks={
            uid: (
                task.status,
                task.node_name or (nodes.name(task.row) if task.row >= 0 else ""),
                task.job,
                queues.entries[task.queue_row].name if task.is_ours else None,
                task.is_preemptible,
            )
            for uid, task in state.tasks.items()
        },
        jobs={
            key: tuple(getattr(job, name) for name in _SAID_BY_THE_GROUP)
            for key, job in state.jobs.items()
        },
        counts={
            key: (
                frozenset(job.tasks),
                frozenset(job.pending),
                *(_tally(tally) for tally in (job.placed, job.promised, job.waiting)),
                job.gated_count,
                {name: count for name, count in job.charged.items() if count},
            )
            for key, job in state.jobs.items()
        },
        waiting=frozenset(state.waiting),
        created=_by_request(
            state,
            (
                (day, shape, count)
                for day, by_shape in state.pod_counts.by_day.items()
                for shape, count in by_shape.items()
            ),
        ),
    )


_COUNTED = (
    "tasks",
    "pending",
    "placed",
    "succeeded",
    "promised",
    "waiting",
    "gated_count",
    "charged",
    "changes",
)
_SAID_BY_THE_GROUP = [each.name for each in fields(Job) if each.name not in _COUNTED]


def _amounts(
    state: PlanState, row: int, columns: Sequence[IntColumns]
) -> dict[str, tuple[int, ...]]:
    """Return resource -> the values of `columns` at `row`, without resources that are all zero."""
    amounts = {
        name: tuple(int(column[index, row]) for column in columns)
        for index, name in enumerate(state.axis.names)
    }
    return {name: values for name, values in amounts.items() if any(values)}


def _without_empty(
    by_name: dict[str, dict[str, tuple[int, ...]]],
) -> dict[str, dict[str, tuple[int, ...]]]:
    return {name: amounts for name, amounts in by_name.items() if amounts}


def _tally(tally: Tally) -> tuple[int, dict[str, int], dict[str, int]]:
    """Return the counts of `tally`: in all, by sub-group, by role; zeros left out."""
    by_group = {name: count for name, count in tally.groups.items() if count}
    by_role = {name: count for name, count in tally.roles.items() if count}
    return tally.total, by_group, by_role


def recount(state: PlanState) -> View:
    """Return the view that `state` should give, counted from its tasks' statuses alone."""
    now = view(state)
    return View(
        nodes=_recounted_nodes(state, now),
        queues=_recounted_queues(state, now),
        tasks=now.tasks,
        jobs=now.jobs,
        counts={key: _recounted_job(job, now) for key, job in state.jobs.items()},
        waiting=frozenset(
            key
            for key, job in state.jobs.items()
            if any(
                task.status in (TaskStatus.PENDING, TaskStatus.GATED) for task in job.tasks.values()
            )
        ),
        created=_by_request(
            state,
            (
                (t.created[:10], t.shape, 1)
                for t in state.tasks.values()
                if t.is_ours and t.is_of_pool
            ),
        ),
    )


def _by_request(
    state: PlanState, counts: Iterable[tuple[str, Shape, int]]
) -> dict[tuple[Any, ...], int]:
    """Return day and request, by names of resources -> the sum of the counts of such pods."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for day, shape, count in counts:
        amounts = frozenset(_named(state.axis.names, shape.request))
        sums[day, amounts, shape.request.share] += count
    return dict(sums)


def _recounted_nodes(state: PlanState, now: View) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return what nodes hold: of a pod that a plan moves both places, as it holds the old one."""
    counted: dict[str, dict[str, list[int]]] = {}
    for name, row in state.nodes.rows.items():
        found = state.nodes.nodes[row]
        assert found is not None
        offered = {
            resource: quantity.parse(text, resource)
            for resource, text in (found.status.allocatable or {}).items()
        }
        counted[name] = {r: [offered.get(r, 0)] * 2 + [0, 0, 0] for r in state.axis.names}
    for uid, (status, place, _, queue_name, _) in now.tasks.items():
        task = state.tasks[Uid(uid)]
        moves = status is TaskStatus.PIPELINED and task.pod_status is TaskStatus.RUNNING
        promised = state.nodes.name(task.row) if status is TaskStatus.PIPELINED else ""
        held = task.pod_node if moves else place if status.holds_room else ""
        for resource, amount in _named(state.axis.names, task.shape.request):
            if held in counted:
                amounts = counted[held][resource]
                amounts[1] -= amount
                amounts[2] += amount if moves or status is TaskStatus.RELEASING else 0
                amounts[4] += amount if queue_name is None else 0
            if promised:
                counted[promised][resource][3] += amount
    return {
        name: {resource: tuple(values) for resource, values in amounts.items() if any(values)}
        for name, amounts in counted.items()
    }


def _recounted_queues(state: PlanState, now: View) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return what queues hold and are asked for; a promise is not held, and still asked for."""
    counted: dict[str, dict[str, list[int]]] = {}
    for uid, (status, place, _, queue_name, is_preemptible) in now.tasks.items():
        if queue_name is None:
            continue
        task = state.tasks[Uid(uid)]
        awaits = status is TaskStatus.PENDING or (
            status is TaskStatus.PIPELINED and task.pod_status is TaskStatus.PENDING
        )
        moves = status is TaskStatus.PIPELINED and task.pod_status is TaskStatus.RUNNING
        leaves = moves or status is TaskStatus.RELEASING
        stands = task.pod_node if leaves else place if status.is_active else ""
        for resource, amount in charged(state, task.shape.request, stands).items():
            of_queue = counted.setdefault(queue_name, {}).setdefault(resource, [0, 0, 0, 0])
            of_queue[0] += amount if status.is_active else 0
            of_queue[1] += amount if status.is_active and not is_preemptible else 0
            of_queue[2] += amount if awaits else 0
            of_queue[3] += amount if leaves else 0
    return _without_empty(
        {
            name: {resource: tuple(values) for resource, values in amounts.items() if any(values)}
            for name, amounts in counted.items()
        }
    )


def charged(state: PlanState, request: Request, place: str) -> dict[str, int]:
    """Return what a pod on the node `place` counts for in its queue: GPUs of its model too."""
    amounts = dict(_named(state.axis.names, request))
    row = state.nodes.rows.get(place)
    found = state.nodes.nodes[row] if row is not None else None
    model = found.metadata.labels.get(GPU_MODEL_LABEL) if found is not None else None
    if model and amounts.get(GPU_RESOURCE):
        amounts[MODEL_PREFIX + model] = amounts[GPU_RESOURCE]
    return amounts


def _recounted_job(job: Job, now: View) -> tuple[Any, ...]:
    statuses = {uid: task.status for uid, task in job.tasks.items()}
    placed = [u for u, s in statuses.items() if s.is_active or s is TaskStatus.SUCCEEDED]
    promised = [u for u, s in statuses.items() if s is TaskStatus.PIPELINED]
    waiting = [u for u, s in statuses.items() if s is TaskStatus.PENDING]
    return (
        frozenset(uid for uid, task in now.tasks.items() if task[2] == job.key and task[3]),
        frozenset(waiting),
        *(
            (
                len(uids),
                Counter(job.tasks[uid].sub_group for uid in uids if job.tasks[uid].sub_group),
                Counter(job.tasks[uid].role for uid in uids if job.tasks[uid].role),
            )
            for uids in (placed, promised, waiting)
        ),
        list(statuses.values()).count(TaskStatus.GATED),
        Counter(now.tasks[uid][3] for uid, status in statuses.items() if status.is_active),
    )


def _named(names: Sequence[str], request: Request) -> Iterable[tuple[str, int]]:
    return [(names[i], a) for i, a in zip(request.indices, request.amounts, strict=True)]
