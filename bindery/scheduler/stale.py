"""Which BindRequests nobody will finish: pure decisions, carried out by the janitor.

The binder finishes what can be finished. What it cannot know, or cannot do when it is down, is
cleared here, so that a request never holds room for ever.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bindery.api.bindrequest import Phase
from bindery.api.times import seconds
from bindery.kube.objects import BindRequest
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.holds import is_final
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


def stale_requests(cluster: Cluster, now: float, timeout_s: float) -> Iterator[StaleRequest]:
    """Yield the requests that nobody will finish, or that a newer one has replaced."""
    # In these namespaces this scheduler itself may be between two parts of a Statement.
    writing = {namespace for namespace, _ in cluster.holds.assumed}
    parts = Counter(
        (r.metadata.namespace, r.spec.statement.id) for r in cluster.holds.requests.values()
    )
    for request in cluster.holds.requests.values():
        if is_final(request):
            if request.status.phase == Phase.FAILED and _is_superseded(cluster, request):
                text = "its pods are planned anew or gone"
                yield StaleRequest(request, "Superseded", text)
            continue
        age_s = now - (seconds(request.metadata.creation_timestamp) or now)
        statement = request.spec.statement
        incomplete = parts[request.metadata.namespace, statement.id] < statement.parts
        found = _obstacle(cluster, request) if age_s > SETTLED_AFTER_S else None
        if found is None and age_s > timeout_s:
            found = ("TimedOut", f"it has no outcome after {timeout_s:.0f} s")
        is_writing = request.metadata.namespace in writing
        if found is None and incomplete and age_s > INCOMPLETE_AFTER_S and not is_writing:
            found = ("Incomplete", f"not all of its {statement.parts} parts have come")
        if found is not None:
            yield StaleRequest(request, *found)


def _obstacle(cluster: Cluster, request: BindRequest) -> tuple[str, str] | None:
    """Return why `request` cannot be finished any more, if so: (reason, text)."""
    tasks, nodes = cluster.state.tasks, cluster.state.nodes
    gone = [pod.pod_name for pod in request.spec.pods if Uid(pod.pod_uid) not in tasks]
    homeless = {p.selected_node for p in request.spec.pods if p.selected_node not in nodes.rows}
    all_needed = request.spec.min_bound is None
    if gone and (all_needed or len(gone) == len(request.spec.pods)):
        return "PodsGone", f"pods are gone: {', '.join(gone[:5])}"
    if homeless and (all_needed or all(p.selected_node in homeless for p in request.spec.pods)):
        return "NodesGone", f"nodes are gone: {', '.join(sorted(homeless)[:5])}"
    return None


def _is_superseded(cluster: Cluster, request: BindRequest) -> bool:
    """Return whether no pod of the failed `request` waits to be planned anew."""
    tasks = (cluster.state.tasks.get(Uid(pod.pod_uid)) for pod in request.spec.pods)
    return all(task is None or task.status is not TaskStatus.PENDING for task in tasks)
