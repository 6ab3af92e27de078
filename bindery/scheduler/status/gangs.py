"""What a PodGroup should say now: its state and its conditions. Pure.

Worked out from what is - the job's tasks, and the last cycle's report of why it waits - never from
what was seen to happen, so that a scheduler that has just begun writes the same. Called by
`conditions`, which compares it with what the PodGroup says already.
"""

from collections import Counter
from dataclasses import dataclass

from msgspec.structs import replace

from bindery.api.podgroup import INVALID
from bindery.api.podgroup import SCHEDULED as SCHEDULED_CONDITION
from bindery.api.shown import shown
from bindery.api.states import EVICTED, GangState
from bindery.api.times import timestamp
from bindery.kube.objects import Condition, PodGroup
from bindery.scheduler.cache.eviction_history import EvictionRecord
from bindery.scheduler.model.jobs import Job, Tally, Task, TaskStatus
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.planning.gang_notes import notes
from bindery.scheduler.planning.reports import JobReport

_ENDED = frozenset(status for status in TaskStatus if status.has_ended)
_LEAVING = frozenset({TaskStatus.RELEASING, TaskStatus.STUCK})
_REASONS = {"stalegangeviction": "StaleGangEviction"}
"""The reasons of evictions by actions whose names are several words; others are capitalized."""
_HAS_ITS_MINIMUM = frozenset({GangState.BINDING, GangState.RUNNING, GangState.FINISHED})


@dataclass(frozen=True, slots=True)
class GangStatus:
    """The state and the conditions, without their times."""

    state: GangState
    scheduled: Condition
    evicted: Condition | None
    """None: it was never evicted."""


def gang_status(
    job: Job, group: PodGroup, report: JobReport | None, record: EvictionRecord | None
) -> GangStatus | None:
    """Return what `group` should say; None while evictions of its pods are being asked for.

    Args:
        job: the gang.
        group: its PodGroup as it is.
        report: what the last cycle found out about it, if it waits.
        record: its last evictions, as far as this process has made them.
    """
    if any(_is_being_evicted(task) for task in job.tasks.values()):
        return None  # the next cycle knows how that went
    evicted = _evicted(group, record)
    if job.pending and report is None and job.has_come and not job.is_satisfied:
        return None  # it has not been tried yet: a cycle that finds out why it waits says so
    state = _state(job, group, was_evicted=evicted is not None and evicted.status == "True")
    if evicted is not None:
        recovered = state in _HAS_ITS_MINIMUM or evicted.status == "False"
        evicted = replace(evicted, status="False" if recovered else "True")
    return GangStatus(state, _scheduled(job, group, state, report, evicted), evicted)


def charged_queue(job: Job, *, is_guarded: bool) -> str | None:
    """Return what the `queue` in the status of a PodGroup should be, "" for none; None: it stays.

    It lets changes of `spec.queue` move bound pods, as the admission policy guards these from then
    on. So it is set only while all bound pods are charged to the queue that the PodGroup names.

    Args:
        job: the gang.
        is_guarded: whether the admission policy is in force.
    """
    charged = {name for name, count in job.charged.items() if count}
    if not charged or not is_guarded:
        return ""
    return job.named_queue if charged == {job.named_queue} else None


def find(group: PodGroup, kind: str) -> Condition | None:
    """Return the condition of type `kind` that `group` has, if any."""
    conditions = group.status.conditions or ()
    return next((condition for condition in conditions if condition.type == kind), None)


def _is_being_evicted(task: Task) -> bool:
    return task.eviction_committed and task.pod_status is TaskStatus.RUNNING


def _state(job: Job, group: PodGroup, *, was_evicted: bool) -> GangState:
    if job.invalid is not None:
        return GangState.INVALID
    statuses = {task.status for task in job.tasks.values()}
    if statuses and statuses <= _ENDED:
        return GangState.FINISHED
    if job.is_satisfied and job.placed.total:
        return GangState.RUNNING if _is_bound(job, statuses) else GangState.BINDING
    if not statuses and group.status.state == GangState.FINISHED:
        return GangState.FINISHED  # what has ended is cleared away some time
    if was_evicted and statuses <= _LEAVING | _ENDED:
        return GangState.EVICTED
    return GangState.WAITING


def _is_bound(job: Job, statuses: set[TaskStatus]) -> bool:
    """Whether the gang has its minimum without the pods that the binder is at work for."""
    if TaskStatus.BINDING not in statuses:
        return True
    bound = Tally()
    for task in job.tasks.values():
        if task.status in (TaskStatus.RUNNING, TaskStatus.SUCCEEDED):
            bound.count(task, 1)
    return job.is_met_by(bound)


def _scheduled(
    job: Job, group: PodGroup, state: GangState, report: JobReport | None, evicted: Condition | None
) -> Condition:
    """Return the condition `Scheduled` of a gang in `state`."""
    old = find(group, SCHEDULED_CONDITION)
    if state is GangState.FINISHED and not job.tasks and old is not None:
        return old
    if state in _HAS_ITS_MINIMUM or (report is not None and report.satisfied):
        reason: str = JobReason.SCHEDULED
        text = notes(job)
        if state is GangState.FINISHED:
            reason, text = state.value, _ended_text(job)
        elif report is not None:
            text = report.message
        return _condition(SCHEDULED_CONDITION, "True", reason, text)
    if state is GangState.INVALID:
        reason, text = INVALID, job.invalid or ""
    elif state is GangState.EVICTED and evicted is not None:
        reason, text = state.value, f"none of its pods is left: {evicted.message}"
    elif report is not None:
        reason, text = report.reason, report.message
    else:
        reason, text = _shortage(job)
    return _condition(SCHEDULED_CONDITION, "False", reason, text)


def _shortage(job: Job) -> tuple[str, str]:
    """Return reason and text for a gang below its minimum of which no pod waits."""
    if job.has_come and job.tasks:
        text = f"{job.placed.total} of {job.min_member} required pods have a node"
        return JobReason.BELOW_MINIMUM, text
    come = job.placed.total + job.waiting.total
    text = f"{come} of {job.min_member} required pods exist" if job.min_member else "no pods exist"
    return JobReason.NOT_ENOUGH_PODS, text


def _ended_text(job: Job) -> str:
    counts = Counter(task.status for task in job.tasks.values())
    text = f"{counts[TaskStatus.SUCCEEDED]} pods have succeeded"
    failed = counts[TaskStatus.FAILED]
    return f"{text}, {failed} have failed" if failed else text


def _evicted(group: PodGroup, record: EvictionRecord | None) -> Condition | None:
    """Return the condition of the last evictions, True if the PodGroup has not recovered."""
    old = find(group, EVICTED)
    if record is None:
        return old
    reason = _REASONS.get(record.action, record.action.capitalize() or EVICTED)
    new = _condition(EVICTED, "True", reason, eviction_text(record))
    has_recovered = old is not None and old.status == "False" and old.message == new.message
    return old if has_recovered else new


def eviction_text(record: EvictionRecord) -> str:
    """Return who was evicted, why and when, in words."""
    at = timestamp(record.at)
    if record.pods == 1:
        return f"1 pod was evicted at {at}: {record.reason}"
    return f"{record.pods} pods were evicted, the last at {at}: {record.reason}"


def _condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=shown(message))


def same_words(one: Condition | None, other: Condition | None) -> bool:
    """Return whether two conditions say the same, whenever they began to."""
    if one is None or other is None:
        return one is other
    return (one.status, one.reason, one.message) == (other.status, other.reason, other.message)


def dated(new: Condition, old: Condition | None, now: float) -> Condition:
    """Return `new` with the time since when its status is what it is."""
    turned = old is None or old.status != new.status
    since = timestamp(now) if turned or old is None else old.last_transition_time
    return replace(new, last_transition_time=since)
