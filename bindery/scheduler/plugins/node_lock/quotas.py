"""What namespaces may have of HAMi's devices: keys `limits.RESOURCE` of ResourceQuotas.

HAMi reads them for memory and cores (v2.10.0, pkg/device/quota.go); the API server stores them and
does nothing. The plugin keeps `Limits`, the ledger a `Budget` a session. A pod counts for as long
as it holds its devices.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bindery.api import quantity
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.poddevices import NOTHING
from bindery.api.hami.requests import DeviceRequest, PodRequest
from bindery.kube.quotas import ResourceQuota
from bindery.kube.store import Key, key_of
from bindery.scheduler.plugins.node_lock import checks
from bindery.scheduler.plugins.node_lock.amounts import UNITS, Amounts, amounts
from bindery.scheduler.plugins.node_lock.fleet import HamiNode

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
    asked: int

    def __str__(self) -> str:
        unit = UNITS[self.resource]
        return (
            f"namespace {self.namespace} may have {self.limit // unit} of {self.resource} by its"
            f" ResourceQuota, has {self.held // unit}, and this is {self.asked // unit} more"
        )


@dataclass
class Limits:
    """The limits of all namespaces."""

    _quotas: dict[str, dict[Key, dict[str, int]]] = field(default_factory=dict)

    def put(self, quota: ResourceQuota) -> None:
        """Take in a quota."""
        self.drop(quota)
        limits = {}
        for name, text in (quota.spec.hard or {}).items():
            resource = name.removeprefix(_PREFIX)
            if name.startswith(_PREFIX) and resource in UNITS:
                try:
                    amount = quantity.parse(text, resource) // quantity.scale(resource)
                except quantity.QuantityError:  # the API server takes none that cannot be read
                    continue
                limits[resource] = amount * UNITS[resource]
        if limits:
            self._quotas.setdefault(quota.metadata.namespace, {})[key_of(quota.metadata)] = limits

    def drop(self, quota: ResourceQuota) -> None:
        """Forget a quota."""
        namespace = quota.metadata.namespace
        found = self._quotas.get(namespace, {})
        found.pop(key_of(quota.metadata), None)
        if not found:
            self._quotas.pop(namespace, None)

    def of(self, namespace: str) -> Amounts:
        """Return the limits of `namespace`: of several quotas, the lowest counts."""
        lowest: dict[str, int] = {}
        for limits in self._quotas.get(namespace, {}).values():
            for resource, limit in limits.items():
                lowest[resource] = min(limit, lowest.get(resource, limit))
        return lowest

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces that have limits."""
        return frozenset(self._quotas)


@dataclass
class Budget:
    """What namespaces hold in a session, as its plan stands; both views as in `usage`."""

    limits: Limits
    _now: Counter[tuple[str, str]] = field(default_factory=Counter)
    _later: Counter[tuple[str, str]] = field(default_factory=Counter)

    def excess(self, namespace: str, asked: Amounts, *, later: bool) -> Excess | None:
        """Return a limit that `asked` does not keep to, now or once all has gone that is going."""
        for resource, limit in sorted(self.limits.of(namespace).items()):
            amount = asked.get(resource, 0)
            views = (self._later,) if later else (self._now, self._later)
            held = max(view[namespace, resource] for view in views)
            if amount and held + amount > limit:
                return Excess(namespace, resource, limit, held, amount)
        return None

    def held(self, namespace: str, resource: str) -> tuple[int, int]:
        """Return how much a namespace has of `resource` now, and once all has gone that is going;
        0 for one without limits.
        """
        return self._now[namespace, resource], self._later[namespace, resource]

    def hold(self, namespace: str, held: Amounts, sign: int = 1) -> None:
        """Take in a pod that stays; `sign` -1: undo it."""
        self._add(self._now, namespace, held, sign)
        self._add(self._later, namespace, held, sign)

    def promise(self, namespace: str, held: Amounts, sign: int = 1) -> None:
        """Take in a pod that waits for room to come, or keep one that was leaving; -1: undo it."""
        self._add(self._later, namespace, held, sign)

    def _add(
        self, view: Counter[tuple[str, str]], namespace: str, held: Amounts, sign: int
    ) -> None:
        for resource, amount in held.items():
            view[namespace, resource] += sign * amount


def least(request: PodRequest, nodes: Iterable[HamiNode]) -> dict[str, int]:
    """Return the least that a pod with `request` counts for, on whatever devices it gets."""
    kinds = _kinds(nodes)
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for index, slot in enumerate(request.slots):
        asked: Counter[str] = Counter()
        for each in slot:
            asked.update(_least_of(each, kinds.get(each.vendor.word, ())))
        if index in request.passing:
            most |= asked
        else:
            running += asked
    return dict(most | running)


def _least_of(request: DeviceRequest, devices: Sequence[NodeDevice]) -> dict[str, int]:
    count = 1 if request.vendor.count_is_shares else request.count
    each = [
        amounts(request.vendor, [checks.demand(device, request, NOTHING).holding])
        for device in devices
    ]
    names = set.intersection(*(set(found) for found in each)) if each else set()
    return {name: count * min(found[name] for found in each) for name in names}


def _kinds(nodes: Iterable[HamiNode]) -> dict[str, list[NodeDevice]]:
    """Return one device of each size, by the vendor's word."""
    found: dict[str, dict[tuple[int, int, int], NodeDevice]] = {}
    for node in nodes:
        for word, devices in node.devices.items():
            for device in devices:
                size = (device.memory_mib, device.cores, device.count)
                found.setdefault(word, {}).setdefault(size, device)
    return {word: list(devices.values()) for word, devices in found.items()}
