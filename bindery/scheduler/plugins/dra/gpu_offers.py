"""The devices in ResourceSlices that queues count as GPUs, for the total that shares divide.

Used by the plugin. Of devices that use shared counters, such as a GPU and its partitions, as many
count as could be allocated at once.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from bindery.api.names import GPU_RESOURCE
from bindery.kube.objects.devices import DeviceClass
from bindery.scheduler.model.claimed_gpus import CountsClass
from bindery.scheduler.model.jobs import NO_ROW
from bindery.scheduler.model.views import NodesView
from bindery.scheduler.plugins.dra.cel import SelectorError
from bindery.scheduler.plugins.dra.claim_cache import ClaimCache
from bindery.scheduler.plugins.dra.inventory import DeviceRecord, Pool
from bindery.scheduler.plugins.dra.usage import PoolId


class GpuOffers:
    """Counts the devices of classes that count as GPUs; only changed pools are counted again."""

    def __init__(self, cache: ClaimCache) -> None:
        self._cache = cache
        self._pools: dict[PoolId, tuple[Pool, Mapping[str, int]]] = {}
        """Pool -> its state, and node name -> devices; "" for devices of several nodes."""
        self._classes: Sequence[DeviceClass] = ()
        self._version: tuple[int, int] = (-1, -1)
        self._by_row: Mapping[int, int] = {}

    def by_row(self, nodes: NodesView, counts_class: CountsClass) -> Mapping[int, int]:
        """Return node row -> number of devices; `NO_ROW` for devices of several nodes."""
        version = (self._cache.version, nodes.version)
        if version != self._version:
            self._count(counts_class)
            found: Counter[int] = Counter()
            for _, devices in self._pools.values():
                for name, count in devices.items():
                    row = nodes.rows.get(name, NO_ROW) if name else NO_ROW
                    if row != NO_ROW or not name:
                        found[row] += count
            self._by_row, self._version = found, version
        return self._by_row

    def _count(self, counts_class: CountsClass) -> None:
        # Pods that request GPUs by name get the devices of a class that serves `nvidia.com/gpu`.
        serving = self._cache.served().get(GPU_RESOURCE)
        classes = [
            item
            for name, item in self._cache.classes.items()
            if counts_class(name) or name == serving
        ]
        if classes != self._classes:
            self._pools, self._classes = {}, classes
        known, self._pools = self._pools, {}
        for pool in self._cache.inventory.pools() if classes else ():
            former = known.get(pool.id)
            if former is None or former[0] is not pool:
                former = (pool, self._devices(pool))
            self._pools[pool.id] = former

    def _devices(self, pool: Pool) -> Mapping[str, int]:
        """Return the number of counted devices of `pool` by node name."""
        if pool.problem:  # nothing is allocated from it
            return {}
        by_node: defaultdict[str, list[DeviceRecord]] = defaultdict(list)
        for record in pool.devices:
            if any(self._is_of(each, record) for each in self._classes):
                by_node[record.node_name].append(record)
        return {name: _at_once(pool, records) for name, records in by_node.items()}

    def _is_of(self, device_class: DeviceClass, record: DeviceRecord) -> bool:
        try:
            return all(
                self._cache.selectors.matches(selector.cel.expression, record.view())
                for selector in device_class.spec.selectors
                if selector.cel is not None
            )
        except SelectorError:  # no claim gets the device by this class
            return False


def _at_once(pool: Pool, records: Sequence[DeviceRecord]) -> int:
    """Return how many of `records` can be allocated together, counted in the order of their use."""
    left, count = dict(pool.counters), 0
    for record in sorted(records, key=lambda each: sum(each.counters.values())):
        if all(left[name] >= amount for name, amount in record.counters.items()):
            for name, amount in record.counters.items():
                left[name] -= amount
            count += 1
    return count
