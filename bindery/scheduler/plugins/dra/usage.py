"""The usage of devices: whole devices, shares and their capacity.

`Usage` is an account with entries that can be undone exactly. `UsageView` adds and subtracts
several of them, for the usage now and the usage after all releases. The allocator reads it, the
ledger and the claim cache write it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bindery.api.quantity import nano
from bindery.kube.objects.claims import AllocationResult, DeviceResult


class PoolId(NamedTuple):
    """A pool of a driver."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(NamedTuple):
    """A device, by driver, pool and name."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"

    @property
    def pool_id(self) -> PoolId:
        """The pool of the device."""
        return PoolId(self.driver, self.pool)


@dataclass(frozen=True, slots=True)
class Take:
    """The part of a device taken by one result of an allocation."""

    device: DeviceId
    capacity: Mapping[str, int] | None
    """Capacity name -> billionths, for a share; None for the whole device."""


def takes(allocation: AllocationResult) -> tuple[Take, ...]:
    """Return the takes of `allocation`. Admin access takes nothing (KEP-5018).

    Raises:
        QuantityError: a consumed capacity is not a quantity.
    """
    return tuple(_take(result) for result in allocation.devices.results if not result.admin_access)


def _take(result: DeviceResult) -> Take:
    device = DeviceId(result.driver, result.pool, result.device)
    if result.share_id is None:
        return Take(device, None)
    return Take(device, {name: nano(text) for name, text in result.consumed_capacity.items()})


@dataclass
class Usage:
    """Sums of takes. Each take costs O(1)."""

    whole: Counter[DeviceId] = field(default_factory=Counter)
    """Device -> takes of the whole device; more than one only by an error of another scheduler."""
    shares: Counter[DeviceId] = field(default_factory=Counter)
    """Device -> number of shares."""
    capacity: defaultdict[DeviceId, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    """Device -> capacity name -> billionths taken by shares."""
    touched: list[PoolId] = field(default_factory=list)
    """Changed pools, in the order of the changes; only appended to."""

    def enter(self, entries: Iterable[Take], sign: int) -> None:
        """Add `entries` (`sign` 1) or undo them (-1)."""
        for entry in entries:
            device = entry.device
            if entry.capacity is None:
                self.whole[device] += sign
            else:
                self.shares[device] += sign
                for name, amount in entry.capacity.items():
                    self.capacity[device][name] += sign * amount
            self.touched.append(device.pool_id)


@dataclass(frozen=True, slots=True)
class UsageView:
    """The sum of `plus` minus the sum of `minus`."""

    plus: Sequence[Usage]
    minus: Sequence[Usage] = ()

    def is_whole(self, device: DeviceId) -> bool:
        """Return whether the whole of `device` is taken."""
        taken = sum(usage.whole[device] for usage in self.plus)
        return taken > sum(usage.whole[device] for usage in self.minus)

    def is_shared(self, device: DeviceId) -> bool:
        """Return whether a share of `device` is taken."""
        taken = sum(usage.shares[device] for usage in self.plus)
        return taken > sum(usage.shares[device] for usage in self.minus)

    def is_taken(self, device: DeviceId) -> bool:
        """Return whether `device` is taken, whole or in part."""
        return self.is_whole(device) or self.is_shared(device)

    def consumed(self, device: DeviceId, name: str) -> int:
        """Return the taken amount of the capacity `name` of `device`, in billionths."""
        taken = sum(usage.capacity[device][name] for usage in self.plus if device in usage.capacity)
        return taken - sum(
            usage.capacity[device][name] for usage in self.minus if device in usage.capacity
        )
