"""What a pod's containers ask for, in HAMi's terms: one request a container and vendor.

Read by the scheduler when it meets a pod of a new shape; by the binder and by tests to know which
locks a pod needs. Limits count before requests, as with HAMi. Defaults that HAMi's webhook writes
into pods are applied here, so that a pod which it has not seen means the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from bindery.api import quantity
from bindery.api.hami.errors import INT32_MAX, HamiFormatError
from bindery.api.hami.vendor import Slice, Vendor
from bindery.api.hami.vendortable import VENDORS

WHOLE_CORES: Final = 100
_ALL_MEMORY: Final = 100


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What one container asks of one vendor's devices."""

    vendor: Vendor
    count: int
    """Devices; with `count_is_shares`, shares of one device."""
    memory_mib: int = 0
    """Of each device; 0: `memory_percent` counts."""
    memory_percent: int = _ALL_MEMORY
    cores: int = 0
    """Of each device, 100 for a whole one, or the vendor's own unit."""
    is_exclusive: bool = False
    """Whether each device must be used by this pod alone."""
    named_count: int = 0
    """The count that the container names, which its device plugin serves; 0: `count`."""


ContainerRequests = tuple[DeviceRequest, ...]
"""The requests of one container, at most one a vendor."""


class ResourceAmounts(Protocol):
    """The part of a container's resources that is read."""

    @property
    def requests(self) -> dict[str, str] | None:
        """Resource -> quantity."""
        ...

    @property
    def limits(self) -> dict[str, str] | None:
        """Resource -> quantity."""
        ...


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What all containers of a pod ask for."""

    slots: tuple[ContainerRequests, ...]
    """Init containers first."""
    passing: frozenset[int]
    """The slots of init containers that end before the others begin: not those of sidecars."""
    names_shares: bool
    """Whether a resource is named that only HAMi's devices know: gpumem and the like."""

    @property
    def rounded(self) -> DeviceRequest | None:
        """A request that was rounded up to a module of devices, if there is one."""
        every = (request for slot in self.slots for request in slot)
        return next((r for r in every if r.named_count not in (0, r.count)), None)

    @property
    def vendors(self) -> tuple[Vendor, ...]:
        """The vendors that are asked for, in the table's order."""
        words = {request.vendor.word for slot in self.slots for request in slot}
        return tuple(vendor for vendor in VENDORS if vendor.word in words)

    def counts(self, vendor: Vendor) -> list[int]:
        """Return how many devices of `vendor` each slot has when it is served."""
        return [
            sum(
                1 if request.vendor.count_is_shares else request.named_count or request.count
                for request in slot
                if request.vendor is vendor
            )
            for slot in self.slots
        ]


_NAMES_OF_ALL: Final = frozenset(
    name for vendor in VENDORS for name in (vendor.count_resource, *vendor.managed_resources)
)
"""All resources of which one makes a container's request concern a vendor."""


def read_pod(
    init_containers: Sequence[tuple[ResourceAmounts | None, bool]],
    containers: Sequence[ResourceAmounts | None],
) -> PodRequest | None:
    """Return what a pod asks for; None if it asks for no device of any vendor.

    Args:
        init_containers: the resources of each, and whether it is a sidecar.
        containers: the resources of each.

    Raises:
        HamiFormatError: an amount is none, or one that the vendor's devices cannot give.
    """
    all_resources = [resources for resources, _ in init_containers] + list(containers)
    merged = [_merged(resources) for resources in all_resources]
    slots = tuple(read_container(amounts) for amounts in merged)
    if not any(slots):
        return None
    managed = {name for slot in slots for r in slot for name in r.vendor.managed_resources}
    return PodRequest(
        slots=slots,
        passing=frozenset(i for i, (_, sidecar) in enumerate(init_containers) if not sidecar),
        names_shares=any(name in managed for amounts in merged for name in amounts),
    )


def in_modules(amounts: Mapping[str, str]) -> dict[str, str]:
    """Return the counts of `amounts` that must be others: single devices of which only modules of
    several are given. HAMi's webhook writes the same.
    """
    return {
        vendor.count_resource: str(vendor.module)
        for vendor in VENDORS
        if vendor.module > 1 and amounts.get(vendor.count_resource) == "1"
    }


def read_container(amounts: Mapping[str, str]) -> ContainerRequests:
    """Return the devices, by vendor, for a container with `amounts` (resource -> quantity).

    Raises:
        HamiFormatError: an amount is none, or one that the vendor's devices cannot give.
    """
    if _NAMES_OF_ALL.isdisjoint(amounts):  # most pods of most clusters; each is read when bound
        return ()
    found = (_read(vendor, amounts) for vendor in VENDORS if _names(vendor, amounts))
    return tuple(request for request in found if request is not None)


def _merged(resources: ResourceAmounts | None) -> dict[str, str]:
    if resources is None:
        return {}
    return {**(resources.requests or {}), **(resources.limits or {})}


def _names(vendor: Vendor, amounts: Mapping[str, str]) -> bool:
    return vendor.count_resource in amounts or any(
        name in amounts for name in vendor.managed_resources
    )


def _read(vendor: Vendor, amounts: Mapping[str, str]) -> DeviceRequest | None:
    if vendor.count_resource not in amounts:
        if vendor.cores_are_bits:
            return _by_cores(vendor, amounts)
        named = next(name for name in vendor.managed_resources if name in amounts)
        raise HamiFormatError(f"it asks for {named} without {vendor.count_resource}")
    count = _units(vendor.count_resource, amounts)
    if not count:
        return None
    if vendor.legal_counts and count not in vendor.legal_counts:
        legal = ", ".join(map(str, vendor.legal_counts))
        raise HamiFormatError(f"{count} of {vendor.count_resource}: it must be one of {legal}")
    if vendor.is_whole:
        return DeviceRequest(vendor, count, cores=WHOLE_CORES, is_exclusive=True)
    if vendor.count_is_shares:
        return DeviceRequest(vendor, count, memory_percent=0)
    if count > 1 and vendor.many_are_whole:
        return _many(vendor, count, amounts)
    request = _shared(vendor, max(count, vendor.module), amounts)
    return replace(request, named_count=count)


def _many(vendor: Vendor, count: int, amounts: Mapping[str, str]) -> DeviceRequest:
    """Return a request for several devices of a vendor that gives only whole ones then."""
    if vendor.slices and _units(vendor.memory_resource, amounts) is not None:
        raise HamiFormatError(f"a part of the memory of {count} {vendor.count_resource}")
    return DeviceRequest(vendor, count, cores=WHOLE_CORES, is_exclusive=True)


def _shared(vendor: Vendor, count: int, amounts: Mapping[str, str]) -> DeviceRequest:
    units = _units(vendor.memory_resource, amounts)
    percent = _units(vendor.percentage_resource, amounts)
    cores = _units(vendor.cores_resource, amounts)
    if percent is not None and percent > _ALL_MEMORY:
        raise HamiFormatError(f"{percent} of {vendor.percentage_resource}: above 100")
    if units and vendor.legal_units and units not in vendor.legal_units:
        legal = ", ".join(map(str, vendor.legal_units))
        raise HamiFormatError(f"{units} of {vendor.memory_resource}: it must be one of {legal}")
    memory_mib = (units or 0) * vendor.memory_unit_mib
    if memory_mib > INT32_MAX:
        raise HamiFormatError(f"{units} of {vendor.memory_resource} is out of range")
    if vendor.slices:
        size = _rounded(vendor, memory_mib)
        if size is None:
            return DeviceRequest(vendor, count, cores=WHOLE_CORES, is_exclusive=True)
        return DeviceRequest(vendor, count, size.memory_mib, cores=size.cores)
    takes_all = not memory_mib and percent in (None, 0, _ALL_MEMORY)
    if cores is None:
        # As the webhook has it: who shares nothing of the memory shares no cores either.
        cores = WHOLE_CORES if takes_all else vendor.default_cores
    elif vendor.amounts_are_totals:
        cores //= count
    cores = min(cores, WHOLE_CORES)
    return DeviceRequest(
        vendor,
        count,
        memory_mib,
        memory_percent=percent or _ALL_MEMORY,
        cores=cores,
        is_exclusive=cores == WHOLE_CORES,
    )


def _rounded(vendor: Vendor, memory_mib: int) -> Slice | None:
    """Return the smallest slice that is large enough; None: a whole device."""
    if not memory_mib:
        return None
    return next((size for size in vendor.slices if size.memory_mib >= memory_mib), None)


def _by_cores(vendor: Vendor, amounts: Mapping[str, str]) -> DeviceRequest | None:
    """Return a request of a vendor whose cores can be asked for alone: one, or whole devices."""
    cores = _units(vendor.cores_resource, amounts) or 0
    if not cores:
        return None
    if cores == 1:
        return DeviceRequest(vendor, 1, memory_percent=0, cores=1)
    if cores % 2:
        raise HamiFormatError(f"{cores} of {vendor.cores_resource}: it must be 1 or even")
    return DeviceRequest(vendor, cores // 2, memory_percent=0, cores=WHOLE_CORES, is_exclusive=True)


def _units(resource: str, amounts: Mapping[str, str]) -> int | None:
    """Return how much of `resource` is asked for; None if it is not named."""
    text = amounts.get(resource) if resource else None
    if text is None:
        return None
    try:
        amount, rest = divmod(quantity.parse(text, resource), quantity.scale(resource))
    except quantity.QuantityError as error:
        raise HamiFormatError(f"{resource}: {error}") from error
    if rest or not 0 <= amount <= INT32_MAX:
        raise HamiFormatError(f"{text} of {resource}: it must be a plain number (of MiB, per cent)")
    return amount
