"""What objects should say about themselves, and whether they say it already. Pure.

Pods that wait carry `PodScheduled=False` with an honest reason, and the node where room is being
made for them; PodGroups say `Scheduled` with why not. Written only when it changes. A job whose
evictions are just being asked for says nothing new: the next cycle knows how that went. What queues
say is in `queues/status.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from bindery.api.podgroup import INVALID
from bindery.api.podgroup import SCHEDULED as SCHEDULED_CONDITION
from bindery.api.shown import shown
from bindery.kube.objects import Condition, Meta, Pod, PodGroup
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.defects import Stage, of_job
from bindery.scheduler.model.jobs import JobKey, Uid
from bindery.scheduler.plugins.interface import Refusal
from bindery.scheduler.reports import SCHEDULED, CycleReport, JobReport
from bindery.scheduler.times import timestamp

POD_SCHEDULED = "PodScheduled"


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


def pending_writes(cluster: Cluster, report: CycleReport, now: float) -> Iterator[ConditionWrite]:
    """Yield what has to be written after a cycle. `now`: seconds since the epoch."""
    asked_for = {eviction.preemptor for eviction in report.evictions}
    for job in report.jobs.values():
        if job.key not in asked_for:
            with cluster.defects.held_to(Stage.REPORT, of_job(job.key)):
                yield from list(_job_writes(cluster, job, now))
    for key in sorted(cluster.faulty_groups - report.jobs.keys()):
        with cluster.defects.held_to(Stage.REPORT, of_job(key)):
            yield from list(_fault_write(cluster, key, now))
    for pod, why in cluster.aside.pods():
        if cluster.plans(pod):
            yield from _pod_write(pod, _unschedulable(why), "", now)


def _job_writes(cluster: Cluster, job: JobReport, now: float) -> Iterator[ConditionWrite]:
    yield from _pod_writes(cluster, job, now)
    group = cluster.groups.get(job.key)
    if group is not None:
        said = Refusal(job.reason, job.message)
        yield from _group_write(group, said, now, satisfied=job.satisfied)


def overdue_writes(cluster: Cluster, report: CycleReport, now: float) -> Iterator[ConditionWrite]:
    """Yield good news that an earlier leader did not come to write: gangs that wait no more."""
    for key, group in cluster.groups.items():
        conditions = group.status.conditions or ()
        said = _find(conditions, SCHEDULED_CONDITION)
        job = cluster.state.jobs.get(key)
        if key in report.jobs or said is None or said.status == "True" or job is None:
            continue
        if job.tasks and job.is_satisfied and job.invalid is None:
            yield from _group_write(group, Refusal(SCHEDULED, ""), now, satisfied=True)


def _fault_write(cluster: Cluster, key: JobKey, now: float) -> Iterator[ConditionWrite]:
    """Let a PodGroup of which no pod waits say what is wrong with it, or no longer is."""
    group, job = cluster.groups[key], cluster.state.jobs[key]
    if job.invalid is not None:
        yield from _group_write(group, Refusal(INVALID, job.invalid), now, satisfied=False)
    elif job.tasks and job.is_satisfied:
        yield from _group_write(group, Refusal(SCHEDULED, ""), now, satisfied=True)
    else:
        come = f"{job.placed.total} of the {job.min_member} pods it needs have come"
        said = Refusal("NotEnoughPods", come)
        yield from _group_write(group, said, now, satisfied=False)


def _group_write(
    group: PodGroup, said: Refusal, now: float, *, satisfied: bool
) -> Iterator[ConditionWrite]:
    new = Condition(
        type=SCHEDULED_CONDITION,
        status="True" if satisfied else "False",
        reason=said.reason,
        message=shown(said.message),
    )
    conditions = group.status.conditions or ()
    yield from _write(Subject.POD_GROUP, group.metadata, conditions, new, now)


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
    if old is not None and _says(old) == _says(new):
        return
    turned = old is None or old.status != new.status
    since = timestamp(now) if turned or old is None else old.last_transition_time
    new = Condition(
        type=new.type,
        status=new.status,
        reason=new.reason,
        message=new.message,
        last_transition_time=since,
    )
    others = tuple(condition for condition in conditions if condition.type != new.type)
    yield ConditionWrite(subject, meta, new, (*others, new), is_urgent=new.status == "False")


def _find(conditions: Sequence[Condition], kind: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == kind), None)


def _says(condition: Condition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message
