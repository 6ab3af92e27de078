"""Which BindRequests nobody will finish: pure decisions, carried out by writer.py.

The binder finishes what can be finished. What it cannot know, or cannot do when it is down, is
cleared here, so that a request never holds room for ever.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from bindery.api.bindrequest import Phase
from bindery.api.times import seconds
from bindery.kube.objects import BindRequest
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.commit.precedence import bound_pods
from bindery.scheduler.model.jobs import TaskStatus, Uid

SETTLED_AFTER_S = 5.0
"""A younger request's pods and nodes may not have been seen yet: watches are not in step."""
INCOMPLETE_AFTER_S = 30.0
"""How long the parts of a split Statement may take to come. A scheduler that was killed between two
parts leaves the first ones behind."""


@dataclass(frozen=True, slots=True)
class StaleRequest:
    """A request to be removed."""

    request: BindRequest
    reason: str
    """One CamelCase word."""
    message: str


_Reason = tuple[str, str]
"""One CamelCase word, and a text."""
_Statement = tuple[str, str]
"""Namespace and id of a Statement."""


def stale_requests(cluster: Cluster, now: float, timeout_s: float) -> Iterator[StaleRequest]:
    """Yield the requests that nobody will finish, or that a newer one has replaced."""
    # In these namespaces this scheduler itself may be between two parts of a Statement.
    writing = {namespace for namespace, _ in cluster.holds.assumed}
    statements: defaultdict[_Statement, list[BindRequest]] = defaultdict(list)
    for request in cluster.holds.requests.values():
        statements[request.metadata.namespace, request.spec.statement.id].append(request)
    failing = {key for key, parts in statements.items() if any(map(_has_failed, parts))}
    live: list[BindRequest] = []
    for (namespace, identity), parts in statements.items():
        for request in parts:
            if request.is_final:
                if _has_failed(request) and _is_superseded(cluster, request):
                    text = "its pods are planned anew or gone"
                    yield StaleRequest(request, "Superseded", text)
                continue
            age_s = now - (seconds(request.metadata.creation_timestamp) or now)
            count = request.spec.statement.parts
            found = _obstacle(cluster, request) if age_s > SETTLED_AFTER_S else None
            if found is None and age_s > timeout_s:
                found = ("TimedOut", f"it has no outcome after {timeout_s:.0f} s")
            may_lack = age_s > INCOMPLETE_AFTER_S and namespace not in writing
            if found is None and len(parts) < count and may_lack:
                found = ("Incomplete", f"not all of its {count} parts have come")
            if found is not None:
                failing.add((namespace, identity))
                yield StaleRequest(request, *found)
            elif age_s > SETTLED_AFTER_S and request.spec.statement.after is not None:
                live.append(request)
    yield from _orphans(cluster, live, failing, statements.keys())


def _orphans(
    cluster: Cluster,
    live: Sequence[BindRequest],
    failing: set[_Statement],
    known: Collection[_Statement],
) -> Iterator[StaleRequest]:
    """Yield those of `live` without the Statement that they build on, and what builds on these."""
    rest, found = list(live), True
    while found:
        found, kept = False, []
        for request in rest:
            why = _orphaned(cluster, request, failing, known)
            if why is None:
                kept.append(request)
                continue
            found = True
            failing.add((request.metadata.namespace, request.spec.statement.id))
            yield StaleRequest(request, *why)
        rest = kept


def _orphaned(
    cluster: Cluster,
    request: BindRequest,
    failing: Collection[_Statement],
    known: Collection[_Statement],
) -> _Reason | None:
    """Return why the Statement that `request` builds on is no ground any more, if so."""
    namespace, before = request.metadata.namespace, str(request.spec.statement.after)
    if (namespace, before) in failing:
        return "PredecessorFailed", f"the Statement {before} before it has failed"
    assumed = (each.spec.statement.id for each in cluster.holds.assumed.values())
    if (namespace, before) in known or before in assumed:
        return None
    # One that has succeeded is removed after a while: the pods tell what it has done.
    tasks = (cluster.state.tasks.get(Uid(pod.pod_uid)) for pod in request.spec.pods)
    jobs = (cluster.state.jobs[task.job] for task in tasks if task is not None)
    if all(job.is_met_by(bound_pods(job, cluster.holds)) for job in jobs):
        return None
    return "PredecessorGone", f"the Statement {before} before it is gone"


def _obstacle(cluster: Cluster, request: BindRequest) -> _Reason | None:
    """Return why `request` cannot be finished any more by itself, if so."""
    tasks, nodes = cluster.state.tasks, cluster.state.nodes
    gone = [pod.pod_name for pod in request.spec.pods if Uid(pod.pod_uid) not in tasks]
    homeless = {p.selected_node for p in request.spec.pods if p.selected_node not in nodes.rows}
    all_needed = request.spec.min_bound is None
    if gone and (all_needed or len(gone) == len(request.spec.pods)):
        return "PodsGone", f"pods are gone: {', '.join(gone[:5])}"
    if homeless and (all_needed or all(p.selected_node in homeless for p in request.spec.pods)):
        return "NodesGone", f"nodes are gone: {', '.join(sorted(homeless)[:5])}"
    return None


def _has_failed(request: BindRequest) -> bool:
    return request.status.phase == Phase.FAILED


def _is_superseded(cluster: Cluster, request: BindRequest) -> bool:
    """Return whether no pod of the failed `request` waits to be planned anew."""
    tasks = (cluster.state.tasks.get(Uid(pod.pod_uid)) for pod in request.spec.pods)
    return all(task is None or task.status is not TaskStatus.PENDING for task in tasks)
