"""Constraints of a claim over all its devices: equal or distinct attributes.

The allocator adds devices one by one and removes them in reverse order. A constraint that refuses a
device refuses it as long as the earlier devices stay.
"""

from collections.abc import Sequence
from typing import Final

from bindery.kube.objects.claims import DeviceConstraint
from bindery.kube.objects.devices import Device

AttributeValue = tuple[str, str | int | bool]
"""Kind and value; values of different kinds are never equal."""

_KINDS: Final = (
    ("string", "string_value"),
    ("int", "int_value"),
    ("bool", "bool_value"),
    ("version", "version_value"),
)


class Constraint:
    """One constraint, with the values of the chosen devices; raises ValueError if unknown."""

    def __init__(self, declared: DeviceConstraint) -> None:
        attribute = declared.match_attribute or declared.distinct_attribute
        if attribute is None:
            raise ValueError("empty constraint (unsupported constraint type?)")
        self._attribute = attribute
        self._is_match = declared.match_attribute is not None
        self._requests = frozenset(declared.requests)
        self._values: list[AttributeValue] = []

    def concerns(self, names: Sequence[str]) -> bool:
        """Return whether the constraint names a request of `names`, or no request at all."""
        return not self._requests or not self._requests.isdisjoint(names)

    def value_of(self, driver: str, device: Device) -> AttributeValue | None:
        """Return the value of the constraint's attribute for `device` of `driver`."""
        return attribute(driver, device, self._attribute)

    def add(self, driver: str, device: Device) -> bool:
        """Add `device` and return True, or return False if the constraint refuses it."""
        value = self.value_of(driver, device)
        if value is None:  # a device without the attribute can match no other
            return False
        if self._values and self._is_match and value != self._values[0]:
            return False
        if not self._is_match and value in self._values:
            return False
        self._values.append(value)
        return True

    def remove(self) -> None:
        """Remove the last added device."""
        self._values.pop()


def attribute(driver: str, device: Device, name: str) -> AttributeValue | None:
    """Return the attribute with the fully qualified `name`; None if the device has none.

    A name without a domain in the slice has the driver as its domain.
    """
    found = device.attributes.get(name)
    if found is None:
        domain, _, identifier = name.partition("/")
        found = device.attributes.get(identifier) if domain == driver and identifier else None
    if found is None:
        return None
    values = ((kind, getattr(found, field)) for kind, field in _KINDS)
    return next(((kind, value) for kind, value in values if value is not None), None)
