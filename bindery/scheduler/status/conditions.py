"""Computes the conditions of pods and PodGroups that differ from the objects and must be written.
Pure.

A waiting pod gets `PodScheduled=False` with the reason, and its nominated node if room is being
made for it. `gangs` computes the status of PodGroups, `queues` that of queues. A job gets no new
status while evictions for it are being requested; the next cycle knows their outcome.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from msgspec.structs import replace as replace_struct

from bindery.api.shown import shown_message
from bindery.api.states import GangState
from bindery.api.times import seconds, timestamp
from bindery.kube.objects.podgroups import PodCounts, PodGroup, PodGroupStatus
from bindery.kube.objects.watched import Condition, Meta, Pod
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.defects import DefectStage, of_job
from bindery.scheduler.model.jobs import Job, JobKey, TaskStatus, Uid
from bindery.scheduler.model.reasons import LACKS_ROOM, STILL_COMING, JobReason
from bindery.scheduler.model.starts import late_starts
from bindery.scheduler.planning.reports import CycleReport, JobReport
from bindery.scheduler.status.gangs import (
    PASSING,
    Around,
    GangStatus,
    charged_queue,
    dated,
    find,
    gang_status,
    same_words,
)
from bindery.scheduler.status.job_events import GROUPED_WITHIN_S
from bindery.scheduler.status.nominations import POD_SCHEDULED, overdue

_PENDING = frozenset({TaskStatus.PENDING, TaskStatus.GATED})


@dataclass(frozen=True, slots=True)
class GangFigures:
    """The figures in the status of one gang."""

    pods: PodCounts
    assigned_queue: str
    since: str | None
    ran_seconds: float

    def is_shown_by(self, status: PodGroupStatus) -> bool:
        """Return whether `status` has these figures; times are not compared."""
        return (self.pods, self.assigned_queue) == (status.pods, status.assigned_queue)

    def to_wire(self) -> dict[str, object]:
        """Return the fields of the status; all counts, as a merge patch keeps what is left out."""
        counts = ("pending", "bound", "running", "succeeded", "failed")
        pods = {name: getattr(self.pods, name) for name in counts}
        times = {"since": self.since, "ranSeconds": self.ran_seconds}
        return {"pods": pods, "assignedQueue": self.assigned_queue, **times}


def figures(job: Job, group: PodGroup, state: GangState, now: float) -> GangFigures:
    """Return the figures of `group` in `state`. `now`: seconds since the epoch."""
    status = group.status
    pods = status.pods if state is GangState.FINISHED and not job.tasks else _counts(job)
    if state == (status.state or GangState.WAITING) and status.since:
        return GangFigures(pods, job.queue, status.since, status.ran_seconds)
    since = now
    if state is GangState.RUNNING:  # the last of its pods to be bound completed it
        bound = (task.bound_at for task in job.tasks.values() if task.bound_at is not None)
        since = min(now, max(bound, default=now))
    return GangFigures(pods, job.queue, timestamp(since), _ran_s(status, now))


def _ran_s(status: PodGroupStatus, now: float) -> float:
    """Return the seconds that the gang ran before it left the state in `status`."""
    since = seconds(status.since)
    if status.state != GangState.RUNNING or since is None:
        return status.ran_seconds
    return status.ran_seconds + max(0.0, round(now - since))


def _counts(job: Job) -> PodCounts:
    pending = bound = running = succeeded = failed = 0
    for task in job.tasks.values():
        status = task.pod_status
        if status in _PENDING:
            pending += 1
        elif status is TaskStatus.SUCCEEDED:
            succeeded += 1
        elif status is TaskStatus.FAILED:
            failed += 1
        else:
            bound += 1
            running += task.runs
    return PodCounts(
        pending=pending, bound=bound, running=running, succeeded=succeeded, failed=failed
    )


_BINDING_SHOWN_AFTER_S = 10.0
"""Delay of the state Binding. Most gangs are bound sooner, which saves the write.

A BindRequest that waits shows the reason in its own status after two seconds."""
_COMING_SHOWN_AFTER_S = 2.0
"""Delay of conditions of gangs whose pods are still being created, for the same reason."""
_COUNTS_SHOWN_AFTER_S = 5.0
"""Delay of counts of pods, in which the pods of a gang usually start."""


UNSCHEDULABLE = "Unschedulable"
"""`corev1.PodReasonUnschedulable`."""


NO_ROOM_FOR_SHARE = "NoRoomForGpuShare"
"""Instead of `Unschedulable`, for a pod with a share that scaling pods show to autoscalers."""


class ReportedKind(Enum):
    """The kinds whose status this module covers."""

    POD = "Pod"
    POD_GROUP = "PodGroup"


@dataclass(frozen=True, slots=True)
class ConditionWrite:
    """A status that differs from the object's present status, to be written."""

    subject: ReportedKind
    meta: Meta
    condition: Condition
    all_conditions: tuple[Condition, ...]
    """The complete list of conditions, for kinds whose list a merge patch replaces."""
    is_urgent: bool
    """Failures are urgent. Successes wait until no commit is in flight."""
    nominated_node: str | None = None
    """For a pod: the node where room is being made, or for which the binder prepares the pod; ""
    for none. None means no change."""
    patience_s: float = 0.0
    """Delay before the write, in which a newer one may replace it."""
    state: str | None = None
    """The state of a gang."""
    figures: GangFigures | None = None
    """The figures of a gang."""
    is_minor: bool = False
    """Whether only figures change. Such writes wait for each other."""
    queue: str | None = None
    """The queue that a gang's bound pods are charged to, "" for none. None means no change.

    Only written to the version of the object in `meta`, as a newer spec may name another queue."""


def pending_writes(
    cluster: Cluster,
    report: CycleReport,
    now: float,
    *,
    undecided: Collection[JobKey] = (),
    hides_shares: bool = False,
) -> Iterator[ConditionWrite]:
    """Yield the writes that are needed after a cycle.

    Args:
        cluster: the cluster after the cycle.
        report: of the cycle.
        now: seconds since the epoch.
        undecided: the jobs whose evictions of earlier cycles may still be refused.
        hides_shares: whether scaling pods show the shares of GPUs to autoscalers. Then the pods
            with the shares must not, because an autoscaler would add nodes without GPUs for them.

    Covers the waiting jobs and the jobs changed since the last call, except jobs that the cycle has
    not reached.
    """
    asked_for = {*undecided, *(eviction.preemptor for eviction in report.evictions)}
    for job in report.jobs.values():
        if job.is_known and job.key not in asked_for:
            with cluster.defects.held_to(DefectStage.REPORT, of_job(job.key)):
                # A list, so that an error is raised here and not between two writes of the caller.
                yield from list(_job_writes(cluster, job, now, hides_shares=hides_shares))
    for key in sorted(cluster.changed_jobs - report.jobs.keys() - asked_for):
        with cluster.defects.held_to(DefectStage.REPORT, of_job(key)):
            yield from list(_group_write(cluster, key, None, now))
    for pod, why in cluster.quarantine.pods():
        if cluster.plans(pod):
            condition = _unscheduled(JobReason.INTERNAL_ERROR, why)
            yield from _pod_write(pod, condition, "", now)
    yield from _nominations(cluster, now)


def _nominations(cluster: Cluster, now: float) -> Iterator[ConditionWrite]:
    for pod, node_name, condition in overdue(cluster, now):
        new = dated(
            condition, condition if condition in (pod.status.conditions or ()) else None, now
        )
        yield ConditionWrite(
            ReportedKind.POD, pod.metadata, new, (new,), is_urgent=True, nominated_node=node_name
        )


def _job_writes(
    cluster: Cluster, job: JobReport, now: float, *, hides_shares: bool
) -> Iterator[ConditionWrite]:
    yield from _pod_writes(cluster, job, now, hides_shares=hides_shares)
    yield from _group_write(cluster, job.key, job, now)


def _group_write(
    cluster: Cluster, key: JobKey, report: JobReport | None, now: float
) -> Iterator[ConditionWrite]:
    group, job = cluster.groups.get(key), cluster.state.jobs.get(key)
    if group is None or job is None:
        return
    late = late_starts(job, cluster.state.nodes, now)
    record = cluster.eviction_history.of(key)
    around = Around(
        cluster.state.nodes.nodes,
        cluster.state.supported,
        is_ending=cluster.namespaces.is_ending(key.namespace),
        idleness=cluster.state.idle.get(key),
    )
    status = gang_status(job, group, report, record, late, around)
    if status is None:
        return
    present = group.status.conditions or ()
    old_and_new = [
        (find(present, new.type), new)
        for new in (status.scheduled, status.evicted, *status.passing)
        if new is not None
    ]
    stays = {condition.type for condition in status.passing}
    ends = any(each.type in PASSING - stays for each in present)
    state = group.status.state or GangState.WAITING
    counted = figures(job, group, status.state, now)
    queue = charged_queue(job, is_guarded=cluster.is_guarded)
    moves = queue is not None and queue != group.status.queue
    is_same = not ends and all(same_words(old, new) for old, new in old_and_new)
    is_minor = state == status.state and not moves and is_same
    if is_minor and counted.is_shown_by(group.status):
        return
    dated_ones = [dated(new, old, now) for old, new in old_and_new]
    kinds = {*PASSING, *(condition.type for condition in dated_ones)}
    is_coming = status.scheduled.reason in STILL_COMING
    others = [each for each in present if each.type not in kinds]
    yield ConditionWrite(
        ReportedKind.POD_GROUP,
        group.metadata,
        dated_ones[0],
        (*others, *dated_ones),
        is_urgent=status.scheduled.status == "False" and not is_coming and not is_minor,
        patience_s=_COUNTS_SHOWN_AFTER_S if is_minor else _patience_s(status, is_coming=is_coming),
        state=status.state,
        queue=queue if moves else None,
        figures=counted,
        is_minor=is_minor,
    )


def _patience_s(status: GangStatus, *, is_coming: bool) -> float:
    if status.state is GangState.BINDING:
        return _BINDING_SHOWN_AFTER_S
    return _COMING_SHOWN_AFTER_S if is_coming else 0.0


def _pod_writes(
    cluster: Cluster, job: JobReport, now: float, *, hides_shares: bool
) -> Iterator[ConditionWrite]:
    places = cluster.promises.places(job.key)
    for uid, pod in job.pods.items():
        if pod.state not in ("Pending", "Pipelined"):
            continue
        known = cluster.pods.get(Uid(uid))
        # Otherwise it was bound or deleted during the cycle.
        if known is not None and not _is_new_for_grouper(job, known, now):
            condition = _unscheduled(job.waits_for, pod.message)
            if hides_shares and _shares_gpu(cluster, Uid(uid)):
                condition = _hidden(condition)
            yield from _pod_write(known, condition, places.get(uid, ""), now)


def _is_new_for_grouper(job: JobReport, pod: Pod, now: float) -> bool:
    """Return whether `pod` may soon get its PodGroup; a write for each would cost too much."""
    created = seconds(pod.metadata.creation_timestamp) or 0.0
    return job.reason == JobReason.WAITING_FOR_GROUP and now - created < GROUPED_WITHIN_S


def _unscheduled(reason: str, message: str) -> Condition:
    """Return the condition of a pod that waits for `reason`.

    Autoscalers read the reason Unschedulable as a lack of nodes. So it is used for nothing else,
    such as a limit of a queue.
    """
    word = UNSCHEDULABLE if not reason or reason in LACKS_ROOM else reason
    return Condition(
        type=POD_SCHEDULED, status="False", reason=word, message=shown_message(message)
    )


def _shares_gpu(cluster: Cluster, uid: Uid) -> bool:
    task = cluster.state.tasks.get(uid)
    return task is not None and task.shares_gpu


def _hidden(condition: Condition) -> Condition:
    """Return `condition` with a reason for which autoscalers add no nodes."""
    return (
        replace_struct(condition, reason=NO_ROOM_FOR_SHARE)
        if condition.reason == UNSCHEDULABLE
        else condition
    )


def _pod_write(pod: Pod, new: Condition, node_name: str, now: float) -> Iterator[ConditionWrite]:
    conditions = pod.status.conditions or ()
    writes = list(_write(ReportedKind.POD, pod.metadata, conditions, new, now))
    if node_name == pod.status.nominated_node_name:
        yield from writes
    elif writes:
        yield replace(writes[0], nominated_node=node_name)
    else:
        # Only the node changes. A write always has a condition, so the present one is repeated.
        condition = find(conditions, new.type) or new
        yield ConditionWrite(
            ReportedKind.POD,
            pod.metadata,
            condition,
            (condition,),
            is_urgent=True,
            nominated_node=node_name,
        )


def _write(
    subject: ReportedKind, meta: Meta, conditions: Sequence[Condition], new: Condition, now: float
) -> Iterator[ConditionWrite]:
    old = find(conditions, new.type)
    if same_words(old, new):
        return
    new = dated(new, old, now)
    others = tuple(condition for condition in conditions if condition.type != new.type)
    yield ConditionWrite(subject, meta, new, (*others, new), is_urgent=new.status == "False")
