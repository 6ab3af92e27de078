"""Devices, claims and quotas of a live cluster as the whole objects of a scenario.

Used by `cluster`; pure. A claim that was made from a template is written under its own name: the
scenario's pod names it. Who has reserved what is left out, as a pod that begins on a node reserves
the claims that it names.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from bindery.kube.objects.claims import RESOURCE_CLAIMS, ResourceClaim
from bindery.kube.objects.devices import DEVICE_CLASSES, RESOURCE_SLICES
from bindery.kube.objects.quotas import RESOURCE_QUOTAS
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.scenario.capture.nodes import Entry

_KEYS: Final[Mapping[str, Resource[Any]]] = {
    "resourceQuotas": RESOURCE_QUOTAS,
    "resourceSlices": RESOURCE_SLICES,
    "deviceClasses": DEVICE_CLASSES,
    "resourceClaims": RESOURCE_CLAIMS,
}


def capture_claims(further: Sequence[KubeObject]) -> Entry:
    """Return the keys of a scenario that hold `further`, as far as it is about devices."""
    return {
        key: [
            {"apiVersion": resource.api_version, "kind": resource.kind, **_whole(item)}
            for item in further
            if type(item) is resource.type
        ]
        for key, resource in _KEYS.items()
    }


def claim_names(pod: Pod) -> list[str]:
    """Return the names of the claims of `pod`, as far as they have been made."""
    made = {
        each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()
    }
    names = (
        each.resource_claim_name or made.get(each.name) for each in pod.spec.resource_claims or ()
    )
    return [name for name in names if name]


def templates_without_claim(pod: Pod) -> list[str]:
    """Return the claim templates of `pod` of which no claim has been made yet."""
    made = {each.name for each in pod.status.resource_claim_statuses or ()}
    return [
        each.resource_claim_template_name or ""
        for each in pod.spec.resource_claims or ()
        if each.resource_claim_name is None and each.name not in made
    ]


def _whole(item: KubeObject) -> Entry:
    meta = {"name": item.metadata.name}
    if item.metadata.namespace:
        meta["namespace"] = item.metadata.namespace
    if isinstance(item, ResourceClaim):
        status = msgspec.structs.replace(item.status, reserved_for=[])
        item = msgspec.structs.replace(item, status=status)
    body = pruned(msgspec.to_builtins(item))
    assert isinstance(body, dict), "objects are written as mappings"
    return {**body, "metadata": meta}


def pruned(item: object) -> object:
    """Return `item` without empty values; parameters of drivers stay unchanged."""
    if isinstance(item, dict):
        kept: Iterable[tuple[str, object]] = (
            (key, value if key == "parameters" else pruned(value)) for key, value in item.items()
        )
        return {key: value for key, value in kept if value not in (None, "", [], {})}
    return [pruned(part) for part in item] if isinstance(item, list) else item
