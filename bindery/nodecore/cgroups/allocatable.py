"""Node allocatable: what of a machine is left for pods."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from bindery.api import quantity
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.pods import EPHEMERAL_STORAGE, MEMORY, Resources

NOTHING: Final[Resources] = {}

_ALL_PERCENT: Final = 100

EVICTION_RESOURCES: Final = {
    "memory.available": MEMORY,
    "nodefs.available": EPHEMERAL_STORAGE,
}
"""Signal of a hard eviction threshold -> the resource that it keeps free."""


def eviction_reservation(thresholds: Mapping[str, str], capacity: Resources) -> dict[str, int]:
    """Return what hard eviction thresholds keep free.

    Args:
        thresholds: signal -> a quantity such as "100Mi", or a percentage such as "10%".
        capacity: what the machine has.

    Raises:
        ConfigurationError: a threshold is neither.
    """
    reserved = {}
    for signal, text in thresholds.items():
        resource = EVICTION_RESOURCES.get(signal)
        if resource is not None:
            reserved[resource] = _threshold(signal, text, capacity.get(resource, 0), resource)
    return reserved


def _threshold(signal: str, text: str, whole: int, resource: str) -> int:
    try:
        if text.endswith("%"):
            part = np.float32(text.removesuffix("%")) / np.float32(100)  # as precise as the kubelet
            return int(whole * float(part))
        return quantity.parse(text, resource)
    except ValueError as error:
        raise ConfigurationError(f"invalid eviction threshold {signal}: {error}") from error


def parse_qos_reserved(settings: Mapping[str, str]) -> dict[str, int]:
    """Return the percentages of `qos-reserved` by resource; memory is the only one.

    Raises:
        ConfigurationError: a resource cannot be reserved, or its value is no percentage.
    """
    reserved = {}
    for resource, text in settings.items():
        if resource != MEMORY:
            raise ConfigurationError(f'cannot reserve "{resource}" resource')
        try:
            reserved[resource] = parse_percentage(text)
        except ConfigurationError as error:
            raise ConfigurationError(
                f'failed to parse percentage "{text}" for "{resource}" resource: {error}'
            ) from error
    return reserved


def parse_percentage(text: str) -> int:
    """Return the number of a percentage such as "50%".

    Raises:
        ConfigurationError: it is no whole percentage from 0% to 100%.
    """
    if not text.endswith("%"):
        raise ConfigurationError(f"percentage expected, got '{text}'")
    try:
        percent = int(text.rstrip("%"))
    except ValueError as error:
        raise ConfigurationError(f"invalid number in percentage '{text}'") from error
    if not 0 <= percent <= _ALL_PERCENT:
        raise ConfigurationError("percentage must be between 0 and 100")
    return percent


def enforced(
    capacity: Resources, system: Resources = NOTHING, kube: Resources = NOTHING
) -> dict[str, int]:
    """Return the limits of the cgroup of all pods: eviction thresholds are not taken off."""
    return {
        name: max(0, amount - system.get(name, 0) - kube.get(name, 0))
        for name, amount in capacity.items()
    }


def reservation(
    capacity: Resources,
    system: Resources = NOTHING,
    kube: Resources = NOTHING,
    eviction: Resources = NOTHING,
) -> dict[str, int]:
    """Return what is not for pods: reservations and hard eviction thresholds."""
    sums = {
        name: system.get(name, 0) + kube.get(name, 0) + eviction.get(name, 0) for name in capacity
    }
    return {name: amount for name, amount in sums.items() if amount}


def allocatable(capacity: Resources, reserved: Resources) -> dict[str, int]:
    """Return what the node reports as allocatable.

    Raises:
        ConfigurationError: more is reserved than there is.
    """
    errors = [
        f'Resource "{name}" has a reservation of {amount} but capacity of {capacity.get(name, 0)}. '
        "Expected capacity >= reservation."
        for name, amount in reserved.items()
        if amount > capacity.get(name, 0)
    ]
    if errors:
        raise ConfigurationError(f"invalid Node Allocatable configuration. {' '.join(errors)}")
    return {name: amount - reserved.get(name, 0) for name, amount in capacity.items()}
