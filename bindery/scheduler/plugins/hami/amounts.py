"""Computes the amounts of devices for the quota of a namespace.

Used by `fleet`, `fit` and `quotas`. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from bindery.api.hami.poddevices import NOTHING, Holding
from bindery.api.hami.vendor import Vendor
from bindery.api.hami.vendortable import VENDORS

Amounts = Mapping[str, int]
"""Resource of a vendor's memory or cores -> MiB, or cores in the vendor's unit."""

UNITS: Final = {v.memory_resource: v.memory_unit_mib for v in VENDORS if v.memory_resource} | {
    v.cores_resource: 1 for v in VENDORS if v.cores_resource and not v.cores_are_percent
}
"""Resource -> counted amount per unit of the resource. Cores with different units in requests and
holdings are left out."""


def amounts(vendor: Vendor, holdings: Iterable[Holding]) -> dict[str, int]:
    """Return the counted amounts of `holdings` of devices of `vendor`."""
    total, bits = NOTHING, 0
    for holding in holdings:
        total += holding
        bits += holding.cores.bit_count()
    cores = bits if vendor.cores_are_bits else total.cores
    named = {vendor.memory_resource: total.memory_mib, vendor.cores_resource: cores}
    return {name: amount for name, amount in named.items() if name in UNITS and amount}
