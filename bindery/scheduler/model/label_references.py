"""The namespaces, label keys and label values that rules of pods refer to.

Shapes have only these parts of a pod's labels, so that pods with own labels, such as the index of a
Job's pod, still share a shape. A new reference changes the shapes of pods with that label.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.label_index import LabelIndex
from bindery.scheduler.model.pod_rules import NO_RULES, PodRules, PodSet

OTHER_VALUE = "\0"
"""Stands for a label value that no rule refers to; no label can have it."""


class _Reference(NamedTuple):
    """A part of labels that a rule refers to. All None: every namespace."""

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


_EVERY_NAMESPACE = _Reference()


class LabelReferences:
    """The references of all pods, and the labels of the pods that have shapes with labels."""

    def __init__(self) -> None:
        self._counts: Counter[_Reference] = Counter()
        self._rules: dict[Uid, PodRules] = {}
        self._planned = LabelIndex()

    def put(
        self, uid: Uid, namespace: str, labels: Mapping[str, str], rules: PodRules, *, planned: bool
    ) -> set[Uid]:
        """Note a pod; return the other planned pods for which new references count.

        `planned`: whether this scheduler plans the pod, so that its shape has labels.
        """
        if planned:
            self._planned.put(uid, namespace, labels)
        old = self._rules.get(uid, NO_RULES)
        if old is rules or old == rules:
            return set()
        added = [each for each in _references(rules) if self._count(each)]
        self._forget_rules(uid)
        self._rules[uid] = rules
        affected = {pod for reference in added for pod in self._affected(reference)}
        affected.discard(uid)
        return affected

    def remove(self, uid: Uid) -> None:
        """Forget a pod. Shapes keep their labels: more detail does no harm."""
        self._planned.remove(uid)
        self._forget_rules(uid)

    def of(self, namespace: str, labels: Mapping[str, str]) -> tuple[str, dict[str, str]] | None:
        """Return the parts of namespace and labels that count; None if no rule can match."""
        counts = self._counts
        if not counts:  # most clusters
            return None
        if not counts[_EVERY_NAMESPACE] and not counts[_Reference(namespace=namespace)]:
            return None
        seen = {
            key: value if counts[_Reference(key=key, value=value)] else OTHER_VALUE
            for key, value in labels.items()
            if counts[_Reference(key=key)]
        }
        return namespace, seen

    def _count(self, reference: _Reference) -> bool:
        """Count a reference; return whether it is new."""
        self._counts[reference] += 1
        return self._counts[reference] == 1

    def _forget_rules(self, uid: Uid) -> None:
        for reference in _references(self._rules.pop(uid, NO_RULES)):
            self._counts[reference] -= 1
            if not self._counts[reference]:
                del self._counts[reference]

    def _affected(self, reference: _Reference) -> Iterator[Uid]:
        if reference.namespace is not None:
            yield from self._planned.in_namespace(reference.namespace)
        elif reference.key is None:
            yield from self._planned.every()
        else:
            values = self._planned.with_key(reference.key)
            if reference.value is not None:
                yield from values.get(reference.value, ())
            else:
                for pods in values.values():
                    yield from pods


def _references(rules: PodRules) -> Iterator[_Reference]:
    for pods in rules.pod_sets:
        yield from _of_set(pods)


def _of_set(pods: PodSet) -> Iterator[_Reference]:
    if not pods.namespace_selector.is_nothing:
        yield _EVERY_NAMESPACE
    for namespace in pods.namespaces:
        yield _Reference(namespace=namespace)
    for requirement in pods.selector.requirements:
        yield _Reference(key=requirement.key)
        for value in requirement.values:
            yield _Reference(key=requirement.key, value=value)
