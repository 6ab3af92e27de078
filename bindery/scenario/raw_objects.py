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
_AMOUNTS: Final = frozenset({"allocatable", "capacity", "limits", "overhead", "requests"})
"""Keys below which stand quantities by resource."""


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
    if not item.get("metadata", {}).get("name"):
        raise ValueError("it has no metadata.name")
    found = reading.convert(completed(item, kinds[kind], now), kinds[kind].type)
    assert isinstance(found, KubeObject)
    return found


def completed(item: AnyObject, resource: Resource[Any], now: float) -> AnyObject:
    """Return `item`, which has a name, with the metadata that the API server would add.

    `now` is the creation time of an object that has none, in seconds since the epoch.
    """
    meta = {**item["metadata"]}
    if resource.namespaced:
        meta.setdefault("namespace", "default")
    else:
        meta.pop("namespace", None)
    name = f"{resource.kind}/{meta.get('namespace', '')}/{meta['name']}"
    meta.setdefault("uid", str(uuid.uuid5(uuid.NAMESPACE_URL, name)))
    meta.setdefault("creationTimestamp", timestamp(now))
    return {**item, "metadata": meta}


def with_text_amounts(value: Any) -> Any:
    """Return `value` with all amounts of resources as text: in YAML they may be numbers."""
    if isinstance(value, list):
        return [with_text_amounts(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: {name: _text_amount(amount) for name, amount in each.items()}
        if key in _AMOUNTS and isinstance(each, dict)
        else with_text_amounts(each)
        for key, each in value.items()
    }


def _text_amount(amount: Any) -> Any:
    """Return an amount as text; in claims and slices, `capacity` has amounts only further below."""
    return with_text_amounts(amount) if isinstance(amount, dict | list) else str(amount)
