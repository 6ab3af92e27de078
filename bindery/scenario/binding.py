"""The binder between two cycles, with the effects and the status protocol of the real one.

Called by `runner`. The scheduler sees the same as of the real binder: the bound pods, and the
status of the BindRequest (phases, attempts, backoff 2^n seconds without jitter, boundPods).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
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
from bindery.scenario.cluster import ScenarioCluster
from bindery.scenario.events import Faults
from bindery.scheduler.cache.holds import carried
from bindery.scheduler.model.jobs import Uid


@dataclass(frozen=True)
class Problem:
    """The reason why a pod of a request is not bound."""

    reason: str
    message: str
    is_lasting: bool = True
    """Whether a retry cannot succeed."""


Key = tuple[str, str]
"""Namespace and id of a Statement."""
Parts = list[CommittedStatement]
"""All parts of one Statement that exist."""


def bind_requests(cluster: ScenarioCluster, faults: Faults) -> None:
    """Make one attempt at every Statement that is due; remove each Statement that succeeds."""
    statements: defaultdict[Key, Parts] = defaultdict(list)
    for statement in sorted(cluster.statements.values(), key=_turn):
        statements[statement.metadata.namespace, statement.spec.id].append(statement)
    for parts in _in_order(statements):
        first = parts[0]
        if len(parts) < first.spec.parts or not _is_due(first, cluster.clock.now):
            continue
        before = _before(first, statements, cluster)
        if before is Phase.PENDING:
            continue
        is_refused = before is Phase.FAILED or first.is_withdrawn
        status = _attempt(parts, cluster, faults, is_refused=is_refused)
        for part in parts:
            _write(part, status, cluster, faults)


def _turn(statement: CommittedStatement) -> tuple[str, str, str, int]:
    meta, spec = statement.metadata, statement.spec
    return meta.namespace, meta.name, spec.id, spec.part


def _preceding(statement: CommittedStatement) -> Key | None:
    """Return the Statement that `statement` builds on."""
    after = statement.spec.after
    return None if after is None else (statement.metadata.namespace, after)


def _in_order(statements: Mapping[Key, Parts]) -> Iterator[Parts]:
    """Yield the parts of each Statement; a Statement comes after the one that it builds on."""
    rest = dict(statements)
    while rest:
        free = {key: p for key, p in rest.items() if _preceding(p[0]) not in rest}
        yield from (free or rest).values()
        rest = {key: parts for key, parts in rest.items() if free and key not in free}


def _before(
    statement: CommittedStatement, statements: Mapping[Key, Parts], cluster: ScenarioCluster
) -> Phase:
    """Return the phase of the Statement that `statement` builds on; Pending if it has not ended."""
    before = _preceding(statement)
    if before is None or before in cluster.bound_statements:
        return Phase.SUCCEEDED
    keys = [carried(part) for part in statements.get(before, ())]
    parts = [cluster.statements[key] for key in keys if key in cluster.statements]
    has_failed = any(part.status.phase == Phase.FAILED for part in parts)
    return Phase.FAILED if has_failed or not parts else Phase.PENDING


def _is_due(statement: CommittedStatement, now: float) -> bool:
    if statement.is_final:
        return False
    at = statement.status.next_attempt_time
    return at is None or at <= timestamp(now)


def _attempt(
    parts: Parts, cluster: ScenarioCluster, faults: Faults, *, is_refused: bool
) -> StatementStatus:
    """Bind the pods that pass the check; return the status of all parts.

    `is_refused`: it was withdrawn, or the Statement that it builds on has failed or is gone.
    """
    first, now = parts[0], cluster.clock.now
    pods = [pod for part in parts for pod in part.spec.pods]
    if is_refused:
        text = f"prerequisite Statement {first.spec.after} failed or is gone"
        refused = Problem("PredecessorFailed", text)
        if first.is_withdrawn:
            refused = Problem("Withdrawn", "the scheduler has withdrawn the Statement")
        return _outcome(first, pods, dict.fromkeys((p.pod_uid for p in pods), refused), now)
    problems = {pod.pod_uid: _checked(pod, first.metadata.namespace, cluster) for pod in pods}
    passing = [pod for pod in pods if problems[pod.pod_uid] is None]
    needed = len(pods) if first.spec.min_bound is None else first.spec.min_bound
    if len(passing) < needed:
        held = Problem("GangAborted", f"{len(passing)} of {needed} pods can be bound")
        problems.update({pod.pod_uid: held for pod in passing})
    else:
        for pod in passing:
            problems[pod.pod_uid] = _bind(pod, cluster, faults)
    return _outcome(first, pods, problems, now)


def _checked(pod: PodBinding, namespace: str, cluster: ScenarioCluster) -> Problem | None:
    uid = cluster.uid_of(namespace, pod.pod_name)
    if uid is None:
        return Problem("PodGone", "the pod does not exist")
    if uid != pod.pod_uid:
        return Problem("PodReplaced", "another pod has its name")
    node = cluster.pods[uid].spec.node_name
    if node not in ("", pod.selected_node):
        return Problem("BoundElsewhere", f"it is on {node}")
    if pod.selected_node not in cluster.nodes:
        return Problem("NodeGone", f"node {pod.selected_node} does not exist")
    return None


def _bind(binding: PodBinding, cluster: ScenarioCluster, faults: Faults) -> Problem | None:
    pod = cluster.pods[Uid(binding.pod_uid)]
    if pod.spec.node_name:
        return None
    code = faults.error("bind", (binding.pod_name,))
    if code is not None:
        return Problem("BindFailed", f"the API server answers {code}", is_lasting=False)
    cluster.bind_pod(pod, binding)
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
    written = msgspec.structs.replace(statement, status=status)
    cluster.put(written)
    if status.phase == Phase.SUCCEEDED:
        cluster.bound_statements.add((written.metadata.namespace, written.spec.id))
        cluster.delete(written)
