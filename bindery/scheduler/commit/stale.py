"""Stale BindRequests, which no binder will finish: pure decisions, executed by writer.py.

The binder finishes all requests that it can. This module finds the other requests, and old requests
while the binder is down, so that no request holds room forever.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bindery.api.bindrequest import Phase
from bindery.api.times import seconds
from bindery.kube.objects.bindrequests import CommittedStatement, StatementKey
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

    statement: CommittedStatement
    """The Statement for which the request is stale."""
    reason: str
    """One CamelCase word."""
    message: str
    has_neighbours: bool = False
    """Whether other Statements in the request are still needed. `statement` is then withdrawn, and
    the request stays.
    """


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
    for stale in (*_stale_statements(cluster, now, timeout_s), *_forsaken(cluster, now, timeout_s)):
        meta = stale.statement.metadata
        by_request[meta.namespace, meta.name][carried(stale.statement)] = stale
    for found in by_request.values():
        unfinished = [stale for stale in found.values() if not stale.statement.is_final]
        neighbours = _neighbours(cluster, found)
        if not neighbours:
            yield next(iter((*unfinished, *found.values())))
        elif not unfinished:
            continue  # the binder deletes it when all have ended
        elif any(_is_needed(cluster, each) for each in neighbours):
            for stale in unfinished:
                if not stale.statement.is_withdrawn:
                    yield replace(stale, has_neighbours=True)
        else:
            yield unfinished[0]


def _neighbours(
    cluster: Cluster, found: Mapping[Carried, StaleRequest]
) -> list[CommittedStatement]:
    """Return the Statements that share the request of `found`, except those in `found`."""
    statements, one = cluster.holds.statements, next(iter(found.values())).statement
    if len(one.siblings) == len(found):
        return []
    keys = (
        Carried(StatementKey(one.metadata.namespace, each, one.key.part), one.metadata.name)
        for each in one.siblings
    )
    return [statements[key] for key in keys if key in statements and key not in found]


def _is_needed(cluster: Cluster, neighbour: CommittedStatement) -> bool:
    """Return whether `neighbour`, which is not stale, keeps its request."""
    if not neighbour.is_final:
        return True
    if neighbour.status.phase != Phase.SUCCEEDED:
        return False
    # The binder reads the outcome of a prerequisite in its request.
    namespace, identity, _ = neighbour.key
    live = (each for each in cluster.holds.statements.values() if not each.is_final)
    built_on = {(each.metadata.namespace, each.spec.after) for each in live}
    for key, assumption in cluster.holds.assumed.items():
        built_on.add((key.namespace, assumption.spec.after))
    return (namespace, identity) in built_on


def _stale_statements(cluster: Cluster, now: float, timeout_s: float) -> Iterator[StaleRequest]:
    """Yield Statements that no binder will finish, and failed ones that are no longer needed."""
    # In these namespaces this scheduler itself may be between two parts of a Statement.
    writing = {key.namespace for key in cluster.holds.assumed}
    statements: defaultdict[_Statement, list[CommittedStatement]] = defaultdict(list)
    for statement in cluster.holds.statements.values():
        statements[statement.metadata.namespace, statement.spec.id].append(statement)
    # One failed part fails its whole Statement.
    failing = {key for key, parts in statements.items() if any(map(_has_failed, parts))}
    live: list[CommittedStatement] = []
    for (namespace, identity), parts in statements.items():
        for part in filter(_stays, parts):
            if part.is_final:
                if _has_failed(part) and _is_superseded(cluster, part):
                    text = "its pods are planned again or gone"
                    yield StaleRequest(part, "Superseded", text)
                continue
            # One without a creation time counts as new.
            age_s = now - (seconds(part.metadata.creation_timestamp) or now)
            count = part.spec.parts
            found = _obstacle(cluster, part) if age_s > SETTLED_AFTER_S else None
            if found is None and age_s > timeout_s:
                found = ("TimedOut", f"it has no outcome after {timeout_s:.0f} s")
            may_lack = age_s > INCOMPLETE_AFTER_S and namespace not in writing
            if found is None and len({each.key for each in parts}) < count and may_lack:
                found = ("Incomplete", f"not all of its {count} parts exist")
            if found is not None:
                failing.add((namespace, identity))
                yield StaleRequest(part, *found)
            elif age_s > SETTLED_AFTER_S and part.spec.after is not None:
                live.append(part)
    yield from _orphans(cluster, live, failing, statements.keys())


def _orphans(
    cluster: Cluster,
    live: Sequence[CommittedStatement],
    failing: set[_Statement],
    known: Collection[_Statement],
) -> Iterator[StaleRequest]:
    """Yield those of `live` whose prerequisite failed or is gone, directly or indirectly."""
    rest, found = list(live), True
    while found:  # each Statement found may be the prerequisite of others
        found, kept = False, []
        for statement in rest:
            why = _orphaned(cluster, statement, failing, known)
            if why is None:
                kept.append(statement)
                continue
            found = True
            failing.add((statement.metadata.namespace, statement.spec.id))
            yield StaleRequest(statement, *why)
        rest = kept


def _orphaned(
    cluster: Cluster,
    statement: CommittedStatement,
    failing: Collection[_Statement],
    known: Collection[_Statement],
) -> _Reason | None:
    """Return why the prerequisite of `statement` will not succeed; None if it may."""
    namespace, before = statement.metadata.namespace, str(statement.spec.after)
    if (namespace, before) in failing:
        return "PredecessorFailed", f"prerequisite Statement {before} failed"
    assumed = (each.spec.id for each in cluster.holds.assumed.values())
    if (namespace, before) in known or before in assumed:
        return None
    # Succeeded requests are deleted after a while: then the gang's bound pods decide.
    tasks = (cluster.state.tasks.get(Uid(pod.pod_uid)) for pod in statement.spec.pods)
    jobs = (cluster.state.jobs[task.job] for task in tasks if task is not None)
    if all(job.is_met_by(bound_pods(job, cluster.holds)) for job in jobs):
        return None
    return "PredecessorGone", f"prerequisite Statement {before} is gone"


def _obstacle(cluster: Cluster, statement: CommittedStatement) -> _Reason | None:
    """Return why `statement` can no longer be finished, by its own pods and nodes; else None."""
    group, tasks, nodes = statement.spec.pod_group, cluster.state.tasks, cluster.state.nodes
    # The garbage collector deletes a request with its PodGroup only if it has no other.
    if group is not None and len(statement.siblings) > 1:
        known = cluster.groups.get(JobKey(statement.metadata.namespace, group.name, True))
        if known is None or known.metadata.uid != group.uid:
            return "GroupGone", f"its PodGroup {group.name} was deleted"
    gone = [pod.pod_name for pod in statement.spec.pods if Uid(pod.pod_uid) not in tasks]
    homeless = {p.selected_node for p in statement.spec.pods if p.selected_node not in nodes.rows}
    all_needed = statement.spec.min_bound is None
    if gone and (all_needed or len(gone) == len(statement.spec.pods)):
        return "PodsGone", f"pods are gone: {', '.join(gone[:5])}"
    if homeless and (all_needed or all(p.selected_node in homeless for p in statement.spec.pods)):
        return "NodesGone", f"nodes are gone: {', '.join(sorted(homeless)[:5])}"
    return None


def _forsaken(cluster: Cluster, now: float, timeout_s: float) -> Iterator[StaleRequest]:
    """Yield Statements of requests that no binder releases and that keep a namespace from ending.

    What was prepared for them goes with the namespace. Elsewhere, a request that is being deleted
    keeps its holds until a binder has rolled back.
    """
    for statement in cluster.holds.statements.values():
        meta = statement.metadata
        deleted_s = seconds(meta.deletion_timestamp)
        if deleted_s is None or now - deleted_s <= timeout_s:
            continue
        if cluster.namespaces.is_ending(meta.namespace):
            text = f"its namespace ends, and no binder has released it in {timeout_s:.0f} s"
            yield StaleRequest(statement, "Forsaken", text)


def _stays(statement: CommittedStatement) -> bool:
    return statement.metadata.deletion_timestamp is None


def _has_failed(statement: CommittedStatement) -> bool:
    return statement.status.phase == Phase.FAILED


def _is_superseded(cluster: Cluster, statement: CommittedStatement) -> bool:
    """Return whether no pod of the failed `statement` waits to be planned again."""
    tasks = (cluster.state.tasks.get(Uid(pod.pod_uid)) for pod in statement.spec.pods)
    return all(task is None or task.status is not TaskStatus.PENDING for task in tasks)
