"""Find the object of a name on the command line. Used by `explanation`.

Kinds are named as kubectl names them: singular, plural, short name, or with their group, as
`kubectl -o name` prints them. Workloads are found by the owner references of their pods, so that
nothing is read for them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from bindery.api.names import GROUP, NODE_POOL_LABEL
from bindery.cli.errors import CommandError
from bindery.cli.requesttext import request_lines
from bindery.kube.objects import Pod, PodGroup, Queue
from bindery.kube.snapshot import FINISHED, ClusterSnapshot, is_bound
from bindery.scheduler.cache.members import job_key
from bindery.scheduler.model.jobs import JobKey

_POD_TEMPLATE_HASH: Final = "pod-template-hash"
"""On a pod of a Deployment; its ReplicaSet is called like the Deployment and this."""

_ALIASES: Final[Mapping[str, str]] = {
    alias: kind
    for kind, aliases in {
        "Pod": ("pod", "pods", "po"),
        "PodGroup": ("podgroup", "podgroups", "pg", "gang", "gangs"),
        "Queue": ("queue", "queues", "bq"),
        "BindRequest": ("bindrequest", "bindrequests", "br"),
        "Job": ("job", "jobs"),
        "CronJob": ("cronjob", "cronjobs", "cj"),
        "Deployment": ("deployment", "deployments", "deploy"),
        "ReplicaSet": ("replicaset", "replicasets", "rs"),
        "StatefulSet": ("statefulset", "statefulsets", "sts"),
    }.items()
    for alias in aliases
}
_WORKLOADS: Final = frozenset({"Job", "CronJob", "Deployment", "ReplicaSet", "StatefulSet"})
_KNOWN: Final = "pod, pg, queue, br, job, cronjob, deploy, rs or sts"


@dataclass(frozen=True)
class Subject:
    """The object to explain: a PodGroup, or a pod and its PodGroup if it has one."""

    key: JobKey
    group: PodGroup | None
    pod: Pod | None
    introduction: str = ""
    """Lines about what has led to it: a workload or a BindRequest; empty if nothing has."""
    request: str = ""
    """The name of the BindRequest that the introduction is about; empty if it is about none."""

    @property
    def node_pool(self) -> str:
        """The pool whose scheduler plans it; empty for the default pool."""
        owner = self.group or self.pod
        return owner.metadata.labels.get(NODE_POOL_LABEL, "") if owner is not None else ""


def named_queue(snapshot: ClusterSnapshot, name: str) -> Queue | None:
    """Return the queue of a name such as `queue/research`; None for other kinds.

    Raises:
        CommandError: there is no such queue; the message names similar ones.
    """
    prefix, _, bare = name.rpartition("/")
    if not prefix or _kind(prefix) != "Queue":
        return None
    queues = {queue.metadata.name: queue for queue in snapshot.queues}
    if bare not in queues:
        raise _missing("Queue", bare, queues, "")
    return queues[bare]


def subject(snapshot: ClusterSnapshot, name: str, namespace: str) -> Subject:
    """Return the object called `name`: a PodGroup, else a pod, or the gang of a workload.

    Raises:
        CommandError: there is no such thing; the message names similar ones.
    """
    prefix, _, bare = name.rpartition("/")
    kind = _kind(prefix) if prefix else ""
    if kind == "BindRequest":
        return _of_request(snapshot, bare, namespace)
    if kind in _WORKLOADS:
        return _of_workload(snapshot, kind, bare, namespace)
    groups, pods = _groups(snapshot, namespace), _pods(snapshot, namespace)
    if kind in ("", "PodGroup") and bare in groups:
        return Subject(JobKey(namespace, bare, True), groups[bare], None)
    if kind in ("", "Pod") and bare in pods:
        return _of_pod(snapshot, pods[bare])
    if not kind and any(queue.metadata.name == bare for queue in snapshot.queues):
        raise CommandError(f"{bare} is a queue; write queue/{bare}")
    known = {"": [*groups, *pods], "PodGroup": [*groups], "Pod": [*pods]}[kind]
    raise _missing(kind or "PodGroup or pod", bare, known, f" in namespace {namespace}")


def _kind(prefix: str) -> str:
    """Return the kind that `prefix` names, such as `pg` or `podgroups.scheduling.bindery.dev`.

    Raises:
        CommandError: nothing that can be explained is called so.
    """
    short, _, group = prefix.lower().partition(".")
    kind = _ALIASES.get(short, "")
    ours = kind in ("PodGroup", "Queue", "BindRequest")
    if not kind or (ours and group and not group.endswith(GROUP)):
        raise CommandError(f"{prefix}/ is not known; write NAME, or KIND/NAME with {_KNOWN}")
    return kind


def _groups(snapshot: ClusterSnapshot, namespace: str) -> dict[str, PodGroup]:
    return {g.metadata.name: g for g in snapshot.groups if g.metadata.namespace == namespace}


def _pods(snapshot: ClusterSnapshot, namespace: str) -> dict[str, Pod]:
    return {p.metadata.name: p for p in snapshot.pods if p.metadata.namespace == namespace}


def _of_pod(snapshot: ClusterSnapshot, pod: Pod) -> Subject:
    key = job_key(snapshot.claims, pod)
    group = _groups(snapshot, key.namespace).get(key.name) if key.is_group else None
    return Subject(key, group, pod)


def _of_request(snapshot: ClusterSnapshot, name: str, namespace: str) -> Subject:
    """Return the first gang of a BindRequest with a pod that waits, or its first gang."""
    requests = [each for each in snapshot.requests if each.metadata.namespace == namespace]
    statements = [each for each in requests if each.metadata.name == name]
    if not statements:
        known = sorted({each.metadata.name for each in requests})
        raise _missing("BindRequest", name, known, f" in namespace {namespace}")
    introduction = "\n".join(request_lines(statements))
    pods = {pod.metadata.uid: pod for pod in snapshot.pods}
    gangs = [
        [pods[pod.pod_uid] for pod in each.spec.pods if pod.pod_uid in pods] for each in statements
    ]
    left = [gang for gang in gangs if gang]
    if not left:
        raise CommandError(f"{introduction}\nNone of its pods exists any more.")
    waiting = (gang for gang in left if not all(map(_has_place, gang)))
    found = _leading(snapshot, next(waiting, left[0]))
    return replace(found, introduction=introduction, request=name)


def _of_workload(snapshot: ClusterSnapshot, kind: str, name: str, namespace: str) -> Subject:
    """Return the gang of a workload's pods: of those that wait, if some do."""
    by_maker: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in _pods(snapshot, namespace).values():
        by_maker[_maker(pod, kind)].append(pod)
    if name not in by_maker:
        raise _missing(f"pod of {kind}", name, filter(None, by_maker), f" in namespace {namespace}")
    pods = by_maker[name]
    bound, ended = sum(map(is_bound, pods)), sum(pod.status.phase in FINISHED for pod in pods)
    keys = {job_key(snapshot.claims, pod) for pod in pods}
    line = f"{kind} {namespace}/{name}: {bound} of {len(pods) - ended} pods are bound"
    if len(keys) > 1:
        line += f"; they belong to {len(keys)} gangs, and this is the first that waits"
    return replace(_leading(snapshot, pods), introduction=f"{line}.")


def _leading(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> Subject:
    """Return the gang of the first of `pods` that has no node, or of the first."""
    in_order = sorted(pods, key=lambda pod: (_has_place(pod), pod.metadata.name))
    found = _of_pod(snapshot, in_order[0])
    return replace(found, pod=None) if found.key.is_group else found


def _has_place(pod: Pod) -> bool:
    return bool(pod.spec.node_name) or pod.status.phase in FINISHED


def _owner(pod: Pod, kind: str) -> str:
    """Return the name of the controller of `pod` if it is of `kind`, else an empty text."""
    owners = (o.name for o in pod.metadata.owner_references if o.controller and o.kind == kind)
    return next(owners, "")


def _maker(pod: Pod, kind: str) -> str:
    """Return the workload of `kind` that makes `pod`, as far as the pod tells; empty if none."""
    if kind == "Deployment":
        name, ending = _owner(pod, "ReplicaSet"), pod.metadata.labels.get(_POD_TEMPLATE_HASH)
        return name.removesuffix(f"-{ending}") if ending and name.endswith(f"-{ending}") else ""
    if kind == "CronJob":  # its Jobs are called like it and the time, in minutes
        match = re.fullmatch(r"(.+)-[0-9]{8,}", _owner(pod, "Job"))
        return match.group(1) if match else ""
    return _owner(pod, kind)


def _missing(what: str, name: str, known: Iterable[str], where: str) -> CommandError:
    near = get_close_matches(name, list(known), n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return CommandError(f"there is no {what} {name}{where}{hint}")
