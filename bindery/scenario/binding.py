"""The binder between two cycles, with the effects and the status protocol of the real one.

Called by `runner`. It holds to what the scheduler can see of the binder: which pods are bound, and
the status of the BindRequest (phases, attempts, backoff 2^n seconds without jitter, boundPods).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from bindery.api.bindrequest import Phase
from bindery.api.times import timestamp
from bindery.kube.objects.bindrequests import (
    CommittedStatement,
    PodBinding,
    StatementStatus,
    UnboundPod,
)
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.scenario.cluster import ScenarioCluster, key_of
from bindery.scenario.faults import Faults


@dataclass(frozen=True)
class Problem:
    """The reason why a pod of a request is not bound."""

    reason: str
    message: str
    is_lasting: bool = True
    """Whether a retry cannot succeed."""


Effects = Callable[[Pod, PodBinding], Iterable[KubeObject]]
"""What binder plugins make of a pod that is bound: objects in their new state."""


def bind_requests(cluster: ScenarioCluster, faults: Faults, effects: Effects) -> None:
    """Make one attempt at every BindRequest whose time has come; remove those that succeed."""
    statements: defaultdict[str, list[CommittedStatement]] = defaultdict(list)
    for key in sorted(cluster.requests):
        request = cluster.requests[key]
        statements[request.spec.id].append(request)
    for parts in _in_order(statements):
        first = parts[0]
        if len(parts) < first.spec.parts or not _is_due(first, cluster.now):
            continue
        before = _before(first, statements, cluster)
        if before is Phase.PENDING:
            continue
        is_refused = before is Phase.FAILED or first.is_withdrawn
        status = _attempt(parts, cluster, faults, effects, is_refused=is_refused)
        for part in parts:
            _write(part, status, cluster, faults)


def _in_order(
    statements: Mapping[str, list[CommittedStatement]],
) -> Iterator[list[CommittedStatement]]:
    """Yield the parts of each Statement; those first on which others build."""
    rest = dict(statements)
    while rest:
        free = {key: p for key, p in rest.items() if p[0].spec.after not in rest}
        yield from (free or rest).values()
        rest = {key: parts for key, parts in rest.items() if free and key not in free}


def _before(
    statement: CommittedStatement,
    statements: Mapping[str, list[CommittedStatement]],
    cluster: ScenarioCluster,
) -> Phase:
    """Return what became of the Statement that `request` builds on: Pending, if it is not known."""
    before = statement.spec.after
    if before is None or before in cluster.bound_statements:
        return Phase.SUCCEEDED
    keys = [key_of(part) for part in statements.get(before, ())]
    parts = [cluster.requests[key] for key in keys if key in cluster.requests]
    has_failed = any(part.status.phase == Phase.FAILED for part in parts)
    return Phase.FAILED if has_failed or not parts else Phase.PENDING


def _is_due(statement: CommittedStatement, now: float) -> bool:
    if statement.is_final:
        return False
    at = statement.status.next_attempt_time
    return at is None or at <= timestamp(now)


def _attempt(
    parts: list[CommittedStatement],
    cluster: ScenarioCluster,
    faults: Faults,
    effects: Effects,
    *,
    is_refused: bool,
) -> StatementStatus:
    """Bind what can be bound and return the status that holds for all parts.

    `is_refused`: it was withdrawn, or the Statement that it builds on has failed or is gone.
    """
    first = parts[0]
    namespace = first.metadata.namespace
    pods = [pod for part in parts for pod in part.spec.pods]
    if is_refused:
        text = f"prerequisite Statement {first.spec.after} failed or is gone"
        refused = Problem("PredecessorFailed", text)
        if first.is_withdrawn:
            refused = Problem("Withdrawn", "the scheduler has withdrawn the Statement")
        return _outcome(first, pods, dict.fromkeys((p.pod_uid for p in pods), refused), cluster.now)
    keys = {pod.pod_uid: cluster.pod_key(namespace, pod.pod_name) for pod in pods}
    problems = {pod.pod_uid: _checked(pod, keys[pod.pod_uid], cluster) for pod in pods}
    passing = [pod for pod in pods if problems[pod.pod_uid] is None]
    needed = len(pods) if first.spec.min_bound is None else first.spec.min_bound
    if len(passing) < needed:
        held = Problem("GangAborted", f"{len(passing)} of {needed} pods can be bound")
        problems.update({pod.pod_uid: held for pod in passing})
    else:
        for pod in passing:
            key = keys[pod.pod_uid]
            problems[pod.pod_uid] = _bind(pod, key, cluster, faults, effects)
    return _outcome(first, pods, problems, cluster.now)


def _checked(pod: PodBinding, key: str, cluster: ScenarioCluster) -> Problem | None:
    record = cluster.pods.get(key)
    if record is None:
        return Problem("PodGone", "the pod does not exist")
    if record.uid != pod.pod_uid:
        return Problem("PodReplaced", "another pod has its name")
    if record.object.spec.node_name not in ("", pod.selected_node):
        return Problem("BoundElsewhere", f"it is on {record.object.spec.node_name}")
    if pod.selected_node not in cluster.nodes:
        return Problem("NodeGone", f"node {pod.selected_node} does not exist")
    return None


def _bind(
    pod: PodBinding, key: str, cluster: ScenarioCluster, faults: Faults, effects: Effects
) -> Problem | None:
    """Bind the pod by whose `key` the cluster knows it."""
    if cluster.pods[key].object.spec.node_name:
        return None
    code = faults.error("bind", (pod.pod_name,))
    if code is not None:
        return Problem("BindFailed", f"the API server answers {code}", is_lasting=False)
    for item in effects(cluster.pods[key].object, pod):
        cluster.put_further(item)
    cluster.run_pod(key, pod.selected_node)
    return None


def _outcome(
    statement: CommittedStatement,
    pods: list[PodBinding],
    problems: dict[str, Problem | None],
    now: float,
) -> StatementStatus:
    unbound = [
        UnboundPod(
            pod_name=pod.pod_name,
            pod_uid=pod.pod_uid,
            node=pod.selected_node,
            reason=problem.reason,
            message=problem.message,
        )
        for pod in pods
        if (problem := problems[pod.pod_uid]) is not None
    ]
    bound = [pod.pod_uid for pod in pods if problems[pod.pod_uid] is None]
    attempts = statement.status.failed_attempts
    status = StatementStatus(
        phase=Phase.SUCCEEDED.value,
        failed_attempts=attempts,
        completion_time=timestamp(now),
        bound_pods=bound,
        unbound_pods=unbound,
    )
    will_retry = any(problem and not problem.is_lasting for problem in problems.values())
    if will_retry and attempts < statement.backoff_limit:
        return msgspec.structs.replace(
            status,
            phase=Phase.PENDING.value,
            failed_attempts=attempts + 1,
            next_attempt_time=timestamp(now + 2**attempts),
            completion_time=None,
            unbound_pods=[],
        )
    needed = len(pods) if statement.spec.min_bound is None else statement.spec.min_bound
    if len(bound) < max(needed, 1):
        failed = attempts + 1 if will_retry else attempts
        return msgspec.structs.replace(status, phase=Phase.FAILED.value, failed_attempts=failed)
    return status


def _write(
    statement: CommittedStatement, status: StatementStatus, cluster: ScenarioCluster, faults: Faults
) -> None:
    """Store `status`; when that fails, the next step finds the pods bound and stores it."""
    names = [pod.pod_name for pod in statement.spec.pods]
    if faults.error("patchStatus", names) is not None:
        return
    cluster.put_request(msgspec.structs.replace(statement, status=status))
    if status.phase == Phase.SUCCEEDED:
        cluster.bound_statements.add(statement.spec.id)
        cluster.delete_statement(key_of(statement))
