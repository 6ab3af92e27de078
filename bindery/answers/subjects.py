"""Finds an object by a user's words. Used by `explanation` and by commands.

Kinds are written as in kubectl: singular, plural, short name, or with their group, as `kubectl -o
name` prints them.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from bindery.answers.errors import NoAnswerError
from bindery.answers.statements import request_lines, statements_of
from bindery.answers.workloadnames import Members, workloads
from bindery.api.names import GROUP, NODE_POOL_LABEL
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.ownernames import Workload
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.snapshot import FINISHED, ClusterSnapshot, is_bound
from bindery.kube.objects.watched import Pod
from bindery.scheduler.cache.members import job_key
from bindery.scheduler.insight.advice import Changed, changed_object
from bindery.scheduler.model.jobs import JobKey

_ALIASES: Final[Mapping[str, str]] = {
    alias: kind
    for kind, aliases in {
        "Pod": ("pod", "pods", "po"),
        "PodGroup": ("podgroup", "podgroups", "pg", "gang", "gangs"),
        "Queue": ("queue", "queues", "bq"),
        "BindRequest": ("bindrequest", "bindrequests", "br"),
    }.items()
    for alias in aliases
}
_OWN_KINDS: Final = "pod, pg, queue, br"
_NO_PODS: Final = (
    "a workload is known from its pods on: while it is suspended or scaled to 0 it has none"
)


@dataclass(frozen=True)
class Subject:
    """The object to explain: a PodGroup, or a pod and its PodGroup if it has one."""

    key: JobKey
    group: PodGroup | None
    pod: Pod | None
    introduction: str = ""
    """Lines about a related workload or BindRequest; may be empty."""
    request: str = ""
    """The name of the BindRequest in the introduction; empty without one."""

    @property
    def node_pool(self) -> str:
        """The node pool of the object; empty for the default pool."""
        owner = self.group or self.pod
        return owner.metadata.labels.get(NODE_POOL_LABEL, "") if owner is not None else ""

    @property
    def changed(self) -> Changed:
        """The object that a user edits to change the subject."""
        labels = self.group.metadata.labels if self.group is not None else {}
        return changed_object(labels, is_group=self.key.is_group)


def statements_about(snapshot: ClusterSnapshot, about: Subject) -> list[CommittedStatement]:
    """Return the Statements that contain pods of `about`."""
    if about.key.is_group:
        pods = snapshot.pods_by_group.get((about.key.namespace, about.key.name), [])
    else:
        pods = [about.pod] if about.pod is not None else []
    return statements_of(snapshot, pods)


def own_queue_name(name: str) -> str | None:
    """Return `research` for a name such as `queue/research`; None for other kinds."""
    prefix, _, bare = name.rpartition("/")
    return bare if _own_kind(prefix) == "Queue" else None


def named_queue(snapshot: ClusterSnapshot, name: str) -> Queue | None:
    """Return the queue for a name such as `queue/research`; None for other kinds.

    Raises:
        NoAnswerError: there is no such queue; the message names similar ones.
    """
    bare = own_queue_name(name)
    if bare is None:
        return None
    queues = {queue.metadata.name: queue for queue in snapshot.queues}
    if bare not in queues:
        raise _missing("Queue", bare, queues, "")
    return queues[bare]


def subject(snapshot: ClusterSnapshot, name: str, namespace: str) -> Subject:
    """Return the object called `name`: a PodGroup, else a pod, else the gang of a workload.

    Raises:
        NoAnswerError: there is no such object, or several; the message names them or similar ones.
    """
    prefix, _, bare = name.rpartition("/")
    kind = _own_kind(prefix)
    if kind == "BindRequest":
        return _of_request(snapshot, bare, namespace)
    groups, pods = _groups(snapshot, namespace), _pods(snapshot, namespace)
    if (kind == "PodGroup" or not prefix) and bare in groups:
        return Subject(JobKey(namespace, bare, True), groups[bare], None)
    if (kind == "Pod" or not prefix) and bare in pods:
        return _of_pod(snapshot, pods[bare])
    if kind:
        known = [*groups] if kind == "PodGroup" else [*pods]
        raise _missing(kind, bare, known, _in_namespace(snapshot, namespace))
    return _of_workload(snapshot, prefix, bare, namespace)


def _own_kind(prefix: str) -> str:
    """Return the kind in `prefix`: pod, PodGroup, Queue or BindRequest; empty for other kinds.

    `prefix` is, for example, `pg` or `podgroups.scheduling.bindery.dev`.
    """
    short, _, group = prefix.lower().partition(".")
    kind = _ALIASES.get(short, "")
    is_foreign = group and kind != "Pod" and not group.endswith(GROUP)
    return "" if is_foreign else kind


def _groups(snapshot: ClusterSnapshot, namespace: str) -> dict[str, PodGroup]:
    return {g.metadata.name: g for g in snapshot.groups if g.metadata.namespace == namespace}


def _pods(snapshot: ClusterSnapshot, namespace: str) -> dict[str, Pod]:
    return {p.metadata.name: p for p in snapshot.pods if p.metadata.namespace == namespace}


def _of_pod(snapshot: ClusterSnapshot, pod: Pod) -> Subject:
    key = job_key(snapshot.claims, pod)
    group = _groups(snapshot, key.namespace).get(key.name) if key.is_group else None
    return Subject(key, group, pod)


def _of_request(snapshot: ClusterSnapshot, name: str, namespace: str) -> Subject:
    """Return the first gang of a BindRequest with a waiting pod, else its first gang."""
    requests = [each for each in snapshot.statements if each.metadata.namespace == namespace]
    statements = [each for each in requests if each.metadata.name == name]
    if not statements:
        known = sorted({each.metadata.name for each in requests})
        raise _missing("BindRequest", name, known, _in_namespace(snapshot, namespace))
    introduction = "\n".join(request_lines(statements))
    pods = {pod.metadata.uid: pod for pod in snapshot.pods}
    gangs = [
        [pods[pod.pod_uid] for pod in each.spec.pods if pod.pod_uid in pods] for each in statements
    ]
    left = [gang for gang in gangs if gang]
    if not left:
        raise NoAnswerError(f"{introduction}\nNone of its pods exists any more.")
    waiting = (gang for gang in left if not all(map(_has_place, gang)))
    found = _leading(snapshot, next(waiting, left[0]))
    return replace(found, introduction=introduction, request=name)


def _of_workload(snapshot: ClusterSnapshot, prefix: str, name: str, namespace: str) -> Subject:
    """Return the gang of a workload of any kind, preferably one that waits."""
    known, kind = workloads(snapshot, namespace), prefix.lower().partition(".")[0]
    found = {
        each: its
        for each, its in known.items()
        if each.name == name and (not prefix or each.is_of(kind))
    }
    if not found:
        raise _no_workload(snapshot, prefix, name, namespace, known)
    gangs = {each: _gangs(snapshot, its) for each, its in found.items()}
    if len(set(gangs.values())) > 1:
        asked = " or ".join(sorted(f"{each.kind.lower()}/{name}" for each in found))
        raise NoAnswerError(f"several workloads are called {name}: write {asked}")
    (workload, members), *_ = found.items()
    pods = list(members.pods.values())
    bound, ended = sum(map(is_bound, pods)), sum(pod.status.phase in FINISHED for pod in pods)
    line = f"{workload.kind} {namespace}/{name}: {bound} of {len(pods) - ended} pods are bound"
    if len(gangs[workload]) > 1:
        line += f"; they belong to {len(gangs[workload])} gangs, and this is the first that waits"
    if pods:
        return replace(_leading(snapshot, pods), introduction=f"{line}.")
    group = members.groups[0]
    return Subject(JobKey(namespace, group.metadata.name, True), group, None, f"{line}.")


def _gangs(snapshot: ClusterSnapshot, members: Members) -> frozenset[JobKey]:
    groups = (JobKey(each.metadata.namespace, each.metadata.name, True) for each in members.groups)
    pods = (job_key(snapshot.claims, pod) for pod in members.pods.values())
    return frozenset((*groups, *pods))


def _no_workload(
    snapshot: ClusterSnapshot, prefix: str, name: str, namespace: str, known: Collection[Workload]
) -> NoAnswerError:
    """Return the error for a workload that is not in `known`."""
    where = _in_namespace(snapshot, namespace)
    kinds = sorted({each.kind for each in known})
    if not prefix:
        if any(queue.metadata.name == name for queue in snapshot.queues):
            return NoAnswerError(f"{name} is a queue; write queue/{name}")
        names = [*_groups(snapshot, namespace), *_pods(snapshot, namespace)]
        names += [each.name for each in known]
        return _missing("PodGroup, pod or workload", name, names, where, _NO_PODS)
    kind = prefix.lower().partition(".")[0]
    of_kind = [each for each in known if each.is_of(kind)]
    if of_kind:
        names = [each.name for each in of_kind]
        return _missing(f"pod or PodGroup of {of_kind[0].kind}", name, names, where, _NO_PODS)
    here = f" or a workload's kind (here: {', '.join(kinds)})" if kinds else ""
    text = f"{prefix}/{name} is not known: no pod and no PodGroup has an owner of this kind{where}"
    text += f"; {_NO_PODS}"
    return NoAnswerError(f"{text}; write NAME, or KIND/NAME with {_OWN_KINDS}{here}")


def _in_namespace(snapshot: ClusterSnapshot, namespace: str) -> str:
    """Return the end of a message with `namespace`, and with a note if it does not exist."""
    known = {each.metadata.name for each in snapshot.namespaces}
    is_used = any(
        each.metadata.namespace == namespace for each in (*snapshot.pods, *snapshot.groups)
    )
    is_missing = known and namespace not in known and not is_used
    return f" in namespace {namespace}{', which does not exist' if is_missing else ''}"


def _leading(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> Subject:
    """Return the gang of the first of `pods` without a node, else of the first."""
    in_order = sorted(pods, key=lambda pod: (_has_place(pod), pod.metadata.name))
    found = _of_pod(snapshot, in_order[0])
    return replace(found, pod=None) if found.key.is_group else found


def _has_place(pod: Pod) -> bool:
    return bool(pod.spec.node_name) or pod.status.phase in FINISHED


def _missing(
    noun: str, name: str, known: Iterable[str], where: str, otherwise: str = ""
) -> NoAnswerError:
    """Return the error for `name`; `otherwise`: a hint if no known name is similar."""
    near = get_close_matches(name, list(known), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else otherwise
    return NoAnswerError("; ".join(filter(None, (f"there is no {noun} {name}{where}", hint))))
