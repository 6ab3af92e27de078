"""The rows of `bindery get gangs` and `get requests`.

Pure: `get` reads and prints. The rows of queues are in `queuerows`, because they need the
scheduler's tables.
"""

from collections.abc import Sequence
from datetime import datetime

from bindery.answers.rows import Row
from bindery.answers.statements import few, gang_of, phase_of, reason_of
from bindery.api.names import SCHEDULER_NAME
from bindery.api.states import (
    DEVICES_UNHEALTHY,
    GPUS_IDLE,
    INVALID,
    PODS_NOT_RUNNING,
    SCHEDULED,
    GangState,
)
from bindery.api.times import age
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.snapshot import FINISHED, ClusterSnapshot, is_bound
from bindery.kube.objects.subgrouptree import SubGroupTreeError, tree_of
from bindery.kube.objects.watched import Condition, Pod
from bindery.kube.objects.workloads import failure

_POD_SCHEDULED = "PodScheduled"


def gang_rows(snapshot: ClusterSnapshot, now: datetime) -> list[Row]:
    """Return one row for each PodGroup and each waiting single pod, by namespace and name.

    A missing PodGroup also has a row if waiting pods name it.
    """
    rows = [_gang_row(group, snapshot, now) for group in snapshot.groups]
    existing = {(group.metadata.namespace, group.metadata.name) for group in snapshot.groups}
    for (namespace, name), pods in snapshot.pods_by_group.items():
        waiting = [pod for pod in pods if _is_waiting(pod)]
        if waiting and (namespace, name) not in existing:
            rows.append(_missing_row(name, pods, waiting, snapshot, now))
    singles = (pod for pod in snapshot.pods if _is_waiting_single(snapshot, pod))
    rows += [_single_row(pod, snapshot, now) for pod in singles]
    return sorted(rows, key=lambda row: (str(row["namespace"]), str(row["name"])))


def scheduled_condition(group: PodGroup) -> Condition | None:
    """Return the condition `Scheduled` of `group`, if it has one."""
    return _condition(group, SCHEDULED)


def _condition(group: PodGroup, kind: str) -> Condition | None:
    conditions = group.status.conditions or ()
    return next((item for item in conditions if item.type == kind), None)


def _least_pods(group: PodGroup) -> int:
    """Return the number of pods that all stages of the gang need together."""
    try:
        below = tree_of(group.spec.sub_groups).below
    except SubGroupTreeError:
        return group.spec.min_member

    def least(name: str, min_sub_group: int | None) -> int:
        parts = sorted(
            least(each.name, each.min_sub_group) if each.name in below else each.min_member or 0
            for each in below.get(name, ())
        )
        return sum(parts if min_sub_group is None else parts[:min_sub_group])

    return max(group.spec.min_member, least("", group.spec.min_sub_group))


def _gang_row(group: PodGroup, snapshot: ClusterSnapshot, now: datetime) -> Row:
    meta = group.metadata
    pods = snapshot.pods_by_group.get((meta.namespace, meta.name), [])
    condition = scheduled_condition(group)
    if group.unreadable:  # the older conditions are no longer valid
        condition = Condition(
            type=SCHEDULED, status="False", reason=INVALID, message=group.unreadable
        )
    waits = condition is not None and condition.status != "True"
    turn = group.status.turn
    return {
        "namespace": meta.namespace,
        "name": meta.name,
        "queue": snapshot.queue_of_group(group),
        "state": _state(group),
        "running": sum(is_bound(pod) and pod.status.phase == "Running" for pod in pods),
        "bound": sum(is_bound(pod) for pod in pods),
        "min": _least_pods(group),
        "pods": len(pods),
        "turn": f"{turn.place}/{turn.of}" if turn is not None and waits else "",
        "age": age(meta.creation_timestamp, now),
        "reason": condition.reason if condition is not None and waits else "",
        "message": condition.message if condition is not None and waits else "",
        "waits": failure(group, snapshot.workload_jobs) or _waits_because(group, condition, pods),
        "idle": _condition(group, GPUS_IDLE) is not None,
    }


def _waits_because(group: PodGroup, condition: Condition | None, pods: Sequence[Pod]) -> str:
    if condition is not None and condition.status != "True":
        return f"{condition.reason}: {condition.message}"
    return _not_all(group, pods)


def _not_all(group: PodGroup, pods: Sequence[Pod]) -> str:
    """Return why pods of a scheduled gang wait, do not start or do no work; "" if none does."""
    for kind in (PODS_NOT_RUNNING, DEVICES_UNHEALTHY, GPUS_IDLE):
        found = _condition(group, kind)
        if found is not None:
            return f"{found.reason}: {found.message}"
    condition = scheduled_condition(group)
    waits = any(not is_bound(pod) and pod.status.phase not in FINISHED for pod in pods)
    return (
        condition.message
        if condition is not None and condition.reason == SCHEDULED and waits
        else ""
    )


def _state(group: PodGroup) -> str:
    if group.unreadable:
        return GangState.INVALID.value
    return group.status.state or GangState.WAITING.value


def _is_waiting_single(snapshot: ClusterSnapshot, pod: Pod) -> bool:
    """Return whether `pod` is a gang of one without a node."""
    return _is_waiting(pod) and not snapshot.claims.of(pod).group


def _is_waiting(pod: Pod) -> bool:
    """Return whether `pod` is Bindery's and has no node."""
    if pod.spec.node_name or pod.status.phase in FINISHED:
        return False
    return pod.spec.scheduler_name == SCHEDULER_NAME


def _condition_of_pod(pod: Pod) -> Condition | None:
    conditions = pod.status.conditions or ()
    return next((item for item in conditions if item.type == _POD_SCHEDULED), None)


def _why(condition: Condition | None) -> dict[str, str]:
    """Return why a pod waits by its condition `PodScheduled`, in the fields of a row."""
    if condition is None or condition.status == "True":
        return {"reason": "", "message": "", "waits": ""}
    reason, message = condition.reason, condition.message
    return {"reason": reason, "message": message, "waits": f"{reason}: {message}"}


def _missing_row(
    name: str, pods: Sequence[Pod], waiting: Sequence[Pod], snapshot: ClusterSnapshot, now: datetime
) -> Row:
    """Return the row of a missing PodGroup that `pods` name."""
    oldest = min(waiting, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))
    condition = _condition_of_pod(oldest)
    return {
        "namespace": oldest.metadata.namespace,
        "name": name,
        "queue": snapshot.queue_of(oldest),
        "state": GangState.WAITING.value,
        "running": sum(is_bound(pod) and pod.status.phase == "Running" for pod in pods),
        "bound": sum(is_bound(pod) for pod in pods),
        "min": "",
        "pods": len(pods),
        "turn": "",
        "age": age(oldest.metadata.creation_timestamp, now),
        **_why(condition),
        "idle": False,
    }


def _single_row(pod: Pod, snapshot: ClusterSnapshot, now: datetime) -> Row:
    meta = pod.metadata
    is_planned = meta.uid in snapshot.requested_nodes
    condition = _condition_of_pod(pod)
    return {
        "namespace": meta.namespace,
        "name": f"pod/{meta.name}",
        "queue": snapshot.queue_of(pod),
        "state": (GangState.BINDING if is_planned else GangState.WAITING).value,
        "running": 0,
        "bound": 0,
        "min": 1,
        "pods": 1,
        "turn": "",
        "age": age(meta.creation_timestamp, now),
        **_why(None if is_planned else condition),
        "idle": False,
    }


def request_rows(snapshot: ClusterSnapshot, now: datetime, gang: str = "") -> list[Row]:
    """Return one row for each Statement of the BindRequests, by namespace and request.

    `gang`: only the Statements of this PodGroup, or of this pod as `pod/NAME`.
    """
    chosen = [each for each in snapshot.statements if not gang or _is_of(each, gang)]
    chosen.sort(key=lambda each: (each.metadata.namespace, each.metadata.name))
    return [_statement_row(statement, now) for statement in chosen]


def _is_of(statement: CommittedStatement, gang: str) -> bool:
    kind, _, name = gang.rpartition("/")
    if kind == "pod":
        return any(pod.pod_name == name for pod in statement.spec.pods)
    group = statement.spec.pod_group
    return group is not None and group.name == gang


def _statement_row(statement: CommittedStatement, now: datetime) -> Row:
    return {
        "namespace": statement.metadata.namespace,
        "name": statement.metadata.name,
        "gang": gang_of(statement),
        "statement": statement.spec.id,
        "part": statement.spec.part,
        "phase": phase_of(statement),
        "bound": f"{len(statement.status.bound_pods)}/{len(statement.spec.pods)}",
        "nodes": few(sorted({pod.selected_node for pod in statement.spec.pods})),
        "attempts": statement.status.failed_attempts,
        "age": age(statement.metadata.creation_timestamp, now),
        "reason": reason_of(statement),
    }
