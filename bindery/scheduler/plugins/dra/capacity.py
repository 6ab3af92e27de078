"""Consumable capacity (KEP-5075): the consumption of a device's capacities by a request.

Amounts are in billionths. Source: consumable_capacity.go of the structured allocator in
k8s.io/dynamic-resource-allocation 0.36.
"""

from collections.abc import Mapping

from bindery.api.quantity import nano
from bindery.kube.objects.devices import CapacityRange, CapacityRequestPolicy, DeviceCapacity

_NANO = 10**9


def consumption(
    capacities: Mapping[str, DeviceCapacity], requested: Mapping[str, int]
) -> dict[str, int] | None:
    """Return the consumed amount of each capacity; None if the device cannot serve the request.

    Of a capacity that the request does not name, the default of its policy is consumed, or all.

    Raises:
        QuantityError: a capacity is not a quantity.
    """
    if not requested.keys() <= capacities.keys():
        return None
    consumed = {}
    for name, capacity in capacities.items():
        amount = _amount(capacity, requested.get(name))
        if _violates(amount, capacity.request_policy) or amount > nano(capacity.value):
            return None
        consumed[name] = amount
    return consumed


def _amount(capacity: DeviceCapacity, requested: int | None) -> int:
    policy = capacity.request_policy
    if requested is None:
        default = policy.default if policy is not None else None
        return nano(capacity.value if default is None else default)
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded(requested, nano(policy.valid_range.min), policy.valid_range)
    fitting = (nano(value) for value in policy.valid_values or ())
    return next((value for value in fitting if requested <= value), requested)


def _rounded(requested: int, least: int, valid: CapacityRange) -> int:
    """Return `requested` rounded up to the next step above `least`."""
    if requested < least:
        return least
    if valid.step is None:
        return requested
    # The reference computes steps in whole numbers and rounds fractions up first.
    step, base = _whole(nano(valid.step)), _whole(least)
    return (base + -(-(_whole(requested) - base) // step) * step) * _NANO


def _violates(amount: int, policy: CapacityRequestPolicy | None) -> bool:
    # The default conforms even outside the range, as in the reference.
    if policy is None or (policy.default is not None and amount == nano(policy.default)):
        return False
    if policy.valid_range is not None:
        valid = policy.valid_range
        if valid.max is not None and amount > nano(valid.max):
            return True
        if valid.step is None or valid.min is None:
            return False
        return (_whole(amount) - _whole(nano(valid.min))) % _whole(nano(valid.step)) != 0
    values = policy.valid_values
    return bool(values) and all(amount != nano(value) for value in values or ())


def _whole(amount: int) -> int:
    return -(-amount // _NANO)
