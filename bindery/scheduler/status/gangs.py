"""The status of a PodGroup: its state and its conditions. Pure.

Computed from the job's tasks and the last cycle's report, not from earlier events, so that a
restarted scheduler writes the same. Called by `conditions`, which compares it with the PodGroup.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from bindery.api.shown import shown_message
from bindery.api.states import (
    DEVICES_UNHEALTHY,
    EVICTED,
    GPUS_IDLE,
    INVALID,
    PODS_NOT_RUNNING,
    GangState,
)
from bindery.api.states import SCHEDULED as SCHEDULED_CONDITION
from bindery.api.times import timestamp
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Condition, Node
from bindery.scheduler.cache.eviction_history import EvictionRecord
from bindery.scheduler.model.deletions import unended_text
from bindery.scheduler.model.idleness import Idleness, sick_text
from bindery.scheduler.model.jobs import Job, Tally, Task, TaskStatus
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shapes import Need
from bindery.scheduler.model.shortages import gated_text, shortage
from bindery.scheduler.model.starts import LateStart, late_text
from bindery.scheduler.planning.job_reports import notes
from bindery.scheduler.planning.reports import JobReport

PASSING = frozenset({PODS_NOT_RUNNING, GPUS_IDLE, DEVICES_UNHEALTHY})
"""The types of conditions that exist only while they are true."""
_ENDED = frozenset(status for status in TaskStatus if status.has_ended)
_LEAVING = frozenset({TaskStatus.RELEASING, TaskStatus.STUCK})
_REASONS = {
    "stalegangeviction": "StaleGangEviction",
    "runtimelimit": JobReason.RUN_TIME_EXCEEDED.value,
    "idlegpus": GPUS_IDLE,
}
"""Action -> reason, for actions with several words; the names of others are capitalized."""
_MOST_LOSSES = 3
"""Maximum number of lost pods in a message, with their reasons."""
_HAS_ITS_MINIMUM = frozenset(
    {GangState.BINDING, GangState.RUNNING, GangState.FINISHED, GangState.IDLE}
)


@dataclass(frozen=True, slots=True)
class Around:
    """The further input of a gang's status."""

    nodes: Sequence[Node | None]
    """By row."""
    supported: Collection[Need]
    """The needs of pods that plugins support."""
    is_ending: bool
    """Whether its namespace is being deleted."""
    idleness: Idleness | None = None
    """Set if its GPUs are idle for longer than its queue allows."""


@dataclass(frozen=True, slots=True)
class GangStatus:
    """State and conditions of a gang, without times."""

    state: GangState
    scheduled: Condition
    evicted: Condition | None
    """None if the gang was never evicted."""
    passing: Sequence[Condition]
    """Conditions of the kinds in `PASSING`, which exist only while they are true."""


def gang_status(
    job: Job,
    group: PodGroup,
    report: JobReport | None,
    record: EvictionRecord | None,
    late: Sequence[LateStart],
    around: Around,
) -> GangStatus | None:
    """Return the status of `group`, of the gang `job`; None if it must not change now.

    `report`: of the last cycle, if the gang waits. `record`: its last evictions by this process.
    `late`: its bound pods that do not run, by cause.
    """
    if any(_is_being_evicted(task) for task in job.tasks.values()):
        return None  # the outcome of the evictions is known in the next cycle
    evicted = _evicted(group, record)
    if job.pending and report is None and job.has_come and not job.is_scheduled:
        return None  # not planned yet: a later cycle reports why it waits
    state = _state(job, group, was_evicted=evicted is not None and evicted.status == "True")
    if evicted is not None:
        recovered = state in _HAS_ITS_MINIMUM or evicted.status == "False"
        evicted = replace(evicted, status="False" if recovered else "True")
    note = notes(job, around.supported)
    scheduled = _scheduled(job, group, state, report, evicted, note, around)
    return GangStatus(state, scheduled, evicted, list(_passing(job, late, around)))


def _passing(job: Job, late: Sequence[LateStart], around: Around) -> Iterator[Condition]:
    """Yield the conditions that exist only while they are true."""
    if late:
        yield _condition(PODS_NOT_RUNNING, "True", late[0].reason, late_text(late, job))
    if around.idleness is not None:
        yield _condition(GPUS_IDLE, "True", GPUS_IDLE, around.idleness.text())
    sick = sick_text(job)
    if sick:
        yield _condition(DEVICES_UNHEALTHY, "True", DEVICES_UNHEALTHY, sick)


def charged_queue(job: Job, *, is_guarded: bool) -> str | None:
    """Return `status.queue` of a PodGroup, "" for none; None if it must not change.

    While the field is set, the admission policy guards changes of `spec.queue`, and such a change
    moves bound pods. So it is set only when all bound pods are charged to the queue in the spec.
    `is_guarded`: whether the admission policy is installed.
    """
    charged = {name for name, count in job.charged.items() if count}
    if not charged or not is_guarded:
        return ""
    return job.named_queue if charged == {job.named_queue} else None


def find(conditions: Iterable[Condition] | None, kind: str) -> Condition | None:
    """Return the condition with type `kind`; None without one."""
    return next((condition for condition in conditions or () if condition.type == kind), None)


def _is_being_evicted(task: Task) -> bool:
    return task.eviction_committed and task.pod_status is TaskStatus.RUNNING


def _state(job: Job, group: PodGroup, *, was_evicted: bool) -> GangState:
    if job.invalid is not None:
        return GangState.INVALID
    statuses = {task.status for task in job.tasks.values()}
    if statuses and statuses <= _ENDED and _ended_by_itself(job):
        return GangState.FINISHED
    if job.is_satisfied and job.placed.total:
        return GangState.RUNNING if _is_bound(job, statuses) else GangState.BINDING
    if not statuses and group.status.state == GangState.FINISHED:
        return GangState.FINISHED  # its pods were deleted after their end
    if was_evicted and statuses <= _LEAVING | _ENDED:
        return GangState.EVICTED
    return GangState.WAITING if statuses or not job.is_satisfied else GangState.IDLE


def _ended_by_itself(job: Job) -> bool:
    """Return whether the ended pods of `job`, without lost pods, are its minimum.

    A Job keeps evicted and refused pods as Failed until it has replaced them, and longer.
    """
    own = Tally()
    for task in job.tasks.values():
        if not task.loss:
            own.count(task, 1)
    return own.total == len(job.tasks) or (own.total > 0 and job.is_met_by(own))


def _is_bound(job: Job, statuses: set[TaskStatus]) -> bool:
    """Return whether the gang has its minimum without the pods that are being bound."""
    if TaskStatus.BINDING not in statuses:
        return True
    bound = Tally()
    for task in job.tasks.values():
        if task.status in (TaskStatus.RUNNING, TaskStatus.SUCCEEDED):
            bound.count(task, 1)
    return job.is_met_by(bound)


def _scheduled(
    job: Job,
    group: PodGroup,
    state: GangState,
    report: JobReport | None,
    evicted: Condition | None,
    note: str,
    around: Around,
) -> Condition:
    """Return the condition `Scheduled` of a gang in `state`; `note`: its fields without effect."""
    old = find(group.status.conditions, SCHEDULED_CONDITION)
    if state is GangState.FINISHED and not job.tasks and old is not None:
        return old  # its pods are deleted and cannot be counted any more
    if state in _HAS_ITS_MINIMUM or (report is not None and report.satisfied):
        reason: str = JobReason.SCHEDULED
        text = note
        if state is GangState.FINISHED:
            reason, text = state.value, _ended_text(job)
        elif state is GangState.IDLE:
            reason, text = state.value, "no pods exist"
        elif report is not None:
            text = report.message
        return _condition(SCHEDULED_CONDITION, "True", reason, text)
    if state is GangState.INVALID:
        reason, text = INVALID, job.invalid or ""
    elif state is GangState.EVICTED and evicted is not None:
        unended = unended_text(job, around.nodes)
        left = unended or "none of its pods is left"
        reason, text = state.value, f"{left}: {evicted.message}"
    elif report is not None:
        reason, text = report.reason, report.message
    else:
        reason, text = _shortage(job, around)
    return _condition(SCHEDULED_CONDITION, "False", reason, text)


def _shortage(job: Job, around: Around) -> tuple[str, str]:
    """Return reason and text for a gang below its minimum without waiting pods."""
    losses = [task.loss for task in job.tasks.values() if task.loss]
    if around.is_ending:  # its pods are deleted, and no controller creates others
        return JobReason.NOT_ENOUGH_PODS, f"namespace {job.key.namespace} is being deleted"
    if job.gated_count and job.is_satisfied:  # it needs none of its pods
        return JobReason.GATED, gated_text(job)
    if losses or (job.has_come and job.tasks):
        text = f"{job.placed.total} of {job.min_member} required pods have a node"
        if job.needs_none:
            text = "none of its pods has a node"
        if losses:
            verb = "was" if len(losses) == 1 else "were"
            text = f"{text}; {_pods(len(losses))} {verb} lost: {'; '.join(losses[:_MOST_LOSSES])}"
        unended = unended_text(job, around.nodes)
        if unended:
            return JobReason.PODS_NOT_DELETED, f"{text}; {unended}"
        return JobReason.BELOW_MINIMUM, text
    return shortage(job, around.nodes)


def _ended_text(job: Job) -> str:
    counts = Counter(task.status for task in job.tasks.values())
    text = f"{_pods(counts[TaskStatus.SUCCEEDED])} succeeded"
    failed = counts[TaskStatus.FAILED]
    return f"{text}, {failed} failed" if failed else text


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _evicted(group: PodGroup, record: EvictionRecord | None) -> Condition | None:
    """Return the condition about the last evictions; True unless the gang has recovered."""
    old = find(group.status.conditions, EVICTED)
    if record is None:  # this process evicted none of its pods: the condition stays
        return old
    reason = _REASONS.get(record.action, record.action.capitalize() or EVICTED)
    new = _condition(EVICTED, "True", reason, eviction_text(record))
    # The same evictions, from which the gang has recovered already.
    has_recovered = old is not None and old.status == "False" and old.message == new.message
    return old if has_recovered else new


def eviction_text(record: EvictionRecord) -> str:
    """Return a text with the number of evicted pods, the time and the reason."""
    at = timestamp(record.at)
    if record.pods == 1:
        return f"1 pod was evicted at {at}: {record.reason}"
    return f"{record.pods} pods were evicted, the last at {at}: {record.reason}"


def _condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=shown_message(message))


def same_words(one: Condition | None, other: Condition | None) -> bool:
    """Return whether two conditions are equal except for their times."""
    if one is None or other is None:
        return one is other
    return (one.status, one.reason, one.message) == (other.status, other.reason, other.message)


def dated(new: Condition, old: Condition | None, now: float) -> Condition:
    """Return `new` with its transition time: that of `old` if the status is the same."""
    turned = old is None or old.status != new.status
    since = timestamp(now) if turned or old is None else old.last_transition_time
    return replace(new, last_transition_time=since)
