"""Finds the PodGroup of a pod, and the pod's sub-group in the PodGroup.

Only this module has the rules of membership; the scheduler, the commands and the simulations call
this module. The annotation of a pod comes first. Without an annotation, the oldest PodGroup in the
pod's namespace with a `spec.members` that selects the pod gets the pod. Every result is a function
of the objects alone: the order in which objects arrive does not matter.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from bindery.api.names import POD_GROUP_ANNOTATION, SUB_GROUP_LABEL
from bindery.kube.objects.podgroups import Member, PodGroup, PodGroupSpec, SubGroup
from bindery.kube.objects.watched import Pod

GroupKey = tuple[str, str]
"""Namespace and name of a PodGroup."""


class Selector(NamedTuple):
    """A property of a pod by which a PodGroup selects."""

    namespace: str
    kind: str
    key: str
    """The key of an annotation or a label; "" for other kinds."""
    value: str


class Membership(NamedTuple):
    """Where a pod belongs."""

    group: str
    """The name of the pod's PodGroup; "" for none."""
    sub_group: str = ""
    others: tuple[GroupKey, ...] = ()
    """Younger PodGroups that select the pod too."""


_CONTROLLER: Final = "controller"
_POD: Final = "pod"
_SCHEDULING_GROUP: Final = "schedulingGroup"
_ANNOTATION: Final = "annotation"
_LABEL: Final = "label"
_MARKS: Final = frozenset({_ANNOTATION, _LABEL})
_Labels = frozenset[tuple[str, str]]


class _Claim(NamedTuple):
    """One selector of a PodGroup, in the order of age."""

    created: str
    name: str
    labels: _Labels
    """The labels that a selected pod must have."""


def member_problem(spec: PodGroupSpec) -> str | None:
    """Return the error in `spec.members`; None if there is no error."""
    for index, member in enumerate(spec.members):
        if len(list(_selections(member))) != 1:
            return f"spec.members[{index}] must have exactly one selector"
    return None


class Claims:
    """The PodGroups and the pods that they select."""

    def __init__(self, groups: Iterable[PodGroup] = ()) -> None:
        self._groups: dict[GroupKey, tuple[PodGroup, _Leaves | None]] = {}
        self._by_selector: defaultdict[Selector, set[_Claim]] = defaultdict(set)
        self._marks: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        """Namespace -> annotations and labels that PodGroups select by: (kind, key)."""
        for group in groups:
            self.put(group)

    def __bool__(self) -> bool:
        return bool(self._by_selector)

    def put(self, group: PodGroup) -> None:
        """Add or update a PodGroup."""
        key = (group.metadata.namespace, group.metadata.name)
        self.remove(key)
        has_leaves = any(map(_tells_pods, group.spec.sub_groups))
        self._groups[key] = group, _Leaves(group.spec.sub_groups) if has_leaves else None
        for selector, claim in _claims(group):
            self._by_selector[selector].add(claim)
            if selector.kind in _MARKS:
                self._marks[selector.namespace][selector.kind, selector.key] += 1

    def remove(self, key: GroupKey) -> None:
        """Remove a PodGroup."""
        known = self._groups.pop(key, None)
        for selector, claim in _claims(known[0]) if known is not None else ():
            if claim in self._by_selector[selector]:
                self._by_selector[selector].remove(claim)
            if not self._by_selector[selector]:
                del self._by_selector[selector]
            if selector.kind in _MARKS:
                marks = self._marks[selector.namespace]
                marks[selector.kind, selector.key] -= 1
                if not marks[selector.kind, selector.key]:
                    del marks[selector.kind, selector.key]

    def group(self, key: GroupKey) -> PodGroup | None:
        """Return a PodGroup by its namespace and name."""
        known = self._groups.get(key)
        return known[0] if known is not None else None

    def marks(self, namespace: str) -> frozenset[tuple[str, str]]:
        """Return the annotations and labels that PodGroups of the namespace select by."""
        return frozenset(self._marks.get(namespace, ()))

    def of(self, pod: Pod) -> Membership:
        """Return PodGroup and sub-group of `pod`; the PodGroup of an annotation may not exist."""
        meta = pod.metadata
        name, rest = meta.annotations.get(POD_GROUP_ANNOTATION, ""), list[str]()
        if not name and self._by_selector:
            name, *rest = self._claimants(pod) or [""]
        sub_group = meta.labels.get(SUB_GROUP_LABEL, "")
        if name and not sub_group:
            known = self._groups.get((meta.namespace, name))
            if known is not None and known[1] is not None:
                sub_group = known[1].of(pod)
        return Membership(name, sub_group, tuple((meta.namespace, other) for other in rest))

    def _claimants(self, pod: Pod) -> list[str]:
        """Return the names of the PodGroups that select `pod`, the oldest first."""
        found: set[tuple[str, str]] = set()
        labels = pod.metadata.labels
        for selector in selectors(pod, self.marks(pod.metadata.namespace)):
            for claim in self._by_selector.get(selector, ()):
                if all(labels.get(key) == value for key, value in claim.labels):
                    found.add((claim.created, claim.name))
        return [name for _, name in sorted(found)]


def group_selectors(group: PodGroup) -> set[Selector]:
    """Return the selectors of `group`."""
    return {selector for selector, _ in _claims(group)}


def selectors(pod: Pod, marks: Iterable[tuple[str, str]]) -> Iterator[Selector]:
    """Yield all selectors that match `pod`; `marks`: the annotations and labels to look at."""
    meta = pod.metadata
    yield Selector(meta.namespace, _POD, "", meta.uid)
    for owner in meta.owner_references:
        if owner.controller:
            yield Selector(meta.namespace, _CONTROLLER, "", owner.uid)
    if pod.spec.scheduling_group is not None:
        name = pod.spec.scheduling_group.pod_group_name
        yield Selector(meta.namespace, _SCHEDULING_GROUP, "", name)
    for kind, key in marks:
        value = (meta.labels if kind == _LABEL else meta.annotations).get(key)
        if value is not None:
            yield Selector(meta.namespace, kind, key, value)


def _claims(group: PodGroup) -> Iterator[tuple[Selector, _Claim]]:
    meta = group.metadata
    for member in group.spec.members:
        given = list(_selections(member))
        if len(given) == 1:  # else it is a mistake, which the group's condition names
            claim = _Claim(
                meta.creation_timestamp or "", meta.name, frozenset(member.pod_labels.items())
            )
            yield Selector(meta.namespace, *given[0]), claim


def _selections(member: Member) -> Iterator[tuple[str, str, str]]:
    """Yield kind, key and value of each selector that is given."""
    if member.controller is not None:
        yield _CONTROLLER, "", member.controller
    if member.annotation is not None:
        yield _ANNOTATION, member.annotation.key, member.annotation.value
    if member.label is not None:
        yield _LABEL, member.label.key, member.label.value
    if member.scheduling_group is not None:
        yield _SCHEDULING_GROUP, "", member.scheduling_group
    if member.pod is not None:
        yield _POD, "", member.pod


def _tells_pods(group: SubGroup) -> bool:
    return bool(group.pod_labels) or bool(group.controller) or bool(group.scheduling_group)


_Sign = tuple[str, str, str]


class _Leaves:
    """The sub-groups of one PodGroup, indexed by a property of their pods."""

    def __init__(self, sub_groups: Sequence[SubGroup]) -> None:
        parents = {group.parent for group in sub_groups}
        leaves = [g for g in sub_groups if g.name not in parents and _tells_pods(g)]
        pairs = Counter(pair for leaf in leaves for pair in leaf.pod_labels.items())
        self._by_sign: defaultdict[_Sign, list[tuple[int, SubGroup]]] = defaultdict(list)
        for index, leaf in enumerate(leaves):
            self._by_sign[_sign(leaf, pairs)].append((index, leaf))

    def of(self, pod: Pod) -> str:
        """Return the first sub-group that selects `pod`; "" for none."""
        signs: list[_Sign] = [(_LABEL, key, value) for key, value in pod.metadata.labels.items()]
        signs += [(_CONTROLLER, "", o.uid) for o in pod.metadata.owner_references if o.controller]
        if pod.spec.scheduling_group is not None:
            signs.append((_SCHEDULING_GROUP, "", pod.spec.scheduling_group.pod_group_name))
        found = [
            (index, leaf.name)
            for sign in signs
            for index, leaf in self._by_sign.get(sign, ())
            if _has_pod(leaf, pod)
        ]
        return min(found)[1] if found else ""


def _sign(leaf: SubGroup, pairs: Counter[tuple[str, str]]) -> _Sign:
    """Return the property by which `leaf` is looked up: the rarest among all leaves."""
    if leaf.controller is not None:
        return _CONTROLLER, "", leaf.controller
    if leaf.scheduling_group is not None:
        return _SCHEDULING_GROUP, "", leaf.scheduling_group
    return _LABEL, *min(leaf.pod_labels.items(), key=lambda pair: (pairs[pair], pair))


def _has_pod(leaf: SubGroup, pod: Pod) -> bool:
    meta, named = pod.metadata, pod.spec.scheduling_group
    if any(meta.labels.get(key) != value for key, value in leaf.pod_labels.items()):
        return False
    if leaf.controller is not None:
        owners = meta.owner_references
        if not any(owner.controller and owner.uid == leaf.controller for owner in owners):
            return False
    if leaf.scheduling_group is None:
        return True
    return named is not None and named.pod_group_name == leaf.scheduling_group
