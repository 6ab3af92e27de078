"""Requests of pods that are resized in place (KEP-1287).

While a resize is under way, a container counts with the largest of three requests: in its spec,
allocated by the node, and in effect. If the node can never make the resize, the spec does not
count. As in `determineEffectiveRequests` of k8s.io/component-helpers 0.36.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from bindery.api import quantity
from bindery.kube.objects.podspec import Container, PodSpec, ResourceRequirements
from bindery.kube.objects.watched import ContainerStatus, Pod

_RESIZE_PENDING, _INFEASIBLE = "PodResizePending", "Infeasible"


def effective_spec(pod: Pod) -> PodSpec:
    """Return `pod`'s spec with the requests that count on its node; raises QuantityError."""
    spec, status = pod.spec, pod.status
    known = {
        each.name: each
        for each in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        if each.resources is not None
    }
    if not known:  # pods without a node, and pods whose node does not report resources
        return spec
    is_infeasible = any(
        each.type == _RESIZE_PENDING and each.reason == _INFEASIBLE
        for each in status.conditions or ()
    )
    containers = [_effective(c, known.get(c.name), is_infeasible) for c in spec.containers]
    init_containers = [
        _effective(c, known.get(c.name), is_infeasible) if c.restart_policy == "Always" else c
        for c in spec.init_containers or ()
    ]
    if containers == spec.containers and init_containers == (spec.init_containers or []):
        return spec
    return replace(spec, containers=containers, init_containers=init_containers or None)


def _effective(
    container: Container, status: ContainerStatus | None, is_infeasible: bool
) -> Container:
    if status is None or status.resources is None:
        return container
    resources = container.resources or ResourceRequirements()
    asked = resources.requests or {}
    parts = [status.resources.requests or {}, status.allocated_resources or {}]
    largest = _largest(*parts) if is_infeasible else _largest(asked, *parts)
    if largest == asked:
        return container
    return replace(container, resources=replace(resources, requests=largest))


def _largest(*parts: Mapping[str, str]) -> dict[str, str]:
    """Return the largest amount of each resource; of equal ones the first text."""
    found: dict[str, str] = {}
    for part in parts:
        for name, text in part.items():
            old = found.get(name)
            # Mostly all have the same text, which needs no parsing.
            is_larger = old is None or (
                text != old and quantity.parse(text, name) > quantity.parse(old, name)
            )
            if is_larger:
                found[name] = text
    return found
