"""Builds the statuses of Statements and of their BindRequests from outcomes. Pure.

Called by `run.run` for each outcome and by `statements.manager` for malformed requests; written by
`api_server.api_adapter`. Each part of a Statement lists only its own pods. All fields are always
set, because a merge patch keeps fields that it does not contain.
"""

from collections.abc import Iterable, Mapping, Sequence, Sized

import msgspec

from bindery.api.bindrequest import BindFailureReason, Phase
from bindery.api.shown import shown_message
from bindery.binder.outcome.outcome import BoundReason, Outcome, PodOutcome, Verdict, Wait
from bindery.kube.objects.bindrequests import (
    BindRequest,
    CommittedStatement,
    PodBinding,
    PodGroupReference,
    StatementSpec,
    StatementStatus,
)

Status = dict[str, object]


def final_status(
    statement: CommittedStatement, outcome: Outcome, attempts: int, now: str
) -> Status:
    """Return the status of a part with a finished transaction.

    Args:
        statement: the part.
        outcome: SUCCEEDED or FAILED.
        attempts: number of failed attempts before.
        now: the time, as text.
    """
    succeeded = outcome.verdict is Verdict.SUCCEEDED
    status = _progress(statement, outcome)
    status["phase"] = Phase.SUCCEEDED if succeeded else Phase.FAILED
    status["failedAttempts"] = attempts
    status["completionTime"] = now
    status["nextAttemptTime"] = None
    status["unboundPods"] = [_unbound(pod) for pod in _pods_of(statement, outcome) if not pod.bound]
    return status


def retry_status(
    statement: CommittedStatement, outcome: Outcome, attempts: int, next_attempt: str
) -> Status:
    """Return the status of a part that will be tried again at `next_attempt`."""
    status = _progress(statement, outcome)
    status["phase"] = Phase.BINDING if outcome.begun else Phase.PENDING
    status["failedAttempts"] = attempts
    status["completionTime"] = None
    status["nextAttemptTime"] = next_attempt
    status["unboundPods"] = []
    return status


def waiting_status(wait: Wait) -> Status:
    """Return the status of a Statement that waits without an outcome."""
    return {
        "phase": Phase.BINDING if wait.is_begun else Phase.PENDING,
        "reason": wait.reason,
        "message": shown_message(wait.message),
    }


def announced_status(token: int, now: str) -> Status:
    """Return the status of an announcement of a new leader after the binder has read it."""
    return {
        "phase": Phase.SUCCEEDED,
        "reason": "Announced",
        "message": f"the binder refuses requests with a fencing token older than {token}",
        "completionTime": now,
    }


def malformed_status(message: str, now: str, pods: Iterable[PodBinding] | None = None) -> Status:
    """Return the status of a request, or one of its Statements, that is malformed.

    `pods`: the pods of the Statement; None for a whole request. The status of a Statement must list
    all its pods, because pods that are not listed count as bound.
    """
    status: Status = {
        "phase": Phase.FAILED,
        "reason": BindFailureReason.MALFORMED,
        "message": shown_message(message),
        "completionTime": now,
    }
    if pods is not None:
        status["nextAttemptTime"] = None
        status["unboundPods"] = [_given_up(pod, BindFailureReason.MALFORMED) for pod in pods]
    return status


def shared_status(stored: BindRequest, changes: Mapping[str, Mapping[str, object]]) -> Status:
    """Return the status of a request.

    Args:
        stored: the request with its newest status.
        changes: Statement id -> changed fields of its status, from the other functions.
    """
    known = {each.id: each for each in stored.status.statements}
    entries = [
        _entry(each.id, known.get(each.id), changes.get(each.id)) for each in stored.spec.statements
    ]
    sizes = [len(each.pods) for each in stored.spec.statements]
    completions = [str(entry["completionTime"]) for entry in entries if "completionTime" in entry]
    phase = _common_phase([_phase(entry) for entry in entries])
    reason, message = _summary(stored.spec.statements, entries)
    return {
        "statements": [entry for entry in entries if len(entry) > 1],
        "phase": phase,
        "reason": reason,
        "message": message,
        "boundCount": sum(map(_bound_count, entries, sizes)),
        "failedAttempts": max(int(str(entry.get("failedAttempts", 0))) for entry in entries),
        "completionTime": max(completions) if phase.is_final else None,
    }


def _entry(
    statement_id: str, known: StatementStatus | None, change: Mapping[str, object] | None
) -> dict[str, object]:
    """Return the status of one Statement, without empty fields."""
    entry: dict[str, object] = msgspec.to_builtins(known) if known is not None else {}
    entry |= change or {}
    if Phase(str(entry.get("phase", Phase.PENDING))).is_final:
        entry.pop("boundPods", None)  # all pods that are not in unboundPods
    return {"id": statement_id, **{key: value for key, value in entry.items() if value}}


def _phase(entry: Mapping[str, object]) -> Phase:
    return Phase(str(entry.get("phase", Phase.PENDING)))


def _common_phase(phases: Sequence[Phase]) -> Phase:
    if all(phase.is_final for phase in phases):
        return Phase.FAILED if Phase.FAILED in phases else Phase.SUCCEEDED
    return Phase.PENDING if set(phases) == {Phase.PENDING} else Phase.BINDING


def _bound_count(entry: Mapping[str, object], size: int) -> int:
    pods = entry.get("unboundPods" if _phase(entry).is_final else "boundPods", ())
    count = len(pods) if isinstance(pods, Sized) else 0
    return size - count if _phase(entry).is_final else count


def _summary(
    statements: Sequence[StatementSpec], entries: Sequence[Mapping[str, object]]
) -> tuple[str, str]:
    """Return the reason and the message of a request with these Statements."""
    speaker = _speaker(entries)
    if speaker is None:
        return "", ""
    reason, message = str(speaker.get("reason", "")), str(speaker.get("message", ""))
    if len(entries) == 1:
        return reason, message
    gang = name_of_gang(statements[entries.index(speaker)].pod_group)
    text = f"{gang}: {message}" if message else ""
    if _phase(speaker) is Phase.FAILED:
        count = sum(_phase(entry) is Phase.FAILED for entry in entries)
        text = f"{count} of {len(entries)} Statements failed; {text or gang}"
    return reason, shown_message(text)


def _speaker(entries: Sequence[Mapping[str, object]]) -> Mapping[str, object] | None:
    """Return the entry whose reason the request's status shows; None if there is none."""
    failed = [entry for entry in entries if _phase(entry) is Phase.FAILED]
    unfinished = [entry for entry in entries if not _phase(entry).is_final]
    if unfinished and not failed:
        return next((entry for entry in unfinished if "reason" in entry), None)
    partly = [entry for entry in entries if entry.get("reason") == BoundReason.PARTLY_BOUND]
    return next(iter((*failed, *partly, *entries)))


def name_of_gang(group: PodGroupReference | None) -> str:
    """Return a readable name of the gang, for a Statement that shares its request."""
    return group.name if group is not None else "pods without a gang"


def _progress(statement: CommittedStatement, outcome: Outcome) -> Status:
    pods = _pods_of(statement, outcome)
    bound = [pod.binding.pod_uid for pod in pods if pod.bound]
    return {"reason": outcome.reason, "message": shown_message(outcome.message), "boundPods": bound}


def _pods_of(statement: CommittedStatement, outcome: Outcome) -> list[PodOutcome]:
    return [outcome.pods[pod.pod_uid] for pod in statement.spec.pods]


def _unbound(pod: PodOutcome) -> dict[str, str]:
    failure = pod.failure
    if failure is None:
        return _given_up(pod.binding, BindFailureReason.GANG_ABORTED)
    return _given_up(pod.binding, failure.reason, failure.message)


def _given_up(pod: PodBinding, reason: str, message: str = "") -> dict[str, str]:
    return {
        "podName": pod.pod_name,
        "podUID": pod.pod_uid,
        "node": pod.selected_node,
        "reason": reason,
        "message": shown_message(message),
    }
