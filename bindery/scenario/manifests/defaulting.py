"""Do to new objects what admission and controllers would do. Used by `submission`; pure.

A pod with a generic ephemeral volume, or with a resource claim from a template, can be planned once
its claim exists, and no controller has seen these objects yet.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from bindery.api.gpushare import CONFIG_MAP_ANNOTATION, asks_for_share
from bindery.api.yamlfile import Document
from bindery.kube.objects import reading
from bindery.kube.objects.claims import ResourceClaimTemplate
from bindery.kube.objects.storage import ClaimSpec, PersistentVolumeClaim, StorageClass
from bindery.kube.objects.watched import Condition, KubeObject, Meta, Node, Pod
from bindery.scenario.claims import owner_of_claims, with_claims

DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"


class Defaults:
    """The claim templates and the default storage class of a cluster."""

    def __init__(self, there: Iterable[KubeObject]) -> None:
        self._templates: dict[tuple[str, str], ResourceClaimTemplate] = {}
        self._default_class: str | None = None
        for item in there:
            meta = item.metadata
            if isinstance(item, ResourceClaimTemplate):
                self._templates[meta.namespace, meta.name] = item
            elif isinstance(item, StorageClass) and (
                meta.annotations.get(DEFAULT_CLASS_ANNOTATION) == "true"
            ):
                self._default_class = meta.name

    def complete(self, item: KubeObject) -> Iterator[KubeObject]:
        """Yield the claims that controllers would create for `item`, then `item` with its defaults.

        Raises:
            msgspec.ValidationError: a template within a pod does not decode.
        """
        if isinstance(item, PersistentVolumeClaim):
            yield self._with_class(item)
        elif isinstance(item, Pod):
            yield from map(self._with_class, _ephemeral_claims(item))
            claims, pod = with_claims(item, self._templates)
            yield from (*claims, pod)
        else:
            yield item

    def _with_class(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Return `claim` with the default class, if it names none, as admission leaves it."""
        if claim.spec.storage_class_name is not None:
            return claim
        spec = msgspec.structs.replace(claim.spec, storage_class_name=self._default_class)
        return msgspec.structs.replace(claim, spec=spec)


def _ephemeral_claims(pod: Pod) -> Iterator[PersistentVolumeClaim]:
    """Yield the claims of the generic ephemeral volumes of `pod`."""
    meta = pod.metadata
    for volume in pod.spec.volumes or ():
        if volume.ephemeral is None:
            continue
        template: Mapping[str, Any] = volume.ephemeral.get("volumeClaimTemplate") or {}
        name = f"{meta.name}-{volume.name}"
        yield PersistentVolumeClaim(
            metadata=Meta(
                name=name,
                namespace=meta.namespace,
                uid=f"{meta.uid}-{volume.name}",
                creation_timestamp=meta.creation_timestamp,
                owner_references=[owner_of_claims(pod)],
            ),
            spec=reading.convert(template.get("spec") or {}, ClaimSpec, strict=False),
        )


def admitted(
    item: KubeObject, values: Mapping[str, int], default: int, document: Document
) -> KubeObject:
    """Return a pod with the priority that its class stands for, and a node that is ready.

    Raises:
        FileError: the class does not exist.
    """
    if isinstance(item, Node) and item.status.conditions is None:
        ready = [Condition(type="Ready", status="True")]
        status = msgspec.structs.replace(item.status, conditions=ready)
        return msgspec.structs.replace(item, status=status)
    if isinstance(item, Pod):
        item = _prepared(item)
    if not isinstance(item, Pod) or item.spec.priority is not None:
        return item
    name = item.spec.priority_class_name
    if name and name not in values:
        raise document.error((), f"pod {item.metadata.name}: PriorityClass {name} does not exist")
    value = values[name] if name else default
    spec = msgspec.structs.replace(item.spec, priority=value)
    return msgspec.structs.replace(item, spec=spec)


def _prepared(pod: Pod) -> Pod:
    """Return `pod` as the webhook leaves one that asks for a share of a GPU."""
    annotations = pod.metadata.annotations
    if not asks_for_share(annotations) or CONFIG_MAP_ANNOTATION in annotations:
        return pod
    named = {**annotations, CONFIG_MAP_ANNOTATION: pod.metadata.name}
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, annotations=named)
    )
