"""The pods by what PodGroups select them by: which pods a changed PodGroup gains or loses.

Owned by cluster.py. `bindery.kube.objects.membership` has the rules. An event of a pod costs the
same however many pods and PodGroups there are; an event of a PodGroup costs as much as it has pods.
The index exists only in namespaces with PodGroups that select pods.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from bindery.api import names
from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.api.shown import quoted
from bindery.kube.objects.membership import (
    Claims,
    GroupKey,
    Membership,
    Selector,
    group_selectors,
    selectors,
)
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Pod
from bindery.scheduler.model.jobs import JobKey, Task, Uid


class JobMembership(NamedTuple):
    """The job of a pod and its place there."""

    job: JobKey
    sub_group: str
    awaits_group: bool = False
    """Whether it waits until a PodGroup selects it."""
    others: tuple[GroupKey, ...] = ()
    """Younger PodGroups that select the pod too."""

    def differs_from(self, task: Task) -> bool:
        """Return whether `task` is elsewhere."""
        return (task.job, task.sub_group, task.awaits_group) != self[:3]


class Members:
    """The PodGroups of pods. `waits_for_groups`: whether pods with a controller need one."""

    def __init__(self, *, waits_for_groups: bool = False) -> None:
        self._waits_for_groups = waits_for_groups
        self._claims = Claims()
        self._pods: defaultdict[str, dict[Uid, Pod]] = defaultdict(dict)
        """Namespace -> its pods."""
        self._indexed_by: dict[str, frozenset[tuple[str, str]]] = {}
        """Namespace with an index -> the annotations and labels in it: (kind, key)."""
        self._by_selector: defaultdict[Selector, set[Uid]] = defaultdict(set)
        self._selectors: dict[Uid, tuple[Selector, ...]] = {}

    def place(self, pod: Pod) -> JobMembership:
        """Return the job of `pod`: its PodGroup, or the pod itself."""
        found = self._claims.of(pod)
        awaits = self._waits_for_groups and not found.group and _is_for_grouper(pod)
        return JobMembership(_key(pod, found), found.sub_group, awaits, found.others)

    def put_pod(self, pod: Pod) -> None:
        """Add or update a pod."""
        uid, namespace = Uid(pod.metadata.uid), pod.metadata.namespace
        self._pods[namespace][uid] = pod
        marks = self._indexed_by.get(namespace)
        if marks is not None:
            self._index(uid, pod, marks)

    def drop_pod(self, pod: Pod) -> None:
        """Remove a pod."""
        uid, namespace = Uid(pod.metadata.uid), pod.metadata.namespace
        self._pods[namespace].pop(uid, None)
        if not self._pods[namespace]:
            del self._pods[namespace]
        self._unindex(uid)

    def pod(self, namespace: str, uid: Uid) -> Pod | None:
        """Return a known pod."""
        pods = self._pods.get(namespace)
        return pods.get(uid) if pods is not None else None

    def put_group(self, group: PodGroup) -> list[Pod]:
        """Add or update a PodGroup; return the pods that it may have gained or lost.

        Its present pods are not among them, unless its members have changed.
        """
        key = (group.metadata.namespace, group.metadata.name)
        old = self._claims.group(key)
        if old is not None and _selects_alike(old, group):
            self._claims.put(group)
            return []
        affected = group_selectors(group)
        if old is not None:
            affected |= group_selectors(old)
        self._claims.put(group)
        return self._selected(key, affected)

    def remove_group(self, key: GroupKey) -> list[Pod]:
        """Remove a PodGroup; return the pods that it may have lost."""
        old = self._claims.group(key)
        affected = group_selectors(old) if old is not None else set()
        self._claims.remove(key)
        return self._selected(key, affected)

    def _selected(self, key: GroupKey, affected: set[Selector]) -> list[Pod]:
        if not affected:
            return []
        pods = self._pods.get(key[0], {})
        marks = self._claims.marks(key[0])
        known = self._indexed_by.get(key[0])
        if known is None or not marks <= known:
            self._indexed_by[key[0]] = marks
            for uid, pod in pods.items():
                self._index(uid, pod, marks)
        uids = {uid for selector in affected for uid in self._by_selector.get(selector, ())}
        return [pods[uid] for uid in sorted(uids)]

    def _index(self, uid: Uid, pod: Pod, marks: Iterable[tuple[str, str]]) -> None:
        # The annotation of a pod wins, so no PodGroup can gain or lose it.
        is_free = not pod.metadata.annotations.get(POD_GROUP_ANNOTATION)
        found = tuple(selectors(pod, marks)) if is_free else ()
        if found == self._selectors.get(uid, ()):
            return
        self._unindex(uid)
        self._selectors[uid] = found
        for selector in found:
            self._by_selector[selector].add(uid)

    def _unindex(self, uid: Uid) -> None:
        for selector in self._selectors.pop(uid, ()):
            self._by_selector[selector].discard(uid)
            if not self._by_selector[selector]:
                del self._by_selector[selector]


def job_key(claims: Claims, pod: Pod) -> JobKey:
    """Return the job of `pod` by the PodGroups in `claims`: its PodGroup, or the pod itself."""
    return _key(pod, claims.of(pod))


def _key(pod: Pod, found: Membership) -> JobKey:
    name = found.group or pod.metadata.name
    return JobKey(pod.metadata.namespace, name, bool(found.group))


def _is_for_grouper(pod: Pod) -> bool:
    """Return whether the grouper writes a PodGroup for `pod`."""
    meta = pod.metadata

    def skips(key: str) -> bool:
        return "true" in (meta.annotations.get(key), meta.labels.get(key))

    if skips(names.SKIP_GROUPER_KEY):
        return False
    is_marked = any(key in meta.annotations for key in names.MARK_ANNOTATIONS)
    if is_marked or any(key in meta.labels for key in names.MARK_LABELS):
        return True
    if pod.spec.scheduling_group is not None:
        return True
    has_controller = any(owner.controller for owner in meta.owner_references)
    return has_controller and not skips(names.KAI_SKIP_KEY)


def mark_problem(pod: Pod) -> str:
    """Return why a mark of `pod` cannot be the name of a gang; "" if all can."""
    annotations, labels = pod.metadata.annotations, pod.metadata.labels
    kinds = (
        ("annotation", annotations, names.MARK_ANNOTATIONS),
        ("label", labels, names.MARK_LABELS),
    )
    for kind, texts, keys in kinds:
        for key in keys:
            problem = names.name_problem(texts[key]) if key in texts else ""
            if problem:
                return f"its {kind} {key} is {quoted(texts[key])}: {problem}"
    return ""


def _selects_alike(one: PodGroup, other: PodGroup) -> bool:
    return (
        one.spec.members == other.spec.members
        and one.metadata.creation_timestamp == other.metadata.creation_timestamp
    )
