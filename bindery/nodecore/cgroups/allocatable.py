"""Node allocatable: what of a machine is left for pods."""

import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from bindery.api import quantity
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.options import parse_int
from bindery.nodecore.pods import EPHEMERAL_STORAGE, MEMORY, Resources

NOTHING: Final[Resources] = {}

_ALL_PERCENT: Final = 100
_MOST: Final = 1e9
"""A percentage that is far out of range and still a 32-bit float."""

EVICTION_RESOURCES: Final = {
    "memory.available": MEMORY,
    "nodefs.available": EPHEMERAL_STORAGE,
}
"""Signal of a hard eviction threshold -> the resource that it keeps free."""

_OTHER_SIGNALS: Final = frozenset(
    {
        *("nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available"),
        *("containerfs.available", "containerfs.inodesFree", "allocatableMemory.available"),
    }
)
_IGNORED: Final = frozenset({"0%", "100%"})
_FLOAT: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def eviction_reservation(thresholds: Mapping[str, str], capacity: Resources) -> dict[str, int]:
    """Return resource -> the amount that hard eviction thresholds keep free.

    Args:
        thresholds: signal -> a quantity such as "100Mi", or a percentage such as "10%"; 0% and 100%
            are no thresholds.
        capacity: resource -> the amount in the machine.

    Raises:
        ConfigurationError: a signal is unknown, or its threshold is neither or out of range.
    """
    reserved = {}
    for signal, text in thresholds.items():
        resource = EVICTION_RESOURCES.get(signal)
        if resource is None and signal not in _OTHER_SIGNALS:
            raise ConfigurationError(f"unsupported eviction signal {signal}")
        if text in _IGNORED:
            continue
        name = resource or EPHEMERAL_STORAGE
        amount = _threshold(signal, text, capacity.get(name, 0), name)
        if resource is not None:
            reserved[resource] = amount
    return reserved


def _threshold(signal: str, text: str, whole: int, resource: str) -> int:
    try:
        if text.endswith("%"):
            return int(whole * _part(signal, text))
        amount = quantity.parse(text, resource)
    except ValueError as error:
        raise ConfigurationError(f"invalid eviction threshold {signal}: {error}") from error
    if amount <= 0:
        raise ConfigurationError(f"eviction threshold {signal} must be positive: {text}")
    return amount


def _part(signal: str, text: str) -> float:
    """Return the part that a percentage is, as precise as the kubelet has it."""
    number = text.rstrip("%")
    if not _FLOAT.fullmatch(number):
        raise ValueError(f'strconv.ParseFloat: parsing "{number}": invalid syntax')
    part = float(np.float32(min(float(number), _MOST)) / np.float32(100))
    if not 0 <= part <= 1:
        limit = ">= 0%" if part < 0 else "<= 100%"
        raise ConfigurationError(f"eviction percentage threshold {signal} must be {limit}: {text}")
    return part


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
    """Return the whole number of a percentage such as "50%"; raises ConfigurationError."""
    if not text.endswith("%"):
        raise ConfigurationError(f"percentage expected, got '{text}'")
    try:
        percent = parse_int(text.rstrip("%"))
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
    """Return the allocatable of the node; raises ConfigurationError if too much is reserved."""
    errors = [
        f'Resource "{name}" has a reservation of {amount} but capacity of {capacity.get(name, 0)}. '
        "Expected capacity >= reservation."
        for name, amount in reserved.items()
        if amount > capacity.get(name, 0)
    ]
    if errors:
        raise ConfigurationError(f"invalid Node Allocatable configuration. {' '.join(errors)}")
    return {name: amount - reserved.get(name, 0) for name, amount in capacity.items()}
