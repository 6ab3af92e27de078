"""The conditions of upstream's groups, from the status of our PodGroup.

Only conditions of ours are changed, and only when they differ. From Kubernetes 1.37 on, a group
that was scheduled once stays so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bindery.api.states import ENDED_POD_PHASES, EVICTED, INVALID, SCHEDULED
from bindery.grouper.table.facts import PodFacts
from bindery.grouper.upstream.model import Adapter, UpstreamGroup
from bindery.kube.objects.watched import Condition

DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPTED: Final = "PreemptionByScheduler"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
_ERRORS: Final = frozenset({INVALID, "InternalError"})
"""Reasons of ours that are no lack of room."""
_MOST_MESSAGE: Final = 32_000


@dataclass(frozen=True)
class UpstreamFinding:
    """What is known about a tree of groups."""

    conditions: Sequence[Condition] = ()
    """The conditions of our PodGroup."""
    error: str = ""
    """Why there is no PodGroup of ours; "" if there is one, or will be."""
    pods: Sequence[PodFacts] = ()


def conditions(
    group: UpstreamGroup, adapter: Adapter, finding: UpstreamFinding, *, is_root: bool, now: str
) -> list[dict[str, Any]] | None:
    """Return all conditions of `group` as they should be; None if they are so already.

    Args:
        group: a group of the tree.
        adapter: that of its kind.
        finding: what is known of the tree.
        is_root: whether the conditions of our PodGroup are about this very group.
        now: the time, as the API server writes it.
    """
    wanted = [
        each
        for each in (
            _scheduled(group, adapter, finding, is_root=is_root),
            _disrupted(group, finding) if is_root else None,
        )
        if each is not None
    ]
    changed = False
    result = {str(each.get("type")): dict(each) for each in group.conditions}
    for each in wanted:
        known = result.get(each["type"], {})
        if all(known.get(key) == value for key, value in each.items()):
            continue
        changed = True
        moved = known.get("status") != each["status"]
        result[each["type"]] = {
            **each,
            "observedGeneration": group.generation,
            "lastTransitionTime": now if moved else known.get("lastTransitionTime") or now,
        }
    return list(result.values()) if changed else None


def _scheduled(
    group: UpstreamGroup, adapter: Adapter, finding: UpstreamFinding, *, is_root: bool
) -> dict[str, Any] | None:
    kind = adapter.scheduled[group.reference.kind]
    if adapter.is_latched and _status(group, kind) == "True":
        return None
    if finding.error:
        return _condition(kind, "False", SCHEDULER_ERROR, finding.error)
    ours = next((each for each in finding.conditions if each.type == SCHEDULED), None)
    if ours is None:
        return None
    if ours.status == "True":
        is_leaf = not is_root and not group.is_composite
        if is_leaf and _bound(group, finding.pods) < (group.minimum or 1):
            return None  # other groups were enough for the whole
        message = "the pods that the group needs have their nodes"
        return _condition(kind, "True", "Scheduled", message)
    reason = SCHEDULER_ERROR if ours.reason in _ERRORS else UNSCHEDULABLE
    return _condition(kind, "False", reason, f"{ours.reason}: {ours.message}")


def _disrupted(group: UpstreamGroup, finding: UpstreamFinding) -> dict[str, Any] | None:
    ours = next((each for each in finding.conditions if each.type == EVICTED), None)
    if ours is not None and ours.status == "True":
        return _condition(DISRUPTION_TARGET, "True", PREEMPTED, ours.message)
    if _status(group, DISRUPTION_TARGET) == "True":
        message = "the group has its minimum again"
        return _condition(DISRUPTION_TARGET, "False", PREEMPTED, message)
    return None


def _bound(group: UpstreamGroup, pods: Sequence[PodFacts]) -> int:
    return sum(
        pod.scheduling_group == group.name and (pod.is_bound or pod.phase in ENDED_POD_PHASES)
        for pod in pods
    )


def _status(group: UpstreamGroup, kind: str) -> str:
    found: Mapping[str, Any] = next(
        (each for each in group.conditions if each.get("type") == kind), {}
    )
    return str(found.get("status") or "")


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message[:_MOST_MESSAGE]}
