"""Walks from a pod up to its top owner, by the owner references with `controller: true`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bindery.grouper.table.facts import (
    KubeObject,
    PodFacts,
    Reference,
    controller_of,
    mapping,
    reference_of,
)

MOST_LINKS: Final = 32
"""How long a chain may be; a longer one is a cycle of references."""


@dataclass(frozen=True, slots=True)
class Link:
    """A pod or an owner in a chain."""

    reference: Reference
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    controller: Reference | None
    item: KubeObject | None = None
    """The object; None for a pod."""
    is_template: bool = False
    """Whether these are labels and annotations of a pod template in the object."""
    is_readable: bool = True
    """Whether the object was given; else only its reference is known."""

    @property
    def source(self) -> Reference:
        """The object in which these labels and annotations are written: a pod's are its owner's."""
        return self.controller if self.is_pod and self.controller else self.reference

    @property
    def source_text(self) -> str:
        """The source, for people."""
        is_template = self.is_template or (self.is_pod and self.controller is not None)
        return f"{self.source} (pod template)" if is_template else str(self.source)

    @property
    def is_pod(self) -> bool:
        """Whether the link is a pod."""
        return self.reference.kind == "Pod" and self.item is None and self.is_readable


@dataclass(frozen=True, slots=True)
class Chain:
    """A pod and its owners, from the pod upwards."""

    pod: PodFacts
    links: tuple[Link, ...]
    missing: Reference | None = None
    """The owner at which the walk ended because it was not given."""
    unreadable: str = ""
    """Why that owner cannot be read; "" if it can."""


@dataclass(frozen=True)
class Owners:
    """The objects that chains lead through."""

    by_uid: Mapping[str, KubeObject]
    pods: Mapping[str, PodFacts] = field(default_factory=dict)
    """Pods own objects too: a LeaderWorkerSet's leader owns the StatefulSet of its workers."""
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def chain(self, pod: PodFacts) -> Chain:
        """Return the chain of `pod`.

        An owner that cannot be read is a link only if it controls the pod itself: its pods are one
        group. Workloads below it are groups by their own rows.
        """
        links = [link_of_pod(pod)]
        while (above := links[-1].controller) is not None:
            if above.uid in self.unreadable:
                if len(links) == 1:
                    links.append(Link(above, {}, {}, None, is_readable=False))
                return Chain(pod, tuple(links), above, self.unreadable[above.uid])
            if len(links) == MOST_LINKS:
                return Chain(pod, tuple(links), above, "the owner references form a cycle")
            found = self._link(above)
            if found is None:
                return Chain(pod, tuple(links), above)
            links.append(found)
        return Chain(pod, tuple(links))

    def named(self, group: str, kind: str, namespace: str, name: str) -> KubeObject | None:
        """Return the object with this name; the newest, if one of them was made again."""
        found: list[tuple[str, str, KubeObject]] = []
        for uid, item in self.by_uid.items():
            at = reference_of(item)
            if (at.group, at.kind, at.namespace, at.name) == (group, kind, namespace, name):
                created = mapping(item.get("metadata")).get("creationTimestamp") or ""
                found.append((created, uid, item))
        return max(found, key=lambda each: each[:2])[2] if found else None

    def _link(self, reference: Reference) -> Link | None:
        if reference.uid in self.pods:
            return link_of_pod(self.pods[reference.uid])
        item = self.by_uid.get(reference.uid)
        return None if item is None else link_of(item)


def link_of_pod(pod: PodFacts) -> Link:
    """Return the link for `pod`."""
    return Link(pod.reference, pod.labels, pod.annotations, pod.controller)


def link_of(item: KubeObject) -> Link:
    """Return the link for an owner."""
    metadata = mapping(item.get("metadata"))
    return Link(
        reference_of(item),
        mapping(metadata.get("labels")),
        mapping(metadata.get("annotations")),
        controller_of(item),
        item,
    )
