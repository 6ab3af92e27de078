"""The limits of namespaces for HAMi's devices: keys `limits.RESOURCE` of ResourceQuotas.

HAMi reads them for memory and cores (v2.10.0, pkg/device/quota.go); the API server does not enforce
them. The plugin has `Limits`, the ledger has a `Budget` for each session. A pod counts as long as
it holds its devices.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bindery.api import quantity
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.poddevices import NOTHING
from bindery.api.hami.requests import DeviceRequest, PodRequest
from bindery.kube.objects.quotas import ResourceQuota
from bindery.kube.watches.store import Key, key_of
from bindery.scheduler.plugins.hami import checks
from bindery.scheduler.plugins.hami.amounts import UNITS, Amounts, amounts
from bindery.scheduler.plugins.hami.fleet import HamiNode

_PREFIX: Final = "limits."

NOT_FIT: Final = "ResourceQuotaNotFit"
"""HAMi's word."""


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit that would be exceeded."""

    namespace: str
    resource: str
    limit: int
    held: int
    requested: int

    def __str__(self) -> str:
        unit = UNITS[self.resource]
        return (
            f"namespace {self.namespace} may hold {self.limit // unit} {self.resource} by its"
            f" ResourceQuota, holds {self.held // unit}, and {self.requested // unit} more are"
            " requested"
        )


@dataclass
class Limits:
    """The limits of all namespaces."""

    _quotas: dict[str, dict[Key, dict[str, int]]] = field(default_factory=dict)

    def put(self, quota: ResourceQuota) -> None:
        """Add or replace a quota."""
        self.drop(quota)  # the new version may have no limits for devices
        limits = {}
        for name, text in (quota.spec.hard or {}).items():
            resource = name.removeprefix(_PREFIX)
            if name.startswith(_PREFIX) and resource in UNITS:
                try:
                    amount = quantity.parse(text, resource) // quantity.scale(resource)
                except quantity.QuantityError:  # the API server accepts only valid quantities
                    continue
                limits[resource] = amount * UNITS[resource]
        if limits:
            self._quotas.setdefault(quota.metadata.namespace, {})[key_of(quota.metadata)] = limits

    def drop(self, quota: ResourceQuota) -> None:
        """Remove a quota."""
        namespace = quota.metadata.namespace
        found = self._quotas.get(namespace, {})
        found.pop(key_of(quota.metadata), None)
        if not found:
            self._quotas.pop(namespace, None)

    def of(self, namespace: str) -> Amounts:
        """Return the limits of `namespace`; the lowest limit of several quotas counts."""
        lowest: dict[str, int] = {}
        for limits in self._quotas.get(namespace, {}).values():
            for resource, limit in limits.items():
                lowest[resource] = min(limit, lowest.get(resource, limit))
        return lowest

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces with limits."""
        return frozenset(self._quotas)


@dataclass
class Budget:
    """The amounts of namespaces in a session's plan, now and later as in `usage`."""

    limits: Limits
    _now: Counter[tuple[str, str]] = field(default_factory=Counter)
    _later: Counter[tuple[str, str]] = field(default_factory=Counter)

    def excess(self, namespace: str, requested: Amounts, *, later: bool) -> Excess | None:
        """Return a limit exceeded by `requested`, now or after all releases; None without any."""
        for resource, limit in sorted(self.limits.of(namespace).items()):
            amount = requested.get(resource, 0)
            # A placement now must leave room for promises, which only `_later` has.
            views = (self._later,) if later else (self._now, self._later)
            held = max(view[namespace, resource] for view in views)
            if amount and held + amount > limit:
                return Excess(namespace, resource, limit, held, amount)
        return None

    def held(self, namespace: str, resource: str) -> tuple[int, int]:
        """Return the amounts of `resource` now and later; 0 for a namespace without limits."""
        return self._now[namespace, resource], self._later[namespace, resource]

    def hold(self, namespace: str, held: Amounts, sign: int = 1) -> None:
        """Add a pod that stays; `sign` -1 undoes it."""
        self._add(self._now, namespace, held, sign)
        self._add(self._later, namespace, held, sign)

    def promise(self, namespace: str, held: Amounts, sign: int = 1) -> None:
        """Add a pod with a promise, or keep a releasing one; `sign` -1 undoes it."""
        self._add(self._later, namespace, held, sign)

    def _add(
        self, view: Counter[tuple[str, str]], namespace: str, held: Amounts, sign: int
    ) -> None:
        for resource, amount in held.items():
            view[namespace, resource] += sign * amount


def least(request: PodRequest, nodes: Iterable[HamiNode]) -> dict[str, int]:
    """Return the least possible amounts of a pod with `request`, on any devices."""
    kinds = _kinds(nodes)
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for index, slot in enumerate(request.slots):
        requested: Counter[str] = Counter()
        for each in slot:
            requested.update(_least_of(each, kinds.get(each.vendor.word, ())))
        # Passing init containers run one after the other, so their maximum counts.
        if index in request.passing:
            most |= requested
        else:
            running += requested
    return dict(most | running)


def _least_of(request: DeviceRequest, devices: Sequence[NodeDevice]) -> dict[str, int]:
    count = 1 if request.vendor.count_is_shares else request.count
    each = [
        amounts(request.vendor, [checks.demand(device, request, NOTHING).holding])
        for device in devices
    ]
    # An amount that some device does not count may be zero.
    names = set.intersection(*(set(found) for found in each)) if each else set()
    return {name: count * min(found[name] for found in each) for name in names}


def _kinds(nodes: Iterable[HamiNode]) -> dict[str, list[NodeDevice]]:
    """Return the vendor's word -> one device of each size."""
    found: dict[str, dict[tuple[int, int, int], NodeDevice]] = {}
    for node in nodes:
        for word, devices in node.devices.items():
            for device in devices:
                size = (device.memory_mib, device.cores, device.count)
                found.setdefault(word, {}).setdefault(size, device)
    return {word: list(devices.values()) for word, devices in found.items()}
