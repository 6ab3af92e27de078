"""Reads the pod templates of owners into the spec of their future pods.

The API server writes the quantities of pods as text. In the template of a custom resource, a number
from a user stays a number.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bindery.kube.objects import reading
from bindery.kube.objects.podgroups import PodTemplate
from bindery.kube.objects.podspec import PodSpec

_CONTAINERS: Final = ("containers", "initContainers")
_AMOUNTS: Final = ("requests", "limits")


class PodTemplateError(ValueError):
    """A pod template cannot be read."""


def pod_spec(template: PodTemplate) -> PodSpec:
    """Return the spec of the pods of `template`.

    Raises:
        PodTemplateError: the template has no valid spec of a pod.
    """
    try:
        return reading.convert(_in_text(template.spec), PodSpec)
    except (msgspec.ValidationError, RecursionError) as error:
        raise PodTemplateError(str(error)) from error


def _in_text(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return `spec` with all quantities as text."""
    read: dict[str, Any] = _with_resources(dict(spec))
    for key in _CONTAINERS:
        if isinstance(read.get(key), list):
            read[key] = [_with_resources(each) for each in read[key]]
    if isinstance(read.get("overhead"), dict):
        read["overhead"] = _texts(read["overhead"])
    return read


def _with_resources(item: Any) -> Any:
    """Return a container, or a pod spec, with the quantities of its resources as text."""
    if not isinstance(item, dict) or not isinstance(item.get("resources"), dict):
        return item
    resources = dict(item["resources"])
    for key in _AMOUNTS:
        if isinstance(resources.get(key), dict):
            resources[key] = _texts(resources[key])
    return {**item, "resources": resources}


def _texts(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: str(amount) if isinstance(amount, int | float) else amount
        for name, amount in amounts.items()
    }
