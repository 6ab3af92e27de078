"""The terms of pod affinity and anti-affinity of all pods, and which pods have them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import NamedTuple

from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.pod_catalog import PodCatalog
from bindery.scheduler.model.pod_rules import PodRules, Term, read_rules
from bindery.scheduler.model.shapes import Shape


class TermKind(Enum):
    """What a term does to the pods that it selects."""

    KEEPS_AWAY = auto()
    """Required anti-affinity: no such pod in a domain of the owner."""
    REQUIRES = auto()
    """Required affinity of the owner; to other pods only a score."""
    PREFERS = auto()
    """Preferred affinity or anti-affinity: a score."""


class OwnedTerm(NamedTuple):
    """A term of pods that have it, the owners."""

    kind: TermKind
    weight: int
    """Of `PREFERS`, negative for anti-affinity; else 0."""
    term: Term


def owned_terms(rules: PodRules) -> Iterator[OwnedTerm]:
    """Yield the terms of a pod with `rules`."""
    for term in rules.anti_affinity:
        yield OwnedTerm(TermKind.KEEPS_AWAY, 0, term)
    for term in rules.affinity:
        yield OwnedTerm(TermKind.REQUIRES, 0, term)
    for weight, term in rules.preferred:
        yield OwnedTerm(TermKind.PREFERS, weight, term)


class TermCatalog:
    """The catalog of pods, and their terms by the labels that the terms select."""

    def __init__(self) -> None:
        self.pods = PodCatalog()
        self._rules: dict[Uid, PodRules] = {}
        self._owners: dict[OwnedTerm, Counter[Uid]] = {}
        self._anchored: dict[tuple[str, str], dict[OwnedTerm, None]] = {}
        """Label key and value -> terms that select only pods with one of these labels."""
        self._loose: dict[OwnedTerm, None] = {}
        """The other terms."""

    def observe(self, change: Change[KubeObject]) -> None:
        """Process a change of a pod, node or namespace."""
        self.pods.observe(change)
        item = change.object
        if not isinstance(item, Pod):
            return
        uid, old = Uid(item.metadata.uid), self._rules.get(Uid(item.metadata.uid))
        has_gone = change.type is EventType.DELETED or item.status.phase in ENDED_POD_PHASES
        new = None if has_gone or item.spec.affinity is None else read_rules(item)
        if new == old:
            return
        for owned in owned_terms(old) if old is not None else ():
            self._remove(uid, owned)
        self._rules.pop(uid, None)
        if new is not None:
            self._rules[uid] = new
            for owned in owned_terms(new):
                self._add(uid, owned)

    def anti_affinity(self, uid: Uid) -> tuple[Term, ...]:
        """Return the terms of required anti-affinity of a pod."""
        rules = self._rules.get(uid)
        return rules.anti_affinity if rules is not None else ()

    def keep_apart(self, shape: Shape, uid: Uid, node_labels: Mapping[str, str]) -> bool:
        """Return whether anti-affinity keeps pods of `shape` off the node of the pod `uid`."""
        pods = self.pods
        own, other = (shape.namespace, shape.labels), pods.pods.get(uid)
        towards = ((term, own) for term in self.anti_affinity(uid))
        away = ((term, other) for term in shape.rules.anti_affinity if other is not None)
        return any(
            term.topology_key in node_labels
            and term.pods.includes(namespace, labels, pods.namespaces[namespace])
            for term, (namespace, labels) in (*towards, *away)
        )

    def owners(self, owned: OwnedTerm) -> Mapping[Uid, int]:
        """Return the pods that have a term, and how often each states it."""
        return self._owners.get(owned, {})

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> Iterator[OwnedTerm]:
        """Yield the terms of any pod that select a pod with `labels` in `namespace`."""
        candidates: dict[OwnedTerm, None] = dict(self._loose)
        for label in labels.items():
            candidates |= self._anchored.get(label, {})
        of_namespace = self.pods.namespaces[namespace]
        for owned in candidates:
            if owned.term.pods.includes(namespace, labels, of_namespace):
                yield owned

    def _add(self, uid: Uid, owned: OwnedTerm) -> None:
        if owned not in self._owners:
            for label in _anchors(owned):
                self._anchored.setdefault(label, {})[owned] = None
            if owned.term.pods.selector.anchor is None:
                self._loose[owned] = None
        self._owners.setdefault(owned, Counter())[uid] += 1

    def _remove(self, uid: Uid, owned: OwnedTerm) -> None:
        owners = self._owners.get(owned, Counter())
        owners.pop(uid, None)
        if not owners and owned in self._owners:
            del self._owners[owned]
            self._loose.pop(owned, None)
            for label in _anchors(owned):
                del self._anchored[label][owned]
                if not self._anchored[label]:
                    del self._anchored[label]


def _anchors(owned: OwnedTerm) -> Iterator[tuple[str, str]]:
    """Yield the labels of which a pod has one if the term selects it; none if it can have any."""
    anchor = owned.term.pods.selector.anchor
    if anchor is not None:
        yield from ((anchor.key, value) for value in anchor.values)
