"""Finds groups of devices: on one NUMA node, or linked by the vendor's table.

`fit` calls it with devices that fit singly. Pure.
"""

from collections.abc import Collection, Sequence
from itertools import groupby

from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.vendor import Alignment, Vendor

_ALIGNED = (4, 8, 16)
"""Runs of these lengths begin at a multiple of the length: quarters and halves of a torus."""


def by_numa(ordered: Sequence[NodeDevice]) -> list[list[NodeDevice]]:
    """Return the devices by NUMA node; `ordered` has the devices of each node together."""
    return [list(together) for _, together in groupby(ordered, key=lambda device: device.numa)]


def are_linked(count: int, vendor: Vendor) -> bool:
    """Return whether `count` devices of `vendor` must be linked."""
    return count > 1 and (vendor.alignment is Alignment.RUNS or bool(vendor.groups))


def linked(free: Sequence[NodeDevice], count: int, vendor: Vendor) -> list[NodeDevice] | None:
    """Return `count` free devices with the vendor's required links; None without any."""
    by_index = {device.index: device for device in free}
    if vendor.alignment is Alignment.RUNS:
        indexes = _run(by_index.keys(), count)
    else:
        indexes = _grouped(by_index.keys(), count, vendor)
    return None if indexes is None else [by_index[index] for index in indexes]


def _run(free: Collection[int], count: int) -> list[int] | None:
    step = count if count in _ALIGNED else 1
    last = max(free, default=-1)
    for start in range(0, last + 1, step):
        run = list(range(start, start + count))
        if all(index in free for index in run):
            return run
    return None


def _grouped(free: Collection[int], count: int, vendor: Vendor) -> list[int] | None:
    """Return the first free set of the vendor's table."""
    sets = vendor.groups.get(count)
    if sets is not None:
        return next((list(each) for each in sets if all(i in free for i in each)), None)
    # The table has no set of this size: combine pairs.
    left, chosen = set(free), list[int]()
    for pair in vendor.groups.get(2, ()):
        if len(chosen) < count and left.issuperset(pair):
            left.difference_update(pair)
            chosen += pair
    return chosen if len(chosen) == count else None
