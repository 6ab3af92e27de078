"""Reads the queues that pods, PodGroups and workloads use from their manifests. Pure.

The pods of a workload are created later, by its controller. So templates are searched in the whole
object, whatever its kind: a template is a mapping with a `spec` that contains containers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bindery.api import preemptibility
from bindery.api.mistakes import mistaken_keys
from bindery.api.names import (
    ENABLED_LABEL,
    POD_GROUP_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    PRIORITY_CLASS_KEY,
    QUEUE_KEYS,
    QUEUE_LABEL,
)
from bindery.api.podvalues import wrong_values
from bindery.api.states import NON_PREEMPTIBLE_FROM
from bindery.binder.webhook.answers import Manifest
from bindery.binder.webhook.directory import Directory
from bindery.kube.objects.queueaccess import Applicant, access_refusal

DEFAULT_SCHEDULER: Final = "default-scheduler"
_MOST_LEVELS: Final = 24
"""Maximum depth of the search for templates."""


@dataclass(frozen=True)
class QueueUse:
    """The use of one queue."""

    queue: str
    priority_class: str = ""
    declared_preemptible: bool | None = None
    priority: int | None = None
    """The priority, if it does not follow from the class."""

    def problems(self, namespace: str, directory: Directory) -> list[str]:
        """Return the reasons why the use is not allowed; empty if it is."""
        is_pinned = self.is_pinned(directory)
        classes = frozenset({self.priority_class} - {""})
        labels = directory.labels(namespace)
        applicant = Applicant(namespace, labels, classes, is_pinned=is_pinned)
        refusal = access_refusal(directory.chain(self.queue), applicant)
        return [refusal.text] if refusal is not None else []

    def is_pinned(self, directory: Directory) -> bool:
        """Return whether the use is for non-preemptible pods."""
        if self.declared_preemptible is not None:
            return not self.declared_preemptible
        priority = self.priority
        if priority is None:
            priority = directory.priority(self.priority_class) or 0
        return priority >= NON_PREEMPTIBLE_FROM


@dataclass(frozen=True)
class Template:
    """A pod template in an object."""

    chain: tuple[Manifest, ...]
    """The metadata of the object and of all templates around the template, outermost first."""
    spec: Manifest
    own: Manifest
    """The metadata of the template itself, which its pods get; may be empty."""

    @property
    def owners(self) -> tuple[Manifest, ...]:
        """The metadata of the owners of the pods."""
        return self.chain[:-1] if self.own else self.chain

    def value_of(self, *keys: str) -> str:
        """Return the value of the first of these annotations or labels; "" if none.

        The metadata nearest to the pods comes first, as in the grouper.
        """
        for metadata in reversed(self.chain):
            for key in keys:
                for kind in ("annotations", "labels"):
                    value = part(metadata, kind).get(key)
                    if isinstance(value, str) and value:
                        return value
        return ""


def templates(item: Manifest) -> Iterator[Template]:
    """Yield the pod templates in `item`."""
    yield from _templates(item, (), 0)


def _templates(item: object, chain: tuple[Manifest, ...], level: int) -> Iterator[Template]:
    if level > _MOST_LEVELS:
        return
    if isinstance(item, list):
        for each in item:
            yield from _templates(each, chain, level + 1)
    if not isinstance(item, dict):
        return
    if "metadata" in item:
        chain = (*chain, part(item, "metadata"))
    spec = item.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
        yield Template(chain, spec, part(item, "metadata"))
        return
    for key, value in item.items():
        if key not in ("metadata", "status"):
            yield from _templates(value, chain, level + 1)


def wish_of_template(template: Template, namespace: str, directory: Directory) -> QueueUse:
    """Return the queue use of the pods of `template`."""
    named = template.value_of(PRIORITY_CLASS_KEY) or text(template.spec, "priorityClassName")
    return QueueUse(
        template.value_of(*QUEUE_KEYS) or directory.queue_of(namespace),
        named or directory.default_class(),
        preemptibility.read_annotation(template.value_of(PREEMPTIBLE_ANNOTATION)),
    )


def wish_of_group(spec: Manifest, namespace: str, directory: Directory) -> QueueUse:
    """Return the queue use of a PodGroup with `spec`."""
    declared = preemptibility.read(text(spec, "preemptibility"))
    queue = text(spec, "queue") or directory.queue_of(namespace)
    return QueueUse(queue, text(spec, "priorityClassName"), declared)


def wish_of_pod(pod: Manifest, namespace: str, directory: Directory) -> QueueUse | None:
    """Return the queue use of a pod; None if another object decides it.

    A PodGroup decides for its pods. A controller of a pod may name a queue, and was reviewed
    itself.
    """
    metadata, spec = part(pod, "metadata"), part(pod, "spec")
    queue, annotations = text(part(metadata, "labels"), QUEUE_LABEL), part(metadata, "annotations")
    is_controlled = any(owner.get("controller") for owner in owners(metadata))
    if POD_GROUP_ANNOTATION in annotations or (is_controlled and not queue):
        return None
    declared = preemptibility.read_annotation(text(annotations, PREEMPTIBLE_ANNOTATION))
    priority = spec.get("priority")
    return QueueUse(
        queue or directory.queue_of(namespace),
        text(spec, "priorityClassName"),
        declared,
        priority if isinstance(priority, int) else None,
    )


def is_to_adopt(metadata: Manifest, spec: Manifest) -> bool:
    """Return whether to set Bindery as the scheduler of a pod in an enabled namespace."""
    if (text(spec, "schedulerName") or DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER:
        return False
    # Each pod of a DaemonSet is for one node, so no planning is needed.
    by_node = any(each.get("kind") == "DaemonSet" for each in owners(metadata))
    return not (by_node or is_excepted(metadata) or text(spec, "nodeName"))


def mistakes_of_pod(metadata: Manifest) -> list[str]:
    """Return the problems of the keys of a pod or template, and of their values."""
    annotations, labels = part(metadata, "annotations"), part(metadata, "labels")
    return [*mistaken_keys(annotations, labels), *wrong_values(annotations, labels)]


def is_excepted(metadata: Manifest) -> bool:
    """Return whether a pod with `metadata` keeps another scheduler in an enabled namespace."""
    return text(part(metadata, "labels"), ENABLED_LABEL) == "false"


def owners(metadata: Manifest) -> Sequence[Manifest]:
    """Return the owner references in `metadata`."""
    found = metadata.get("ownerReferences")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def part(item: Mapping[str, Any], key: str) -> Manifest:
    """Return the mapping at `key`; empty if there is none."""
    found = item.get(key)
    return found if isinstance(found, dict) else {}


def text(item: Mapping[str, Any], key: str) -> str:
    """Return the text at `key`; "" if there is none."""
    found = item.get(key)
    return found if isinstance(found, str) else ""
