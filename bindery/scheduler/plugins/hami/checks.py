"""The checks of one device, in HAMi's order and with HAMi's words (v2.10.0, Fit).

`fit` calls them. Pure. An empty word means that the device passes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bindery.api.hami.nodedevices import MigPlacement, MigProfile, NodeDevice
from bindery.api.hami.poddevices import Holding
from bindery.api.hami.requests import WHOLE_CORES, DeviceRequest
from bindery.api.hami.vendor import Vendor
from bindery.api.hami.wishes import Wishes
from bindery.scheduler.plugins.hami import mig
from bindery.scheduler.plugins.hami.fleet import HamiNode

Instance = tuple[MigProfile, MigPlacement]
"""Profile and place of a MIG instance."""


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """The amounts of one device for a request."""

    holding: Holding
    is_exclusive: bool


def standing(device: NodeDevice, node: HamiNode, vendor: Vendor, wishes: Wishes) -> str:
    """Return the reason against a device, independent of its usage."""
    selection = wishes.selection(vendor)
    if not device.healthy:
        return "CardNotHealth"
    if device.id in node.cordoned:
        return "CardCordoned"
    if not selection.takes_type(device.type):
        return "CardTypeMismatch"
    if wishes.modes and device.mode and device.mode not in wishes.modes:
        return "CardTypeMismatch"
    return "" if selection.takes_id(device.id) else "CardUuidMismatch"


def room(device: NodeDevice, used: Holding, demand: DeviceDemand, request: DeviceRequest) -> str:
    """Return the reason against a device because of its usage."""
    asked, vendor = demand.holding, request.vendor
    # All shares of such a device must have the same size.
    one_size = vendor.has_one_size and used.memory_mib != used.shares * asked.memory_mib
    shortages = (
        (used.shares >= device.count, "CardTimeSlicingExhausted"),
        (one_size, "CardTypeMismatch"),
        (device.memory_mib - used.memory_mib < asked.memory_mib, "CardInsufficientMemory"),
        (not _has_cores(device, used, asked, vendor), "CardInsufficientCore"),
        (demand.is_exclusive and used.shares > 0, "ExclusiveDeviceAllocateConflict"),
        (
            # A share without cores gets no device whose cores are all taken.
            not asked.cores and 0 < device.cores <= used.cores and not vendor.count_is_shares,
            "CardComputeUnitsExhausted",
        ),
    )
    return next((word for is_short, word in shortages if is_short), "")


def _has_cores(device: NodeDevice, used: Holding, asked: Holding, vendor: Vendor) -> bool:
    if vendor.cores_are_bits:
        return not used.cores & asked.cores and bool(asked.cores)
    return device.cores - used.cores >= asked.cores


def demand(device: NodeDevice, request: DeviceRequest, used: Holding) -> DeviceDemand:
    """Return the demand of `request` on `device`, with `used` taken by other pods."""
    vendor = request.vendor
    if vendor.count_is_shares:
        part = 100 * request.count // max(device.count, 1)
        return DeviceDemand(Holding(1, part, request.count), is_exclusive=False)
    memory_mib = request.memory_mib or device.memory_mib * request.memory_percent // 100
    if vendor.cores_are_bits:
        whole = request.cores >= WHOLE_CORES
        cores = device.cores if whole else _lowest_bit(device.cores & ~used.cores)
        return DeviceDemand(Holding(1, memory_mib, cores), is_exclusive=whole)
    if vendor.cores_are_percent:
        cores = device.cores * request.cores // 100
        return DeviceDemand(
            Holding(1, memory_mib, cores), is_exclusive=request.cores >= WHOLE_CORES
        )
    if request.is_exclusive and _gives_whole(vendor):
        return DeviceDemand(Holding(1, device.memory_mib, device.cores), is_exclusive=True)
    # On a card with scaled cores, 100 cores are only a part.
    is_exclusive = request.cores >= WHOLE_CORES and device.cores == WHOLE_CORES
    return DeviceDemand(Holding(1, memory_mib, request.cores), is_exclusive)


def _gives_whole(vendor: Vendor) -> bool:
    """Return whether an exclusive request gets all memory and cores of the device."""
    return vendor.is_whole or bool(vendor.slices) or vendor.amounts_are_totals


def _lowest_bit(mask: int) -> int:
    return mask & -mask


def instance(
    device: NodeDevice,
    memory_mib: int,
    taken: Sequence[MigPlacement],
    preferred: Sequence[str],
) -> Instance | None:
    """Return a free MIG instance of `device`, or None."""
    return mig.choose(device, memory_mib, taken, preferred)
