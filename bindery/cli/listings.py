"""The rows of `bindery get`: queues, gangs and BindRequests as people think of them.

Pure: `get` looks and prints. What queues hold is added up in the scheduler's own queue table.
"""

from collections import Counter
from datetime import datetime

from bindery.api import quantity
from bindery.api.bindrequest import Phase
from bindery.api.podgroup import INVALID, SCHEDULED
from bindery.cli.live import FINISHED, Look
from bindery.cli.tables import Row, age
from bindery.kube.objects import BindRequest, Condition, Pod, PodGroup
from bindery.scheduler.model.queues import NO_LIMIT, QueueTable
from bindery.scheduler.model.resources import ResourceAxis
from bindery.scheduler.model.shapes import ShapeBook

_SHOWN_NODES = 3


def gang_rows(look: Look, now: datetime) -> list[Row]:
    """Return one row for each PodGroup, by namespace and name."""
    rows = [_gang_row(group, look, now) for group in look.groups]
    return sorted(rows, key=lambda row: (str(row["namespace"]), str(row["name"])))


def scheduled_condition(group: PodGroup) -> Condition | None:
    """Return what the scheduler has said about `group`."""
    conditions = group.status.conditions or ()
    return next((item for item in conditions if item.type == SCHEDULED), None)


def is_bound(pod: Pod) -> bool:
    """Whether `pod` has a node and is not finished."""
    return bool(pod.spec.node_name) and pod.status.phase not in FINISHED


def _gang_row(group: PodGroup, look: Look, now: datetime) -> Row:
    meta = group.metadata
    pods = look.pods_by_group.get((meta.namespace, meta.name), [])
    said = scheduled_condition(group)
    if group.unreadable:  # whatever the scheduler has said of it before
        said = Condition(type=SCHEDULED, status="False", reason=INVALID, message=group.unreadable)
    waits = said is not None and said.status != "True"
    return {
        "namespace": meta.namespace,
        "name": meta.name,
        "queue": group.spec.queue,
        "running": sum(is_bound(pod) and pod.status.phase == "Running" for pod in pods),
        "bound": sum(is_bound(pod) for pod in pods),
        "min": group.spec.min_member,
        "pods": len(pods),
        "age": age(meta.creation_timestamp, now),
        "reason": said.reason if said is not None and waits else "",
        "message": said.message if said is not None and waits else "",
        "waits": f"{said.reason}: {said.message}" if said is not None and waits else "",
    }


def queue_rows(look: Look) -> list[Row]:
    """Return one row for each queue, by name."""
    table = _queue_table(look)
    gangs = Counter(group.spec.queue for group in look.groups)
    waiting = Counter(
        group.spec.queue
        for group in look.groups
        if (said := scheduled_condition(group)) is not None and said.status != "True"
    )
    return [
        {
            "name": queue.metadata.name,
            "parent": queue.spec.parent or "",
            "priority": queue.spec.priority,
            "state": queue.spec.state,
            **_shares(table, queue.metadata.name),
            "gangs": gangs[queue.metadata.name],
            "waiting": waiting[queue.metadata.name],
            "problem": ": ".join(table.problem(table.row(queue.metadata.name)) or ()),
        }
        for queue in sorted(look.queues, key=lambda queue: queue.metadata.name)
    ]


def _queue_table(look: Look) -> QueueTable:
    """Return the scheduler's queue table, with what the pods of the cluster hold."""
    axis = ResourceAxis()
    table, shapes = QueueTable(axis), ShapeBook(axis)
    for queue in look.queues:
        table.put(queue)
    for pod in look.pods:
        holds = is_bound(pod) or pod.metadata.uid in look.requested_nodes
        if holds and pod.metadata.deletion_timestamp is None:
            row, request = table.row(look.queue_of(pod)), shapes.of(pod).request
            table.hold(row, request, preemptible=True, sign=1)
    return table


def _shares(table: QueueTable, queue: str) -> dict[str, str]:
    """Return `held/limit` of the queue and all below it, for GPUs, cores and memory."""
    row, axis = table.row(queue), table.axis
    below = [at for at, chain in enumerate(table.chains()) if row in chain]
    _, _, limits = table.rules()
    shares = {}
    for name in ("gpu", "cpu", "memory"):
        index = axis.index(name)
        held, limit = int(table.allocated[index, below].sum()), limits[index, row]
        shown = "-" if limit == NO_LIMIT else axis.display(index, int(limit))
        shares[name] = f"{quantity.display(held, axis.names[index])}/{shown}"
    return shares


def request_rows(look: Look, now: datetime) -> list[Row]:
    """Return one row for each BindRequest, by namespace and name."""
    rows = [_request_row(request, now) for request in look.requests]
    return sorted(rows, key=lambda row: (str(row["namespace"]), str(row["name"])))


def _request_row(request: BindRequest, now: datetime) -> Row:
    nodes = sorted({pod.selected_node for pod in request.spec.pods})
    more = f" +{len(nodes) - _SHOWN_NODES}" if len(nodes) > _SHOWN_NODES else ""
    status = request.status
    reason = ": ".join(text for text in (status.reason, status.message) if text)
    return {
        "namespace": request.metadata.namespace,
        "name": request.metadata.name,
        "phase": status.phase or Phase.PENDING.value,
        "bound": f"{len(status.bound_pods)}/{len(request.spec.pods)}",
        "nodes": ",".join(nodes[:_SHOWN_NODES]) + more,
        "attempts": status.failed_attempts,
        "age": age(request.metadata.creation_timestamp, now),
        "reason": reason,
    }
