"""Admission of pods with HAMi's devices: refusals and defaults.

Called by `plugin`. HAMi's own webhook ignores pods of other schedulers, so its defaults are set
here: a container that requests only a part of a GPU gets one GPU.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bindery.api.hami import assignment, wishes
from bindery.api.hami.assignment import FORGED
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.requests import in_modules, read_pod
from bindery.api.hami.vendortable import NVIDIA

_PARTS = (NVIDIA.memory_resource, NVIDIA.percentage_resource, NVIDIA.cores_resource)


@dataclass(frozen=True)
class _Resources:
    requests: dict[str, str] | None
    limits: dict[str, str] | None


def problems(pod: Mapping[str, Any]) -> list[str]:
    """Return the problems of `pod`, one sentence each."""
    spec = pod.get("spec") or {}
    annotations: Mapping[str, str] = (pod.get("metadata") or {}).get("annotations") or {}
    found = []
    try:
        request = read_pod(
            [
                (_resources(container), container.get("restartPolicy") == "Always")
                for container in spec.get("initContainers") or ()
            ],
            [_resources(container) for container in spec.get("containers") or ()],
        )
        if request is not None:
            wishes.read(annotations, request.vendors)
    except HamiFormatError as error:
        found.append(str(error))
    forged = assignment.forged_key(annotations, (pod.get("metadata") or {}).get("uid") or "")
    if forged:
        found.append(FORGED.format(forged))
    return found


def with_defaults(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `pod` with HAMi's defaults.

    A container that requests a part of a GPU requests at least one GPU, and a container that
    requests devices that come in modules requests at least one module.
    """
    changed = copy.deepcopy(dict(pod))
    for container in _containers(changed):
        resources = container.get("resources") or {}
        limits, named = resources.get("limits"), resources.get("requests")
        if limits and NVIDIA.count_resource not in limits and any(p in limits for p in _PARTS):
            limits[NVIDIA.count_resource] = "1"
        counts = in_modules(_texts({**(named or {}), **(limits or {})}))
        for amounts in (limits, named):
            if amounts:
                amounts.update((name, counts[name]) for name in counts.keys() & amounts.keys())
    return changed


def _containers(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    spec = pod.get("spec") or {}
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _resources(container: Mapping[str, Any]) -> _Resources:
    resources = container.get("resources") or {}
    named, limits = resources.get("requests"), resources.get("limits")
    return _Resources(
        None if named is None else _texts(named), None if limits is None else _texts(limits)
    )


def _texts(amounts: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(text) for name, text in amounts.items()}
