"""What objects should say about themselves, and whether they say it already. Pure.

Pods that wait carry `PodScheduled=False` with an honest reason, and the node where room is being
made for them; what PodGroups say is in `gangs`. Written only when it changes. A job for which
evictions are just being asked for says nothing new: the next cycle knows how that went. What queues
say is in `queues`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from bindery.api.shown import shown
from bindery.api.states import GangState
from bindery.kube.objects import Condition, Meta, Pod
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.defects import Stage, of_job
from bindery.scheduler.model.jobs import JobKey, Uid
from bindery.scheduler.model.reasons import STILL_COMING
from bindery.scheduler.planning.reports import CycleReport, JobReport
from bindery.scheduler.status.gangs import (
    GangStatus,
    charged_queue,
    dated,
    find,
    gang_status,
    same_words,
)

POD_SCHEDULED = "PodScheduled"
_BINDING_SHOWN_AFTER_S = 10.0
"""Most gangs are bound sooner, and then the state in between costs no write. What a BindRequest
waits for stands in its own status after two seconds."""
_COMING_SHOWN_AFTER_S = 2.0
"""Most gangs are complete sooner."""


class Subject(Enum):
    """The kinds of which the scheduler writes the status."""

    POD = "Pod"
    POD_GROUP = "PodGroup"


@dataclass(frozen=True, slots=True)
class ConditionWrite:
    """One condition that differs from what its object says."""

    subject: Subject
    meta: Meta
    condition: Condition
    all_conditions: tuple[Condition, ...]
    """What the object's whole list shall be, for kinds whose lists merge patches replace."""
    is_urgent: bool
    """Bad news are urgent; good news wait until nothing else is to be written."""
    nominated_node: str | None = None
    """Of a pod: where room is being made for it, "" for nowhere. None: it says so already."""
    patience_s: float = 0.0
    """How long to wait for a newer write before this one."""
    state: str | None = None
    """The state of a gang."""
    queue: str | None = None
    """The queue that a gang's bound pods are charged to, "" for none. None: it says so already.
    Only written to the version of the object that `meta` is of: its spec may name another since."""


def pending_writes(cluster: Cluster, report: CycleReport, now: float) -> Iterator[ConditionWrite]:
    """Yield what has to be written after a cycle. `now`: seconds since the epoch.

    Looks at the jobs that wait and at those that have changed since they were looked at last. A job
    that has not had its turn yet says nothing new.
    """
    asked_for = {eviction.preemptor for eviction in report.evictions}
    for job in report.jobs.values():
        if job.is_known and job.key not in asked_for:
            with cluster.defects.held_to(Stage.REPORT, of_job(job.key)):
                yield from list(_job_writes(cluster, job, now))
    for key in sorted(cluster.changed_jobs - report.jobs.keys() - asked_for):
        with cluster.defects.held_to(Stage.REPORT, of_job(key)):
            yield from list(_group_write(cluster, key, None, now))
    for pod, why in cluster.quarantine.pods():
        if cluster.plans(pod):
            yield from _pod_write(pod, _unschedulable(why), "", now)


def _job_writes(cluster: Cluster, job: JobReport, now: float) -> Iterator[ConditionWrite]:
    yield from _pod_writes(cluster, job, now)
    yield from _group_write(cluster, job.key, job, now)


def _group_write(
    cluster: Cluster, key: JobKey, report: JobReport | None, now: float
) -> Iterator[ConditionWrite]:
    group, job = cluster.groups.get(key), cluster.state.jobs.get(key)
    if group is None or job is None:
        return
    status = gang_status(job, group, report, cluster.eviction_history.of(key))
    if status is None:
        return
    said = [
        (find(group, new.type), new)
        for new in (status.scheduled, status.evicted)
        if new is not None
    ]
    state = group.status.state or GangState.WAITING
    queue = charged_queue(job, is_guarded=cluster.is_guarded)
    moves = queue is not None and queue != group.status.queue
    if state == status.state and not moves and all(same_words(old, new) for old, new in said):
        return
    dated_ones = [dated(new, old, now) for old, new in said]
    kinds = {condition.type for condition in dated_ones}
    is_coming = status.scheduled.reason in STILL_COMING
    others = [each for each in group.status.conditions or () if each.type not in kinds]
    yield ConditionWrite(
        Subject.POD_GROUP,
        group.metadata,
        dated_ones[0],
        (*others, *dated_ones),
        is_urgent=status.scheduled.status == "False" and not is_coming,
        patience_s=_patience_s(status, is_coming=is_coming),
        state=status.state,
        queue=queue if moves else None,
    )


def _patience_s(status: GangStatus, *, is_coming: bool) -> float:
    if status.state is GangState.BINDING:
        return _BINDING_SHOWN_AFTER_S
    return _COMING_SHOWN_AFTER_S if is_coming else 0.0


def _pod_writes(cluster: Cluster, job: JobReport, now: float) -> Iterator[ConditionWrite]:
    places = cluster.promises.places(job.key)
    for uid, pod in job.pods.items():
        if pod.state not in ("Pending", "Pipelined"):
            continue
        known = cluster.pods.get(Uid(uid))
        if known is not None:
            yield from _pod_write(known, _unschedulable(pod.message), places.get(uid, ""), now)


def _unschedulable(message: str) -> Condition:
    return Condition(
        type=POD_SCHEDULED, status="False", reason="Unschedulable", message=shown(message)
    )


def _pod_write(pod: Pod, new: Condition, node_name: str, now: float) -> Iterator[ConditionWrite]:
    conditions = pod.status.conditions or ()
    writes = list(_write(Subject.POD, pod.metadata, conditions, new, now))
    if node_name == pod.status.nominated_node_name:
        yield from writes
    elif writes:
        yield replace(writes[0], nominated_node=node_name)
    else:
        said = _find(conditions, new.type) or new
        yield ConditionWrite(
            Subject.POD, pod.metadata, said, (said,), is_urgent=True, nominated_node=node_name
        )


def _write(
    subject: Subject, meta: Meta, conditions: Sequence[Condition], new: Condition, now: float
) -> Iterator[ConditionWrite]:
    old = _find(conditions, new.type)
    if same_words(old, new):
        return
    new = dated(new, old, now)
    others = tuple(condition for condition in conditions if condition.type != new.type)
    yield ConditionWrite(subject, meta, new, (*others, new), is_urgent=new.status == "False")


def _find(conditions: Sequence[Condition], kind: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == kind), None)
