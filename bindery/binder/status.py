"""Builds the status of a BindRequest from an outcome: pure.

Called by `run` for each outcome and by `manager` for requests that cannot be carried out; written
by `api_adapter`. Each part of a Statement lists only its own pods. All fields are always given,
because a merge patch keeps fields that it does not name.
"""

from bindery.api.bindrequest import BindFailureReason, Phase
from bindery.api.shown import shown
from bindery.binder.outcome import Outcome, PodOutcome, Verdict, Wait
from bindery.kube.objects import BindRequest

"""The length that Kubernetes allows an event's note."""

Status = dict[str, object]


def final_status(request: BindRequest, outcome: Outcome, attempts: int, now: str) -> Status:
    """Return the status of a part whose transaction has come to its end.

    Args:
        request: the part.
        outcome: SUCCEEDED or FAILED.
        attempts: how many attempts failed before.
        now: the time, as text.
    """
    succeeded = outcome.verdict is Verdict.SUCCEEDED
    status = _progress(request, outcome)
    status["phase"] = Phase.SUCCEEDED if succeeded else Phase.FAILED
    status["failedAttempts"] = attempts
    status["completionTime"] = now
    status["nextAttemptTime"] = None
    status["unboundPods"] = [_unbound(pod) for pod in _pods_of(request, outcome) if not pod.bound]
    return status


def retry_status(
    request: BindRequest, outcome: Outcome, attempts: int, next_attempt: str
) -> Status:
    """Return the status of a part that is tried again at `next_attempt`."""
    status = _progress(request, outcome)
    status["phase"] = Phase.BINDING if outcome.begun else Phase.PENDING
    status["failedAttempts"] = attempts
    status["completionTime"] = None
    status["nextAttemptTime"] = next_attempt
    status["unboundPods"] = []
    return status


def waiting_status(wait: Wait) -> Status:
    """Return the status of a request that waits and has no outcome yet."""
    return {
        "phase": Phase.BINDING if wait.is_begun else Phase.PENDING,
        "reason": wait.reason,
        "message": shown(wait.message),
    }


def announced_status(token: int, now: str) -> Status:
    """Return the status of the announcement of a new leader, which has been seen."""
    return {
        "phase": Phase.SUCCEEDED,
        "reason": "Announced",
        "message": f"the binder refuses requests with a fencing token older than {token}",
        "completionTime": now,
    }


def malformed_status(message: str, now: str) -> Status:
    """Return the status of a request that cannot be understood."""
    return {
        "phase": Phase.FAILED,
        "reason": BindFailureReason.MALFORMED,
        "message": shown(message),
        "completionTime": now,
        "nextAttemptTime": None,
    }


def _progress(request: BindRequest, outcome: Outcome) -> Status:
    pods = _pods_of(request, outcome)
    bound = [pod.binding.pod_uid for pod in pods if pod.bound]
    return {
        "reason": outcome.reason,
        "message": shown(outcome.message),
        "boundPods": bound,
        "boundCount": len(bound),
    }


def _pods_of(request: BindRequest, outcome: Outcome) -> list[PodOutcome]:
    return [outcome.pods[pod.pod_uid] for pod in request.spec.pods]


def _unbound(pod: PodOutcome) -> dict[str, str]:
    failure = pod.failure
    return {
        "podName": pod.binding.pod_name,
        "podUID": pod.binding.pod_uid,
        "node": pod.binding.selected_node,
        "reason": failure.reason if failure else BindFailureReason.GANG_ABORTED,
        "message": shown(failure.message) if failure else "",
    }
