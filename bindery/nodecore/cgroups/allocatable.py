"""Node allocatable: what of a machine is left for pods."""

from collections.abc import Mapping
from typing import Final

from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.pods import EPHEMERAL_STORAGE, MEMORY, Resources

NOTHING: Final[Resources] = {}

EVICTION_RESOURCES: Final = {
    "memory.available": MEMORY,
    "nodefs.available": EPHEMERAL_STORAGE,
}
"""Signal of a hard eviction threshold -> the resource that it keeps free."""


def eviction_reservation(thresholds: Mapping[str, str], capacity: Resources) -> dict[str, int]:
    """Return what hard eviction thresholds keep free.

    Args:
        thresholds: signal -> a quantity in bytes as a number, or a percentage such as "10%".
        capacity: what the machine has.
    """
    reserved = {}
    for signal, text in thresholds.items():
        resource = EVICTION_RESOURCES.get(signal)
        if resource is None:
            continue
        part = float(text.removesuffix("%")) if text.endswith("%") else None
        whole = capacity.get(resource, 0)
        reserved[resource] = int(text) if part is None else int(whole * part / 100)
    return reserved


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
