"""The requests of a pod's containers in HAMi's terms: one for each container and vendor.

Used by the scheduler for each new shape of pods, and by the binder and tests to find the locks that
a pod needs. Limits have priority over requests, as in HAMi. The defaults of HAMi's webhook are
applied here too, so that a pod not seen by the webhook has the same meaning.
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
    """The request of one container for one vendor's devices."""

    vendor: Vendor
    count: int
    """Number of devices; with `count_is_shares`, of shares of one device."""
    memory_mib: int = 0
    """Memory of each device; 0: use `memory_percent`."""
    memory_percent: int = _ALL_MEMORY
    cores: int = 0
    """Cores of each device, 100 for a whole one, or in the vendor's own unit."""
    is_exclusive: bool = False
    """Whether only this pod may use each device."""
    named_count: int = 0
    """The count in the container's resources, which its device plugin serves; 0: `count`."""


ContainerRequests = tuple[DeviceRequest, ...]
"""The requests of one container, at most one for each vendor."""


class ResourceAmounts(Protocol):
    """The fields of a container's resources that are read."""

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
    """The requests of all containers of a pod."""

    slots: tuple[ContainerRequests, ...]
    """Init containers first."""
    passing: frozenset[int]
    """The slots of init containers, without sidecars, that end before the others begin."""
    names_shares: bool
    """Whether a resource is requested that only HAMi's devices have, such as gpumem."""

    @property
    def rounded(self) -> DeviceRequest | None:
        """A request that was rounded up to a module of devices, if any."""
        every = (request for slot in self.slots for request in slot)
        return next((r for r in every if r.named_count not in (0, r.count)), None)

    @property
    def vendors(self) -> tuple[Vendor, ...]:
        """The requested vendors, in the table's order."""
        words = {request.vendor.word for slot in self.slots for request in slot}
        return tuple(vendor for vendor in VENDORS if vendor.word in words)

    def counts(self, vendor: Vendor) -> list[int]:
        """Return the number of devices of `vendor` that each slot gets."""
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
"""All resources with which a container's request concerns a vendor."""


def read_pod(
    init_containers: Sequence[tuple[ResourceAmounts | None, bool]],
    containers: Sequence[ResourceAmounts | None],
) -> PodRequest | None:
    """Return the request of a pod; None if the pod requests no device of any vendor.

    Args:
        init_containers: the resources of each container, and whether it is a sidecar.
        containers: the resources of each container.

    Raises:
        HamiFormatError: an amount is invalid, or cannot be given by the vendor's devices.
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
    """Return the changed counts of `amounts`, rounded up to modules as by HAMi's webhook."""
    return {
        vendor.count_resource: str(vendor.module)
        for vendor in VENDORS
        if vendor.module > 1 and amounts.get(vendor.count_resource) == "1"
    }


def read_container(amounts: Mapping[str, str]) -> ContainerRequests:
    """Return the requests, by vendor, of a container with `amounts` (resource -> quantity).

    Raises:
        HamiFormatError: an amount is invalid, or cannot be given by the vendor's devices.
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
    """Return a request for several devices of a vendor whose devices are then whole."""
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
        # As in HAMi's webhook: a container that shares no memory shares no cores.
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
    """Return the smallest slice that is large enough; None for a whole device."""
    if not memory_mib:
        return None
    return next((size for size in vendor.slices if size.memory_mib >= memory_mib), None)


def _by_cores(vendor: Vendor, amounts: Mapping[str, str]) -> DeviceRequest | None:
    """Return a request by cores alone: for a half of one device, or for whole devices."""
    cores = _units(vendor.cores_resource, amounts) or 0
    if not cores:
        return None
    if cores == 1:
        return DeviceRequest(vendor, 1, memory_percent=0, cores=1)
    if cores % 2:
        raise HamiFormatError(f"{cores} of {vendor.cores_resource}: it must be 1 or even")
    return DeviceRequest(vendor, cores // 2, memory_percent=0, cores=WHOLE_CORES, is_exclusive=True)


def _units(resource: str, amounts: Mapping[str, str]) -> int | None:
    """Return the requested amount of `resource`; None if it is not requested."""
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
