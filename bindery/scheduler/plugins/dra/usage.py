"""What is taken of devices: wholly, in shares, and of the counters that partitions share.

`Usage` is a ledger in which every entry can be taken back exactly; `UsageView` adds and subtracts
several, so that one device can be looked at as it is now and as it will be. Used by the allocator
(to read) and by the scheduler's ledger (to write).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bindery.api.quantity import nano
from bindery.kube.claims import Allocation, DeviceResult


class PoolId(NamedTuple):
    """A pool of a driver."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(NamedTuple):
    """A device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"

    @property
    def pool_id(self) -> PoolId:
        """The pool that it is in."""
        return PoolId(self.driver, self.pool)


@dataclass(frozen=True, slots=True)
class Take:
    """What one result of an allocation takes of its device."""

    device: DeviceId
    capacity: Mapping[str, int] | None
    """Capacity name -> billionths, for a share; None: the whole device."""


def takes(allocation: Allocation) -> tuple[Take, ...]:
    """Return what `allocation` takes. With admin access nothing is taken (KEP-5018).

    Raises:
        QuantityError: a consumed capacity is no quantity.
    """
    return tuple(_take(result) for result in allocation.devices.results if not result.admin_access)


def _take(result: DeviceResult) -> Take:
    device = DeviceId(result.driver, result.pool, result.device)
    if result.share_id is None:
        return Take(device, None)
    return Take(device, {name: nano(text) for name, text in result.consumed_capacity.items()})


@dataclass
class Usage:
    """Takes, added up. O(1) a take."""

    whole: Counter[DeviceId] = field(default_factory=Counter)
    """Device -> how many have it wholly; more than one only if somebody else has erred."""
    shares: Counter[DeviceId] = field(default_factory=Counter)
    """Device -> how many have a share of it."""
    capacity: defaultdict[DeviceId, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    """Device -> capacity name -> billionths that shares have taken."""
    touched: list[PoolId] = field(default_factory=list)
    """Pools in the order in which they were changed; only ever appended to."""

    def enter(self, entries: Iterable[Take], sign: int) -> None:
        """Add (`sign` 1) `entries`, or take them back (-1)."""
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
    """The sum of `plus`, less the sum of `minus`."""

    plus: Sequence[Usage]
    minus: Sequence[Usage] = ()

    def is_whole(self, device: DeviceId) -> bool:
        """Return whether somebody has `device` wholly."""
        taken = sum(usage.whole[device] for usage in self.plus)
        return taken > sum(usage.whole[device] for usage in self.minus)

    def is_shared(self, device: DeviceId) -> bool:
        """Return whether somebody has a share of `device`."""
        taken = sum(usage.shares[device] for usage in self.plus)
        return taken > sum(usage.shares[device] for usage in self.minus)

    def is_taken(self, device: DeviceId) -> bool:
        """Return whether anybody has anything of `device`."""
        return self.is_whole(device) or self.is_shared(device)

    def consumed(self, device: DeviceId, name: str) -> int:
        """Return how many billionths of capacity `name` are taken of `device`."""
        taken = sum(usage.capacity[device][name] for usage in self.plus if device in usage.capacity)
        return taken - sum(
            usage.capacity[device][name] for usage in self.minus if device in usage.capacity
        )
