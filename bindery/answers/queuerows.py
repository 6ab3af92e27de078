"""The rows of `bindery get queues`.

The scheduler's own queue table sums the amounts that queues hold, so that an answer always counts
like the scheduler. The numbers of gangs come from the status of the queues, as in `kubectl get
queues`.
"""

from bindery.answers.amounts import plain
from bindery.answers.leaders import Leader
from bindery.answers.rows import Row
from bindery.api import quantity
from bindery.api.gpus import GpuResources
from bindery.api.names import DEFAULT_QUEUE, SCHEDULER_NAME
from bindery.kube.objects.claims import ResourceClaim
from bindery.kube.objects.snapshot import FINISHED, ClusterSnapshot, is_bound
from bindery.scheduler.cache.claim_gpus import ClaimGpus
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.queues import NO_LIMIT, QueueTable, rolled_up
from bindery.scheduler.model.resources import ResourceAxis
from bindery.scheduler.model.shapes import ShapeBook
from bindery.scheduler.status.queue_findings import Verdict, verdicts


def published_gpus(leader: Leader) -> GpuResources:
    """Return the GPU resources of the leading scheduler's configuration; the default if unknown."""
    found = leader.publication.changes if leader.publication is not None else None
    given = found or {}
    both = {"patterns": given.get("gpuResources"), "classes": given.get("gpuDeviceClasses")}
    return GpuResources(**{name: value for name, value in both.items() if value is not None})


def queue_rows(snapshot: ClusterSnapshot, gpus: GpuResources | None = None) -> list[Row]:
    """Return one row for each queue, by name, including missing queues that gangs name.

    `gpus`: the resources that count as GPUs; None for the defaults.
    """
    table = _queue_table(snapshot, gpus)
    missing = sorted(_named(snapshot) - {each.metadata.name for each in snapshot.queues})
    for name in missing:
        table.row(name)
    held = rolled_up(table.allocated, table.chains())
    found = verdicts(table)
    rows: list[Row] = [
        {
            "name": queue.metadata.name,
            "parent": queue.spec.parent or "",
            "priority": queue.spec.priority,
            "state": queue.spec.state,
            **_shares(table, held, table.row(queue.metadata.name)),
            "kept": ", ".join(
                f"{plain(name, value)} {name}" for name, value in queue.status.kept.items()
            ),
            "running": queue.status.gangs.running,
            "waiting": queue.status.gangs.pending,
            "problem": _problem(table, queue.metadata.name, found[queue.metadata.name]),
        }
        for queue in snapshot.queues
    ]
    rows += [_missing_row(table, held, name) for name in missing]
    return sorted(rows, key=lambda row: str(row["name"]))


def _named(snapshot: ClusterSnapshot) -> set[str]:
    """Return the queues of PodGroups and of pods that have not ended, without the default queue.

    A pod without any queue is in the default queue, which works without an object.
    """
    pods = (
        pod
        for pod in snapshot.pods
        if pod.spec.scheduler_name == SCHEDULER_NAME and pod.status.phase not in FINISHED
    )
    groups = {snapshot.queue_of_group(group) for group in snapshot.groups}
    return ({snapshot.queue_of(pod) for pod in pods} | groups) - {DEFAULT_QUEUE}


def _missing_row(table: QueueTable, held: IntColumns, name: str) -> Row:
    return {
        "name": name,
        "parent": "",
        "priority": "",
        "state": "Missing",
        **_shares(table, held, table.row(name)),
        "kept": "",
        "running": "",
        "waiting": "",
        "problem": ": ".join(table.problem(table.row(name)) or ()),
    }


def _problem(table: QueueTable, name: str, verdict: Verdict) -> str:
    """Return the reason why no job of the queue is planned, in the words of the queue's
    condition.
    """
    if verdict.fault is not None:
        return f"{verdict.fault.reason}: {verdict.fault.message}"
    return ": ".join(table.problem(table.row(name)) or ())


def _queue_table(snapshot: ClusterSnapshot, gpus: GpuResources | None) -> QueueTable:
    """Return the scheduler's queue table with the charges of the running pods."""
    axis = ResourceAxis(gpus)
    table, shapes, nodes = QueueTable(axis), ShapeBook(axis), NodeTable(axis)
    rows = {node.metadata.name: nodes.put(node) for node in snapshot.nodes}
    for queue in snapshot.queues:
        table.put(queue)
    claimed = _claimed_gpus(snapshot, axis)
    for pod in snapshot.pods:
        holds = is_bound(pod) or pod.metadata.uid in snapshot.requested_nodes
        if holds and pod.metadata.deletion_timestamp is None:
            row = table.row(snapshot.queue_of(pod))
            request = shapes.of(pod, claimed_gpus=claimed.of(Uid(pod.metadata.uid))).request
            node = pod.spec.node_name or snapshot.requested_nodes[pod.metadata.uid]
            if node in rows:
                request = nodes.charge(rows[node], request)
            table.hold(row, request, preemptible=True, sign=1)
    return table


def _claimed_gpus(snapshot: ClusterSnapshot, axis: ResourceAxis) -> ClaimGpus:
    """Return the GPUs of resource claims, by the DeviceClasses that count by default."""
    claimed = ClaimGpus(axis.gpus.counts_class)
    for pod in snapshot.pods:
        if pod.status.phase not in FINISHED:
            claimed.put_pod(pod)
    for claim in snapshot.further:
        if isinstance(claim, ResourceClaim):
            claimed.put_claim(claim, gone=False)
    return claimed


def _shares(table: QueueTable, held: IntColumns, row: int) -> dict[str, str]:
    """Return `held/limit` of the queue at `row`, for GPUs, cores and memory.

    `held`: [resource, queue], including the queues below.
    """
    axis = table.axis
    _, _, limits = table.rules()
    shares = {}
    for name in ("gpu", "cpu", "memory"):
        index = axis.index(name)
        amount, limit = int(held[index, row]), limits[index, row]
        shown = "-" if limit == NO_LIMIT else axis.display(index, int(limit))
        shares[name] = f"{quantity.display(amount, axis.names[index])}/{shown}"
    return shares
