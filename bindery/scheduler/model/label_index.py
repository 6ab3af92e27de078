"""Pods by namespace and by label. An index for a label key is built when it is first needed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.pod_rules import PodSet


class Labelled(NamedTuple):
    """The namespace and the labels of a pod."""

    namespace: str
    labels: Mapping[str, str]


class LabelIndex:
    """The labels of pods by UID."""

    def __init__(self) -> None:
        self._pods: dict[Uid, Labelled] = {}
        self._by_namespace: defaultdict[str, set[Uid]] = defaultdict(set)
        self._by_key: dict[str, defaultdict[str, set[Uid]]] = {}
        """Label key -> value -> pods, for the keys that were asked for."""

    def get(self, uid: Uid) -> Labelled | None:
        """Return namespace and labels of a pod; None if it is not known."""
        return self._pods.get(uid)

    def put(self, uid: Uid, namespace: str, labels: Mapping[str, str]) -> None:
        """Add or update a pod."""
        old = self._pods.get(uid)
        if old is not None:
            if old.labels == labels and old.namespace == namespace:
                return
            self.remove(uid)
        self._pods[uid] = Labelled(namespace, labels)
        self._by_namespace[namespace].add(uid)
        for key in self._by_key.keys() & labels.keys():
            self._by_key[key][labels[key]].add(uid)

    def remove(self, uid: Uid) -> None:
        """Remove a pod, if it is known."""
        known = self._pods.pop(uid, None)
        if known is None:
            return
        _discard(self._by_namespace, known.namespace, uid)
        for key in self._by_key.keys() & known.labels.keys():
            _discard(self._by_key[key], known.labels[key], uid)

    def in_namespace(self, namespace: str) -> Iterable[Uid]:
        """Return the pods of `namespace`."""
        return self._by_namespace.get(namespace, ())

    def with_key(self, key: str) -> Mapping[str, set[Uid]]:
        """Return the pods with the label `key`, by value."""
        index = self._by_key.get(key)
        if index is None:
            index = self._by_key[key] = defaultdict(set)
            for uid, pod in self._pods.items():
                if key in pod.labels:
                    index[pod.labels[key]].add(uid)
        return index

    def every(self) -> Iterable[Uid]:
        """Return all pods."""
        return self._pods

    def in_set(
        self, pods: PodSet, namespace_labels: Mapping[str, Mapping[str, str]]
    ) -> Iterator[Uid]:
        """Yield the members of `pods`. `namespace_labels`: labels by namespace."""
        for uid in self._candidates(pods):
            pod = self._pods[uid]
            if pods.includes(*pod, namespace_labels[pod.namespace]):
                yield uid

    def _candidates(self, pods: PodSet) -> Iterator[Uid]:
        anchor = pods.selector.anchor
        if anchor is not None:
            index = self.with_key(anchor.key)
            for value in anchor.values:
                yield from index.get(value, ())
        elif pods.namespace_selector.is_nothing:
            for namespace in pods.namespaces:
                yield from self.in_namespace(namespace)
        else:
            yield from self._pods


def _discard(index: defaultdict[str, set[Uid]], key: str, uid: Uid) -> None:
    index[key].discard(uid)
    if not index[key]:
        del index[key]
