"""The resources in the status of pods and containers. Pure.

Source: how the kubelet of Kubernetes 1.36 converts statuses. What is allocated is what the spec
asks for: resources are not changed in place.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bindery.api import quantity
from bindery.kube.objects.podspec import Container, ResourceRequirements
from bindery.nodeagent.containers.podspec import RunPod
from bindery.nodecore import pods
from bindery.nodecore.cgroups.conversions import (
    MIN_QUOTA_US,
    MIN_SHARES,
    QUOTA_PERIOD_US,
    milli_of_quota,
)
from bindery.nodecore.podsync.facts import RuntimeLimits

Amounts = Mapping[str, str]
DeviceHealths = Mapping[str, Mapping[str, str]]
"""Resource of a device plugin, or claim -> id of a device -> its health, as the API has it."""

_NANO: Final = 10**9
_LEAST_CPU: Final = {
    "requests": MIN_SHARES,
    "limits": milli_of_quota(MIN_QUOTA_US, QUOTA_PERIOD_US),
}
"""The millicores below which the kernel's value no longer follows the wanted one."""
_NOTHING: Final = ResourceRequirements()


def of_container(
    wanted: ResourceRequirements | None, limits: RuntimeLimits | None
) -> dict[str, Any]:
    """Return the fields of a container that the runtime has; `limits`: None if it does not run."""
    wanted = wanted or _NOTHING
    requests, upper = dict(wanted.requests or {}), dict(wanted.limits or {})
    allocated = dict(requests)
    if limits is not None:
        if requests:
            _set_cpu(requests, "requests", limits.cpu_request_milli)
        if upper:
            _set_cpu(upper, "limits", limits.cpu_limit_milli)
            if limits.memory_limit_bytes:
                amount = limits.memory_limit_bytes
                upper[pods.MEMORY] = quantity.canonical(amount, pods.MEMORY)
    shown: dict[str, Any] = _requirements(requests, upper)
    if wanted.claims:
        shown["claims"] = msgspec.to_builtins(wanted.claims)
    return {"resources": shown, **({"allocatedResources": allocated} if allocated else {})}


def _set_cpu(amounts: dict[str, str], kind: str, milli: int) -> None:
    least = _LEAST_CPU[kind]
    if milli and max(milli, quantity.parse(amounts.get(pods.CPU, "0"), pods.CPU)) > least:
        amounts[pods.CPU] = quantity.canonical(milli, pods.CPU)


def of_pod(pod: RunPod) -> dict[str, Any]:
    """Return the fields of a pod as a whole, with its overhead."""
    spec = pod.spec
    whole = spec.resources
    core = pods.Pod(
        uid=pod.metadata.uid,
        containers=[_container(one) for one in spec.containers],
        init_containers=[_container(one) for one in spec.init_containers or ()],
        requests=None if whole is None else _nano(whole.requests),
        limits=None if whole is None else _nano(whole.limits),
        overhead=_nano(spec.overhead),
    )
    requests = _texts(pods.requests_with_overhead(core))
    limits = _texts(pods.limits_with_overhead(core))
    return {
        "resources": _requirements(requests, limits),
        **({"allocatedResources": requests} if requests else {}),
    }


def of_devices(health: DeviceHealths) -> dict[str, Any]:
    """Return the field with the health of the devices that a container holds."""
    if not health:
        return {}
    return {
        "allocatedResourcesStatus": [
            {
                "name": resource,
                "resources": [
                    {"resourceID": one, "health": word} for one, word in sorted(devices.items())
                ],
            }
            for resource, devices in sorted(health.items())
        ]
    }


def _requirements(requests: Amounts, limits: Amounts) -> dict[str, Any]:
    return {
        kind: amounts for kind, amounts in (("requests", requests), ("limits", limits)) if amounts
    }


def _container(container: Container) -> pods.Container:
    wanted = container.resources or _NOTHING
    return pods.Container(
        container.name,
        _nano(wanted.requests),
        _nano(wanted.limits),
        is_sidecar=container.restart_policy == "Always",
    )


def _nano(amounts: Mapping[str, str] | None) -> dict[str, int]:
    """Return amounts in billionths: no resource is rounded."""
    return {name: quantity.nano(text) for name, text in (amounts or {}).items()}


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: _text(name, amount) for name, amount in amounts.items()}


def _text(name: str, amount: int) -> str:
    if amount % _NANO:
        return quantity.nano_text(amount)
    return quantity.canonical(amount // _NANO * quantity.scale(name), name)
