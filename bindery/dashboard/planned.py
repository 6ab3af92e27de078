"""Makes the picture of a cluster: one plan in memory, and the facts around it.

Takes seconds in large clusters, so `kept` calls it in a thread. The plan is undone.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from bindery.answers.evictions import eviction_of
from bindery.answers.listings import gang_rows
from bindery.answers.rows import Row
from bindery.answers.source import Source
from bindery.api.states import GangState
from bindery.dashboard.facts import BINDS, GangFact, NextStep, Picture, RoomPromise
from bindery.dashboard.plannednodes import Keeping, node_facts
from bindery.kube.objects.ownernames import workload_text
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.snapshot import FINISHED, is_bound
from bindery.kube.objects.topology import Topology
from bindery.kube.objects.watched import Pod
from bindery.scheduler.actions.holding import hold_rooms
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.engine import Engine
from bindery.scheduler.insight.advice import advice, changed_object
from bindery.scheduler.insight.order import Turns
from bindery.scheduler.insight.shares import ClusterShares, cluster_shares
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.model.reasons import LACKS_ROOM, JobReason
from bindery.scheduler.planning.reports import CycleReport
from bindery.scheduler.planning.session import Session

BROKEN: Final = frozenset(
    {
        *(JobReason.POD_GROUP_DOES_NOT_EXIST, JobReason.INVALID, JobReason.QUEUE_DOES_NOT_EXIST),
        *(
            JobReason.QUEUE_INVALID,
            JobReason.PRIORITY_CLASS_DOES_NOT_EXIST,
            JobReason.NOT_SUPPORTED,
        ),
        *(JobReason.INVALID_REQUEST, JobReason.TOPOLOGY, JobReason.EXCLUSIVE_DOMAIN_FORBIDDEN),
        *(JobReason.INVALID_GPU_SHARE, JobReason.INVALID_DEVICE_REQUEST, JobReason.FITS_NO_NODE),
        *(JobReason.INTERNAL_ERROR, JobReason.RUN_TIME_EXCEEDED),
    }
)
"""The reasons that only a person can remove: waiting does not help."""


@dataclass
class _Plan:
    """What one cycle in memory has found."""

    shares: ClusterShares
    order: tuple[JobKey, ...]
    report: CycleReport
    promises: tuple[RoomPromise, ...]
    steps: tuple[NextStep, ...]


def picture_of(source: Source, engine: Engine, version: int) -> Picture:
    """Return the picture of the cluster in `source`; `version` is its number.

    `engine` has the same cluster, and has it afterwards; after an error it must not be used again.
    """
    with engine.session() as session:
        hold_rooms(session)
        shares = cluster_shares(session)
        keeping = Keeping.of(session)
    plan = _planned(engine, shares, keeping)
    topologies = [each for each in source.snapshot.further if isinstance(each, Topology)]
    return Picture(
        version=version,
        at=source.now,
        gangs=tuple(_gangs(source, plan)),
        nodes=tuple(node_facts(engine, keeping, topologies)),
        queues=shares.queues,
        total=shares.total,
        order=plan.order,
        promises=plan.promises,
        steps=plan.steps,
        notes=tuple(source.lines),
        absence=source.unserved or source.absence,
    )


def _planned(engine: Engine, shares: ClusterShares, keeping: Keeping) -> _Plan:
    """Run a cycle; `keeping` learns what it reserves."""
    order: list[JobKey] = []
    promises: list[RoomPromise] = []

    def inspect(session: Session) -> None:
        order.extend(Turns(session).order)
        keeping.add_reservations(session)
        promises.extend(_reservations(session))

    keeping.remember_use(engine)
    drafts = engine.trial(inspect)
    report = engine.report
    promises.extend(_stage_rooms(engine, report))
    return _Plan(shares, tuple(order), report, tuple(promises), tuple(_steps(drafts, report)))


def _reservations(session: Session) -> Iterator[RoomPromise]:
    for each in session.reservations.of_gangs():
        nodes = tuple(session.state.nodes.name(row) for row in each.rows)
        yield RoomPromise(each.job.key, each.job.queue, "", nodes, each.start, None)


def _stage_rooms(engine: Engine, report: CycleReport) -> Iterator[RoomPromise]:
    jobs = engine.cluster.state.jobs
    for key, stages in sorted(report.stages.items()):
        queue = jobs[key].queue if key in jobs else ""
        for stage in stages:
            yield RoomPromise(
                key, queue, stage.stage, stage.nodes, None, stage.until, stage.problem
            )


def _steps(drafts: Iterable[StatementDraft], report: CycleReport) -> Iterator[NextStep]:
    """Yield what the next cycle does: bindings by gang, and evictions by gang and claimant."""
    bound: defaultdict[JobKey, list[str]] = defaultdict(list)
    for draft in drafts:
        for task, pod in zip(draft.tasks, draft.spec.pods, strict=True):
            bound[task.job].append(pod.selected_node)
    for key, nodes in sorted(bound.items()):
        yield NextStep(key, BINDS, len(nodes), tuple(sorted(set(nodes))))
    evicted: defaultdict[tuple[JobKey, str, JobKey], list[str]] = defaultdict(list)
    for each in report.evictions:
        evicted[each.task.job, each.action, each.preemptor].append(each.task.node_name)
    for (key, action, claimant), nodes in sorted(evicted.items()):
        yield NextStep(key, action, len(nodes), tuple(sorted(set(nodes))), claimant)


def _gangs(source: Source, plan: _Plan) -> Iterator[GangFact]:
    snapshot = source.snapshot
    groups = {(g.metadata.namespace, g.metadata.name): g for g in snapshot.groups}
    singles = {(p.metadata.namespace, p.metadata.name): p for p in snapshot.pods}
    for row in gang_rows(snapshot, source.now):
        namespace, name = str(row["namespace"]), str(row["name"])
        if name.startswith("pod/"):
            pod = singles[namespace, name.removeprefix("pod/")]
            yield _gang(JobKey(namespace, pod.metadata.name, False), None, (pod,), row, plan)
            continue
        pods = tuple(snapshot.pods_by_group.get((namespace, name), ()))
        key = JobKey(namespace, name, True)
        yield _gang(key, groups.get((namespace, name)), pods, row, plan)


def _gang(
    key: JobKey, group: PodGroup | None, pods: tuple[Pod, ...], row: Row, plan: _Plan
) -> GangFact:
    reason, message = _why(key, row, plan.report)
    state = _state(group, pods, row)
    waits = state in (GangState.WAITING, GangState.INVALID, GangState.EVICTED)
    least, planned = row["min"], plan.report.jobs.get(key)
    never_fits = waits and reason in LACKS_ROOM and planned is not None and not planned.can_run
    labels = group.metadata.labels if group is not None else {}
    return GangFact(
        key=key,
        queue=str(row["queue"]),
        state=state,
        least=least if isinstance(least, int) else 0,
        pods=pods,
        bound=sum(map(is_bound, pods)),
        running=sum(is_bound(pod) and pod.status.phase == "Running" for pod in pods),
        created=group.metadata.creation_timestamp if group is not None else _oldest(pods),
        group=group,
        workload=workload_text(group) if group is not None else "",
        reason=reason,
        message=message,
        advice=advice(
            reason,
            message,
            where=changed_object(labels, is_group=key.is_group),
            min_member=least if isinstance(least, int) else 1,
            budget_blocks=False,
        )
        if reason
        else "",
        waits=waits,
        is_stuck=bool(reason) and not waits and reason != JobReason.SCHEDULED,
        is_broken=reason in BROKEN or (key.is_group and group is None) or never_fits,
        is_idle=bool(row["idle"]),
        evicted=eviction_of(group),
        stages=plan.report.stages.get(key, ()),
    )


def _state(group: PodGroup | None, pods: tuple[Pod, ...], row: Row) -> str:
    """Return the state in the status; where no scheduler has written one, by the pods."""
    if group is None or group.unreadable or group.status.since is not None:
        return str(row["state"])
    bound, least = sum(map(is_bound, pods)), row["min"]
    if pods and all(pod.status.phase in FINISHED for pod in pods):
        return GangState.FINISHED.value
    if not pods and not least:
        return GangState.IDLE.value
    is_placed = isinstance(least, int) and bound >= max(1, least)
    return GangState.RUNNING.value if is_placed else str(row["state"])


def _why(key: JobKey, row: Row, report: CycleReport) -> tuple[str, str]:
    """Return reason and message: of the scheduler's own status, else of the plan in memory."""
    written = str(row["waits"])
    if row["reason"]:
        return str(row["reason"]), str(row["message"])
    if written:
        reason, found, message = written.partition(": ")
        is_reason = bool(found) and reason.isalnum()
        return (reason, message) if is_reason else (JobReason.SCHEDULED.value, written)
    planned = report.jobs.get(key)
    if planned is None or not planned.reason or planned.reason == JobReason.SCHEDULED:
        return "", ""
    return planned.reason, planned.message


def _oldest(pods: Iterable[Pod]) -> str | None:
    return min((pod.metadata.creation_timestamp or "" for pod in pods), default="") or None
