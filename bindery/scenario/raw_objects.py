"""The keys of a scenario that hold whole Kubernetes objects: volumes, quotas, what DRA knows.

Called by `cluster` when it is populated and by `checks` for every file. Invariant: what passes
`problem` can be made an object, of the very type that the scheduler watches.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bindery.api.times import timestamp
from bindery.kube.objects import claims, devices, quotas, reading, storage
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject
from bindery.scenario.fields import AnyObject

if TYPE_CHECKING:
    from bindery.scenario.format import Scenario

KINDS: Final[Mapping[str, Sequence[Resource[Any]]]] = {
    "volumes": storage.RESOURCES,
    "resource_quotas": (quotas.RESOURCE_QUOTAS,),
    "resource_slices": (devices.RESOURCE_SLICES,),
    "device_classes": (devices.DEVICE_CLASSES,),
    "resource_claims": (claims.RESOURCE_CLAIMS,),
    "resource_claim_templates": (claims.RESOURCE_CLAIM_TEMPLATES,),
}
"""Field of `Scenario` -> the kinds that it may hold."""


def raw_objects_of(scenario: "Scenario", now: float) -> Iterator[KubeObject]:
    """Yield the objects under these keys in file order; `now` is their default creation time."""
    for key, resources in KINDS.items():
        for item in getattr(scenario, key):
            yield _object(item, resources, now)


def problem(item: AnyObject, key: str) -> str | None:
    """Return what is wrong with `item`, which stands under the field `key`."""
    try:
        _object(item, KINDS[key], 0.0)
    except (msgspec.ValidationError, ValueError) as error:
        return str(error)
    return None


def _object(item: AnyObject, resources: Sequence[Resource[Any]], now: float) -> KubeObject:
    """Return `item` as the API server would have it.

    Raises:
        ValueError: it is of no kind that belongs there.
        msgspec.ValidationError: it does not decode.
    """
    kinds = {resource.kind: resource for resource in resources}
    kind = str(item.get("kind", ""))
    if kind not in kinds:
        raise ValueError(f"kind {kind or 'missing'}; expected one of {', '.join(kinds)}")
    resource = kinds[kind]
    meta = {**item.get("metadata", {})}
    if not meta.get("name"):
        raise ValueError("it has no metadata.name")
    if resource.namespaced:
        meta.setdefault("namespace", "default")
    name = f"{kind}/{meta.get('namespace', '')}/{meta['name']}"
    meta.setdefault("uid", str(uuid.uuid5(uuid.NAMESPACE_URL, name)))
    meta.setdefault("creationTimestamp", timestamp(now))
    found = reading.convert({**item, "metadata": meta}, resource.type)
    assert isinstance(found, KubeObject)
    return found
