"""The devices of all ResourceSlices, by pool and by node.

The claim cache writes it; candidates are made from it. Slices older than the newest generation of
their pool are ignored. A pool with missing slices is incomplete, and nothing is allocated from it.
Sources: KEP-4381, KEP-4815 and pools_incubating.go of the structured allocator in
k8s.io/dynamic-resource-allocation 0.36.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from bindery.api.quantity import QuantityError, nano
from bindery.kube.objects.devices import (
    CounterConsumption,
    Device,
    ResourceSlice,
    ResourceSliceSpec,
)
from bindery.kube.objects.podspec import NodeSelector
from bindery.scheduler.plugins.dra.cel import DeviceView, SelectorError, view
from bindery.scheduler.plugins.dra.usage import DeviceId, PoolId

CounterId = tuple[str, str]
"""Counter set and counter, within a pool."""


@dataclass(slots=True, eq=False)
class DeviceRecord:
    """A device, with its slice and its counters."""

    id: DeviceId
    device: Device
    slice: ResourceSliceSpec
    counters: dict[CounterId, int]
    """The use of the pool's counters by the device, in billionths."""
    _view: DeviceView | SelectorError | None = None

    @property
    def node_name(self) -> str:
        """The only node with access to the device; "" if no node is named."""
        held = self.slice.per_device_node_selection
        return self.device.node_name if held else self.slice.node_name

    @property
    def node_selector(self) -> NodeSelector | None:
        """The selector of the nodes with access to the device, if it has one."""
        held = self.slice.per_device_node_selection
        return self.device.node_selector if held else self.slice.node_selector

    @property
    def is_everywhere(self) -> bool:
        """Whether every node can use the device."""
        held = self.slice.per_device_node_selection
        return self.device.all_nodes if held else self.slice.all_nodes

    def view(self) -> DeviceView:
        """Return the device for selectors; raises SelectorError for invalid parts."""
        if self._view is None:
            try:
                self._view = view(self.id.driver, self.device)
            except SelectorError as error:
                self._view = error
        if isinstance(self._view, SelectorError):
            raise self._view
        return self._view


@dataclass(slots=True, eq=False)
class Pool:
    """All devices of a pool, for any node."""

    id: PoolId
    devices: list[DeviceRecord]
    """Sorted by the names of their slices, and in the order within a slice."""
    counters: dict[CounterId, int]
    """The amount of each shared counter, in billionths."""
    problem: str = ""
    """Why nothing can be allocated from the pool: it is incomplete or invalid."""

    @property
    def binds_later(self) -> bool:
        """Whether a device has binding conditions; such pools are tried last (KEP-5007)."""
        return any(record.device.binding_conditions for record in self.devices)


@dataclass(frozen=True, slots=True)
class NodePool:
    """The devices of a pool for one node."""

    pool: Pool
    devices: tuple[DeviceRecord, ...]


@dataclass
class Inventory:
    """All pools. `version` grows with every change of a slice."""

    version: int = 0
    _slices: defaultdict[PoolId, dict[str, ResourceSlice]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Pool -> slice name -> slice."""
    _pools: dict[PoolId, Pool] = field(default_factory=dict)
    _of_slice: dict[str, PoolId] = field(default_factory=dict)
    _local: defaultdict[str, set[PoolId]] = field(default_factory=lambda: defaultdict(set))
    """Node name -> pools with devices for this node only."""
    _wide: set[PoolId] = field(default_factory=set)
    """Pools with devices for several nodes."""

    def put(self, item: ResourceSlice) -> None:
        """Add or replace a slice."""
        name, pool = item.metadata.name, PoolId(item.spec.driver, item.spec.pool.name)
        # A slice can move to another pool.
        former = self._of_slice.get(name)
        if former is not None and former != pool:
            self.remove(name)
        self._of_slice[name] = pool
        self._slices[pool][name] = item
        self._rebuild(pool)

    def remove(self, name: str) -> None:
        """Remove the slice `name`, if it exists."""
        pool = self._of_slice.pop(name, None)
        if pool is not None:
            del self._slices[pool][name]
            self._rebuild(pool)

    def pools(self) -> Collection[Pool]:
        """Return all pools."""
        return self._pools.values()

    def for_node(
        self, node_name: str, satisfies: Callable[[NodeSelector], bool]
    ) -> tuple[NodePool, ...]:
        """Return the devices of the node by pool, in the order of the search.

        `satisfies` returns whether a selector selects the node. Pools with a problem are included.
        """
        pools = (self._pools[i] for i in self._local.get(node_name, set()) | self._wide)
        found = []
        for pool in pools:
            usable = tuple(r for r in pool.devices if _is_usable(r, node_name, satisfies))
            if usable:
                found.append(NodePool(pool, usable))
        # Sorted, because the sets above have no order and the same input must give the same plan.
        return tuple(sorted(found, key=lambda each: (each.pool.binds_later, each.pool.id)))

    def nodes_of(self, pool: PoolId) -> frozenset[str] | None:
        """Return the names of all nodes with access to devices of `pool`; None for any node."""
        if pool in self._wide:
            return None
        found = self._pools.get(pool)
        return frozenset(record.node_name for record in found.devices) if found else frozenset()

    def _rebuild(self, pool: PoolId) -> None:
        self.version += 1
        # The former devices of the pool may have been on other nodes.
        for names in self._local.values():
            names.discard(pool)
        self._wide.discard(pool)
        slices = self._slices.get(pool)
        if not slices:
            self._slices.pop(pool, None)
            self._pools.pop(pool, None)
            return
        built = self._pools[pool] = build(pool, list(slices.values()))
        for record in built.devices:
            if record.node_name:
                self._local[record.node_name].add(pool)
            else:
                self._wide.add(pool)


def build(pool: PoolId, slices: list[ResourceSlice]) -> Pool:
    """Return the pool of `slices`, all of one driver and pool name."""
    newest = max(item.spec.pool.generation for item in slices)
    current = sorted(
        (item for item in slices if item.spec.pool.generation == newest),
        key=lambda item: item.metadata.name,
    )
    records: list[DeviceRecord] = []
    counters: dict[CounterId, int] = {}
    problem = ""
    if len(current) != current[0].spec.pool.resource_slice_count:
        problem = f"resource pool {pool} is currently being updated"
    try:
        # All counters first: a device may use counters of another slice.
        for item in current:
            counters |= dict(_shared(item.spec, counters))
        for item in current:
            records += [_record(item.spec, pool, device) for device in item.spec.devices]
        _check(records, counters)
    except ValueError as error:  # QuantityError is one
        # An incomplete pool can look invalid, for example without the slice of its counters.
        problem = problem or f"resource pool {pool} is currently invalid: {error}"
        # The devices stay known, so that nodes with access to them get the pool's problem.
        records = records or [
            DeviceRecord(DeviceId(*pool, d.name), d, item.spec, {})
            for item in current
            for d in item.spec.devices
        ]
    return Pool(pool, records, counters, problem)


def _record(spec: ResourceSliceSpec, pool: PoolId, device: Device) -> DeviceRecord:
    counters: dict[CounterId, int] = {}
    for consumption in device.consumes_counters:
        for counter, amount in _amounts(consumption).items():
            counters[counter] = counters.get(counter, 0) + amount
    return DeviceRecord(DeviceId(*pool, device.name), device, spec, counters)


def _amounts(consumption: CounterConsumption) -> dict[CounterId, int]:
    return {
        (consumption.counter_set, name): nano(counter.value)
        for name, counter in consumption.counters.items()
    }


def _shared(
    spec: ResourceSliceSpec, known: dict[CounterId, int]
) -> Iterator[tuple[CounterId, int]]:
    # Names of counter sets are unique over all slices of a pool.
    sets = {name for name, _ in known}
    for each in spec.shared_counters:
        if each.name in sets:
            raise ValueError(f"duplicate counter set name {each.name}")
        sets.add(each.name)
        for name, counter in each.counters.items():
            yield (each.name, name), nano(counter.value)


def _check(records: list[DeviceRecord], counters: dict[CounterId, int]) -> None:
    """Check names, counters and capacities of a pool.

    Raises:
        ValueError: two devices have the same name, a counter does not exist, or a capacity is not a
            quantity.
    """
    names: set[str] = set()
    for record in records:
        if record.id.device in names:
            raise ValueError(f"duplicate device name {record.id.device}")
        names.add(record.id.device)
        for each in record.counters:
            if each not in counters:
                raise ValueError(f"counter {each[1]} of counter set {each[0]} not found")
        try:
            for capacity in record.device.capacity.values():
                nano(capacity.value)
        except QuantityError as error:
            raise ValueError(f"device {record.id.device}: {error}") from error


def _is_usable(
    record: DeviceRecord, node_name: str, satisfies: Callable[[NodeSelector], bool]
) -> bool:
    if record.node_name:
        return record.node_name == node_name
    if record.is_everywhere:
        return True
    return record.node_selector is not None and satisfies(record.node_selector)
