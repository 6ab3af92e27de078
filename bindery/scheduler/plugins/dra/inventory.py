"""Which devices there are, by pool, and which of them a node can use.

Kept by the scheduler plugin from ResourceSlices; read by the allocator. Slices of an older
generation than the newest of their pool are ignored; a pool of which slices are missing is
incomplete, and nothing is allocated from it. Sources: KEP-4381, KEP-4815 and pools_incubating.go of
the structured allocator in k8s.io/dynamic-resource-allocation 0.36.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bindery.api.quantity import QuantityError, nano
from bindery.kube.devices import CounterConsumption, Device, ResourceSlice, ResourceSliceSpec
from bindery.kube.podspec import NodeSelector
from bindery.scheduler.plugins.dra.cel import DeviceView, SelectorError, view
from bindery.scheduler.plugins.dra.usage import DeviceId, PoolId

CounterId = tuple[str, str]
"""Counter set and counter, within a pool."""


@dataclass(slots=True, eq=False)
class DeviceRecord:
    """A device and what is derived from it once."""

    id: DeviceId
    device: Device
    slice: ResourceSliceSpec
    counters: dict[CounterId, int]
    """What it takes of its pool's counters, in billionths, as long as anybody has it."""
    _view: DeviceView | SelectorError | None = None

    @property
    def node_name(self) -> str:
        """The only node that can use it; "" if it is not held to one by name."""
        held = self.slice.per_device_node_selection
        return self.device.node_name if held else self.slice.node_name

    @property
    def node_selector(self) -> NodeSelector | None:
        """The nodes that can use it, if they are selected."""
        held = self.slice.per_device_node_selection
        return self.device.node_selector if held else self.slice.node_selector

    @property
    def is_everywhere(self) -> bool:
        """Whether every node can use it."""
        held = self.slice.per_device_node_selection
        return self.device.all_nodes if held else self.slice.all_nodes

    def view(self) -> DeviceView:
        """Return how selectors see it.

        Raises:
            SelectorError: it cannot be read.
        """
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
    """All devices of a pool, whichever nodes can use them."""

    id: PoolId
    devices: list[DeviceRecord]
    """Sorted by the names of their slices, and as they stand in them."""
    counters: dict[CounterId, int]
    """What there is of each shared counter, in billionths."""
    problem: str = ""
    """Why nothing can be allocated from it: it is incomplete, or contradicts itself."""

    @property
    def binds_later(self) -> bool:
        """Whether a device of it has binding conditions: such pools are tried last (KEP-5007)."""
        return any(record.device.binding_conditions for record in self.devices)


@dataclass(frozen=True, slots=True)
class NodePool:
    """What one node can use of a pool."""

    pool: Pool
    devices: tuple[DeviceRecord, ...]


@dataclass
class Inventory:
    """All pools, kept in step with slices. `version` grows with every change."""

    version: int = 0
    _slices: defaultdict[PoolId, dict[str, ResourceSlice]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Pool -> slice name -> slice."""
    _pools: dict[PoolId, Pool] = field(default_factory=dict)
    _of_slice: dict[str, PoolId] = field(default_factory=dict)
    _local: defaultdict[str, set[PoolId]] = field(default_factory=lambda: defaultdict(set))
    """Node name -> pools of which devices are held to it by name."""
    _wide: set[PoolId] = field(default_factory=set)
    """Pools of which devices can be used from several nodes."""

    def put(self, item: ResourceSlice) -> None:
        """Take in a slice that is new or has changed."""
        name, pool = item.metadata.name, PoolId(item.spec.driver, item.spec.pool.name)
        former = self._of_slice.get(name)
        if former is not None and former != pool:
            self.remove(name)
        self._of_slice[name] = pool
        self._slices[pool][name] = item
        self._rebuild(pool)

    def remove(self, name: str) -> None:
        """Forget the slice `name`, if it is known."""
        pool = self._of_slice.pop(name, None)
        if pool is not None:
            del self._slices[pool][name]
            self._rebuild(pool)

    def pool(self, pool: PoolId) -> Pool | None:
        """Return the pool `pool`, if there is one."""
        return self._pools.get(pool)

    def for_node(
        self, node_name: str, satisfies: Callable[[NodeSelector], bool]
    ) -> tuple[NodePool, ...]:
        """Return what the node can use, in the order in which it is tried.

        `satisfies`: whether the node is one of those that a selector selects. A pool with a problem
        is among them, with the devices that the node could use.
        """
        pools = (self._pools[i] for i in self._local.get(node_name, set()) | self._wide)
        found = []
        for pool in pools:
            usable = tuple(r for r in pool.devices if _is_usable(r, node_name, satisfies))
            if usable:
                found.append(NodePool(pool, usable))
        return tuple(sorted(found, key=lambda each: (each.pool.binds_later, each.pool.id)))

    def nodes_of(self, pool: PoolId) -> frozenset[str] | None:
        """Return the names of all nodes that can use devices of `pool`; None: any could."""
        if pool in self._wide:
            return None
        known = self._pools.get(pool)
        return frozenset(record.node_name for record in known.devices) if known else frozenset()

    def _rebuild(self, pool: PoolId) -> None:
        self.version += 1
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
        for item in current:
            counters |= dict(_shared(item.spec, counters))
        for item in current:
            records += [_record(item.spec, pool, device) for device in item.spec.devices]
        _check(records, counters)
    except ValueError as error:  # QuantityError is one
        problem = problem or f"resource pool {pool} is currently invalid: {error}"
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
    sets = {name for name, _ in known}
    for each in spec.shared_counters:
        if each.name in sets:
            raise ValueError(f"duplicate counter set name {each.name}")
        sets.add(each.name)
        for name, counter in each.counters.items():
            yield (each.name, name), nano(counter.value)


def _check(records: list[DeviceRecord], counters: dict[CounterId, int]) -> None:
    """Raise ValueError if devices share a name, or count on counters that are not there."""
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
