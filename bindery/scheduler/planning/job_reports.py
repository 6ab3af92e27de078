"""The report of one job and its pods at the end of the cycle. Pure."""

from collections.abc import Collection

from bindery.scheduler.model.jobs import Job, Task, TaskStatus
from bindery.scheduler.model.reasons import LACKS_ROOM, JobReason
from bindery.scheduler.model.shapes import Need, ignored_text
from bindery.scheduler.model.shortages import gated_text
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.hopeless import can_run
from bindery.scheduler.planning.reports import JobReport, PodReport, ReservationReport
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.staging import gathering
from bindery.scheduler.plugins.interface.jobs import RoomExplanation, WaitExplanation


def notes(job: Job, supported: Collection[Need]) -> str:
    """Return which fields of `job` have no effect, and why; "" if all have one."""
    ignored = ignored_text((task.shape for task in job.tasks.values()), supported)
    return "; ".join(text for text in (_queue_text(job), ignored) if text)


def _queue_text(job: Job) -> str:
    if job.queue == job.named_queue or not job.exists:
        return ""
    return (
        f"its bound pods are charged to queue {job.queue}: "
        f"queue {job.named_queue} applies when they have ended"
    )


_BY_SIZE = frozenset({JobReason.UNSCHEDULABLE, JobReason.OVER_LIMIT, JobReason.FITS_NO_NODE})
"""The reasons of jobs that may be too large for every node or for a limit."""


def job_report(session: Session, job: Job) -> JobReport:
    """Return the results of the session for `job`."""
    refusal = session.refusals.get(job) or _gathering(job)
    satisfied = job.exists and job.invalid is None and job.is_scheduled
    waits_for = refusal.reason if refusal is not None else ""
    if refusal is None:
        gated = job.gated_count > 0 and not satisfied
        reason: str = JobReason.GATED if gated else JobReason.SCHEDULED
        message = gated_text(job) if gated else ""
    else:
        reason, message = refusal.reason, refusal.message
        refused_room = session.memory.refused_room(job)
        # If room is being released now, an earlier refusal no longer matters.
        if refused_room is not None and reason != JobReason.WAITS_FOR_RELEASE:
            message = f"{message}; {refused_room}"
        for plugin in session.plugins.of(RoomExplanation) if reason in LACKS_ROOM else ():
            note = plugin.explain_room(session, job)
            if note is not None:
                message = f"{message}; {note.text}"
                waits_for = JobReason.NODES_REQUESTED if note.nodes_requested else waits_for
    pods = {task.uid: _pod_report(session, task, message, job) for task in job.tasks.values()}
    # A gang with its minimum is scheduled, although extra pods of it still wait.
    if satisfied and refusal is not None:
        more = "1 more pod waits" if len(job.pending) == 1 else f"{len(job.pending)} more pods wait"
        message = f"{more}: {message}"
        reason = JobReason.SCHEDULED
    message = "; ".join(text for text in (message, notes(job, session.plugins.supported)) if text)
    kept = session.reservations.of(job)
    reserved = None
    if kept is not None:
        nodes = tuple(session.state.nodes.name(row) for row in kept.rows)
        reserved = ReservationReport(nodes, kept.start)
    is_known = refusal is None or refusal.reason != JobReason.NOT_TRIED_YET
    return JobReport(
        job.key,
        job.uid,
        satisfied,
        reason,
        message,
        pods,
        reserved,
        waits_for=waits_for,
        can_run=refusal is None or refusal.reason not in _BY_SIZE or can_run(session, job),
        is_known=is_known,
    )


def _gathering(job: Job) -> Refusal | None:
    """Return why a later stage waits of which not all pods exist; None if none does."""
    found = gathering(job) if job.stages and job.pending else None
    if found is None:
        return None
    stage, count = found
    text = f"{count} pods of its later stage {stage.name} exist, which are too few"
    return Refusal(JobReason.NOT_ENOUGH_PODS, text)


def _pod_report(session: Session, task: Task, message: str, job: Job) -> PodReport:
    planned = task.status in (TaskStatus.BINDING, TaskStatus.PIPELINED)
    waits = task.status in (TaskStatus.PENDING, TaskStatus.PIPELINED)
    text = message if waits else ""
    if task.status is TaskStatus.PENDING and task.uid in session.last_places.get(job, ()):
        text = f"it had a place, but its gang was given up: {message}"
    for plugin in session.plugins.of(WaitExplanation) if waits else ():
        addition = plugin.explain_wait(session, job, task, text)
        text = f"{text}; {addition}" if addition else text
    node = session.state.nodes.name(task.row) if planned and task.row >= 0 else task.node_name
    promised = session.state.nodes.devices.promised_to.get(task.uid)
    devices = promised.devices if promised is not None else ()
    return PodReport(task.name, task.status.value, node, text, devices)
