"""Stale BindRequests, which no binder will finish: pure decisions, executed by writer.py.

The binder finishes all requests that it can. This module finds the others, and those that stay
behind while the binder is down, so that no request holds room forever.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bindery.api.bindrequest import Phase
from bindery.api.times import seconds
from bindery.kube.bindrequests import CommittedStatement, StatementKey
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.holds import Carried, carried
from bindery.scheduler.commit.precedence import bound_pods
from bindery.scheduler.model.jobs import JobKey, TaskStatus, Uid

SETTLED_AFTER_S = 5.0
"""Age of a request at which its pods and nodes should be known, as watches are not ordered."""
INCOMPLETE_AFTER_S = 30.0
"""Age of a request at which all parts of its Statement should exist.

A scheduler that is killed between two parts leaves the first parts behind."""


@dataclass(frozen=True, slots=True)
class StaleRequest:
    """A request to delete, or one of its Statements to withdraw."""

    request: CommittedStatement
    """The Statement that is the reason."""
    reason: str
    """One CamelCase word."""
    message: str
    has_neighbours: bool = False
    """Whether other Statements in the request are still needed, so that this one is withdrawn."""


_Reason = tuple[str, str]
"""One CamelCase word, and a text for people."""
_Statement = tuple[str, str]
"""Namespace and id of a Statement."""


def stale_requests(cluster: Cluster, now: float, timeout_s: float) -> Iterator[StaleRequest]:
    """Yield the requests that no binder will finish, and failed ones that are no longer needed.

    A request with several Statements is yielded once, when none of them is needed any more. Until
    then, a Statement that no binder will finish is withdrawn from it.
    """
    by_request: defaultdict[tuple[str, str], dict[Carried, StaleRequest]] = defaultdict(dict)
    for stale in _stale_statements(cluster, now, timeout_s):
        meta = stale.request.metadata
        by_request[meta.namespace, meta.name][carried(stale.request)] = stale
    for found in by_request.values():
        unfinished = [stale for stale in found.values() if not stale.request.is_final]
        neighbours = _neighbours(cluster, found)
        if not neighbours:
            yield next(iter((*unfinished, *found.values())))
        elif not unfinished:
            continue  # the binder deletes it when all have ended
        elif any(_is_needed(cluster, each) for each in neighbours):
            for stale in unfinished:
                if not stale.request.is_withdrawn:
                    yield replace(stale, has_neighbours=True)
        else:
            yield unfinished[0]


def _neighbours(
    cluster: Cluster, found: Mapping[Carried, StaleRequest]
) -> list[CommittedStatement]:
    """Return the Statements that share the request of `found`, except those in `found`."""
    requests, one = cluster.holds.requests, next(iter(found.values())).request
    if len(one.siblings) == len(found):
        return []
    keys = (
        Carried(StatementKey(one.metadata.namespace, each, one.key.part), one.metadata.name)
        for each in one.siblings
    )
    return [requests[key] for key in keys if key in requests and key not in found]


def _is_needed(cluster: Cluster, neighbour: CommittedStatement) -> bool:
    """Return whether `neighbour`, which is not stale, keeps its request."""
    if not neighbour.is_final:
        return True
    if neighbour.status.phase != Phase.SUCCEEDED:
        return False
    # The binder reads the outcome of a prerequisite in its request.
    namespace, identity, _ = neighbour.key
    live = (each for each in cluster.holds.requests.values() if not each.is_final)
    built_on = {(each.metadata.namespace, each.spec.after) for each in live}
    for key, assumption in cluster.holds.assumed.items():
        built_on.add((key.namespace, assumption.spec.after))
    return (namespace, identity) in built_on


def _stale_statements(cluster: Cluster, now: float, timeout_s: float) -> Iterator[StaleRequest]:
    """Yield Statements that no binder will finish, and failed ones that are no longer needed."""
    # In these namespaces this scheduler itself may be between two parts of a Statement.
    writing = {key.namespace for key in cluster.holds.assumed}
    statements: defaultdict[_Statement, list[CommittedStatement]] = defaultdict(list)
    for request in cluster.holds.requests.values():
        statements[request.metadata.namespace, request.spec.id].append(request)
    # One failed part fails its whole Statement.
    failing = {key for key, parts in statements.items() if any(map(_has_failed, parts))}
    live: list[CommittedStatement] = []
    for (namespace, identity), parts in statements.items():
        for request in parts:
            if request.is_final:
                if _has_failed(request) and _is_superseded(cluster, request):
                    text = "its pods are planned again or gone"
                    yield StaleRequest(request, "Superseded", text)
                continue
            # A request without a creation time counts as new.
            age_s = now - (seconds(request.metadata.creation_timestamp) or now)
            count = request.spec.parts
            found = _obstacle(cluster, request) if age_s > SETTLED_AFTER_S else None
            if found is None and age_s > timeout_s:
                found = ("TimedOut", f"it has no outcome after {timeout_s:.0f} s")
            may_lack = age_s > INCOMPLETE_AFTER_S and namespace not in writing
            if found is None and len({part.key for part in parts}) < count and may_lack:
                found = ("Incomplete", f"not all of its {count} parts exist")
            if found is not None:
                failing.add((namespace, identity))
                yield StaleRequest(request, *found)
            elif age_s > SETTLED_AFTER_S and request.spec.after is not None:
                live.append(request)
    yield from _orphans(cluster, live, failing, statements.keys())


def _orphans(
    cluster: Cluster,
    live: Sequence[CommittedStatement],
    failing: set[_Statement],
    known: Collection[_Statement],
) -> Iterator[StaleRequest]:
    """Yield the requests of `live` whose prerequisite failed or is gone, directly or indirectly."""
    rest, found = list(live), True
    while found:  # each request found may be the prerequisite of others
        found, kept = False, []
        for request in rest:
            why = _orphaned(cluster, request, failing, known)
            if why is None:
                kept.append(request)
                continue
            found = True
            failing.add((request.metadata.namespace, request.spec.id))
            yield StaleRequest(request, *why)
        rest = kept


def _orphaned(
    cluster: Cluster,
    request: CommittedStatement,
    failing: Collection[_Statement],
    known: Collection[_Statement],
) -> _Reason | None:
    """Return why the prerequisite of `request` will not succeed; None if it may."""
    namespace, before = request.metadata.namespace, str(request.spec.after)
    if (namespace, before) in failing:
        return "PredecessorFailed", f"prerequisite Statement {before} failed"
    assumed = (each.spec.id for each in cluster.holds.assumed.values())
    if (namespace, before) in known or before in assumed:
        return None
    # Succeeded requests are deleted after a while: then the gang's bound pods decide.
    tasks = (cluster.state.tasks.get(Uid(pod.pod_uid)) for pod in request.spec.pods)
    jobs = (cluster.state.jobs[task.job] for task in tasks if task is not None)
    if all(job.is_met_by(bound_pods(job, cluster.holds)) for job in jobs):
        return None
    return "PredecessorGone", f"prerequisite Statement {before} is gone"


def _obstacle(cluster: Cluster, request: CommittedStatement) -> _Reason | None:
    """Return why `request` can no longer be finished, by its own pods and nodes; else None."""
    group, tasks, nodes = request.spec.pod_group, cluster.state.tasks, cluster.state.nodes
    # The garbage collector deletes a request with its PodGroup only if it has no other.
    if group is not None and len(request.siblings) > 1:
        known = cluster.groups.get(JobKey(request.metadata.namespace, group.name, True))
        if known is None or known.metadata.uid != group.uid:
            return "GroupGone", f"its PodGroup {group.name} was deleted"
    gone = [pod.pod_name for pod in request.spec.pods if Uid(pod.pod_uid) not in tasks]
    homeless = {p.selected_node for p in request.spec.pods if p.selected_node not in nodes.rows}
    all_needed = request.spec.min_bound is None
    if gone and (all_needed or len(gone) == len(request.spec.pods)):
        return "PodsGone", f"pods are gone: {', '.join(gone[:5])}"
    if homeless and (all_needed or all(p.selected_node in homeless for p in request.spec.pods)):
        return "NodesGone", f"nodes are gone: {', '.join(sorted(homeless)[:5])}"
    return None


def _has_failed(request: CommittedStatement) -> bool:
    return request.status.phase == Phase.FAILED


def _is_superseded(cluster: Cluster, request: CommittedStatement) -> bool:
    """Return whether no pod of the failed `request` waits to be planned again."""
    tasks = (cluster.state.tasks.get(Uid(pod.pod_uid)) for pod in request.spec.pods)
    return all(task is None or task.status is not TaskStatus.PENDING for task in tasks)
