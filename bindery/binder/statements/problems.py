"""Validates Statements and their parts.

A Statement that is too large for one BindRequest is split over several, which share its `id`. Used
by `manager` before a Run starts, and by `run_start` for parts with an outcome.
"""

from collections.abc import Iterable

from bindery.api.bindrequest import BindFailureReason, Phase
from bindery.binder.outcome.outcome import PodFailure
from bindery.kube.objects.bindrequests import CommittedStatement, StatementSpec


def problem_of(statement: CommittedStatement) -> str:
    """Return the problem of the Statement, or part of one, by itself; "" if there is none."""
    spec = statement.spec
    if not spec.pods:
        return "pods is empty"
    if spec.part >= spec.parts:
        return f"part {spec.part} of {spec.parts} does not exist"
    if spec.after == spec.id:
        return "the Statement names itself as its prerequisite"
    return _problem_of_pods([statement])


def problem_of_parts(parts: list[CommittedStatement]) -> str:
    """Return the reason why the parts contradict each other; "" if they do not."""
    first = _common(parts[0].spec)
    if any(_common(part.spec) != first for part in parts[1:]):
        return "the parts of the Statement disagree on parts, after or minBound"
    return _problem_of_pods(parts)


def _common(spec: StatementSpec) -> tuple[int, str | None, int | None]:
    """Return the fields in which all parts of a Statement must agree."""
    return spec.parts, spec.after, spec.min_bound


def _problem_of_pods(parts: Iterable[CommittedStatement]) -> str:
    seen: set[str] = set()
    for part in parts:
        for pod in part.spec.pods:
            if not (pod.pod_name and pod.pod_uid and pod.selected_node):
                return f"pod {pod.pod_name!r} has no name, UID or node"
            if pod.pod_uid in seen:
                return f"pod {pod.pod_name} ({pod.pod_uid}) is named twice"
            seen.add(pod.pod_uid)
    return ""


def settled_refusals(parts: Iterable[CommittedStatement]) -> dict[str, PodFailure]:
    """Return the pods that must stay unbound because a part already has its final status.

    A binder that dies between the status writes of two parts leaves such Statements. The other
    parts get the same outcome.
    """
    parts = list(parts)
    refusals: dict[str, PodFailure] = {}
    for part in (each for each in parts if each.is_final):
        status = part.status
        if status.phase == Phase.FAILED:
            failure = PodFailure(
                status.reason or BindFailureReason.PART_GONE, status.message, permanent=True
            )
            refusals.update((pod.pod_uid, failure) for each in parts for pod in each.spec.pods)
        for pod in status.unbound_pods:
            refusals[pod.pod_uid] = PodFailure(pod.reason, pod.message, permanent=True)
    return refusals
