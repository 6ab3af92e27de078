"""The state of a gang or a pod in the cluster's objects, without planning.

Used by `gang` and `own`.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

import msgspec

from bindery.answers.statements import lines_of_gang
from bindery.answers.subjects import Subject, statements_about
from bindery.api.names import SOURCES_ANNOTATION
from bindery.api.times import age
from bindery.cli.text.explanation import some_lines
from bindery.cli.text.subgroups import sub_group_lines
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.snapshot import FINISHED, ClusterSnapshot, is_bound
from bindery.kube.objects.watched import Pod
from bindery.kube.objects.workloads import failure


def state_lines(snapshot: ClusterSnapshot, about: Subject, now: datetime) -> list[str]:
    """Return the state of the pod and the gang of `about`, and of its BindRequests."""
    lines = about.introduction.splitlines()
    if about.pod is not None:
        lines.append(_pod_line(snapshot, about.pod))
    if about.key.is_group:
        lines.append(_group_line(snapshot, about, now))
        lines += _source_lines(about.group)
    if about.group is not None and (failed := failure(about.group, snapshot.workload_jobs)):
        lines.append(f"{failed}.")
    if about.group is not None:
        lines += some_lines(list(sub_group_lines(snapshot, about.group)))
    return [*lines, *some_lines(list(lines_of_gang(snapshot, _untold(snapshot, about))))]


def _untold(snapshot: ClusterSnapshot, about: Subject) -> list[CommittedStatement]:
    """Return the Statements of `about` that its introduction does not show."""
    found = statements_about(snapshot, about)
    return [each for each in found if each.metadata.name != about.request]


def _pod_line(snapshot: ClusterSnapshot, pod: Pod) -> str:
    name = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
    if pod.status.phase in FINISHED:
        return f"{name} is {pod.status.phase}."
    if pod.metadata.deletion_timestamp is not None:
        return f"{name} is being deleted."
    if pod.spec.node_name:
        return f"{name} is bound to node {pod.spec.node_name} ({pod.status.phase})."
    node = snapshot.requested_nodes.get(pod.metadata.uid)
    if node is not None:
        return f"{name} is being bound to node {node}."
    return f"{name} waits."


def _group_line(snapshot: ClusterSnapshot, about: Subject, now: datetime) -> str:
    if about.group is None:
        return f"Its PodGroup {about.key} does not exist."
    meta = about.group.metadata
    pods = snapshot.pods_by_group.get((meta.namespace, meta.name), [])
    bound = sum(is_bound(pod) for pod in pods)
    leaving = sum(is_bound(pod) and pod.metadata.deletion_timestamp is not None for pod in pods)
    deleted = f" ({leaving} being deleted)" if leaving else ""
    least = about.group.spec.min_member
    needed = "" if about.group.spec.sub_groups or not least else f", at least {are_needed(least)}"
    return (
        f"PodGroup {meta.namespace}/{meta.name} (queue {snapshot.queue_of_group(about.group)}, "
        f"{age(meta.creation_timestamp, now)} old): {bound} of {len(pods)} pods are bound"
        f"{deleted}{needed}."
    )


def are_needed(pods: int) -> str:
    """Return the number of pods that a gang needs, as text."""
    return f"{pods} {'is' if pods == 1 else 'are'} needed"


def _source_lines(group: PodGroup | None) -> Iterator[str]:
    """Yield the objects that gave the values of a PodGroup written for a workload."""
    text = group.metadata.annotations.get(SOURCES_ANNOTATION) if group is not None else None
    if not text:
        return
    try:
        sources = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        yield f"Its annotation {SOURCES_ANNOTATION} cannot be read."
        return
    by_object: defaultdict[str, list[str]] = defaultdict(list)
    for field, source in sorted(sources.items()):
        by_object[source].append(field)
    parts = (f"{', '.join(fields)} from {source}" for source, fields in sorted(by_object.items()))
    yield f"Its values: {'; '.join(parts)}."
