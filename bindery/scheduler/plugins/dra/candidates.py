"""The devices of one node that requests could have, whatever is in use at the moment.

Made by the scheduler's ledger once a node's devices have changed; asked by the allocator. Selectors
are evaluated here, once for each request and device; a selector that fails for a device fails when
the search comes to that device and not before, as in Kubernetes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bindery.scheduler.plugins.dra.capacity import consumption
from bindery.scheduler.plugins.dra.cel import SelectorError, Selectors
from bindery.scheduler.plugins.dra.claims import Wish
from bindery.scheduler.plugins.dra.inventory import DeviceRecord, NodePool, Pool
from bindery.scheduler.plugins.dra.taints import is_kept_away
from bindery.scheduler.plugins.dra.usage import DeviceId


class AllocationError(Exception):
    """Why a search could not be made on a node: a selector fails, say, or a pool is incomplete."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device that a request's selectors select; or the `error` in finding out."""

    record: DeviceRecord
    pool: Pool
    consumed: Mapping[str, int]
    """What a request takes of its capacities, in billionths."""
    is_tainted: bool = False
    """Whether a taint that is not tolerated keeps the request away."""
    error: str = ""


class Candidates:
    """The devices of one node that the requests of claims could have, whatever is in use.

    Kept by the caller for as long as the node's devices stay the same.
    """

    def __init__(self, pools: Sequence[NodePool], selectors: Selectors) -> None:
        self.pools = pools
        self._selectors = selectors
        self._found: dict[Wish, tuple[Candidate, ...]] = {}
        self._devices: dict[Wish, frozenset[DeviceId]] = {}

    def of(self, wish: Wish) -> tuple[Candidate, ...]:
        """Return the candidates for `wish`, in the order in which they are tried."""
        cached = self._found.get(wish)
        if cached is None:
            cached = self._found[wish] = tuple(self._find(wish))
        return cached

    def devices(self, wish: Wish) -> frozenset[DeviceId]:
        """Return the devices among the candidates for `wish`."""
        cached = self._devices.get(wish)
        if cached is None:
            cached = self._devices[wish] = frozenset(each.record.id for each in self.of(wish))
        return cached

    def all_of(self, wish: Wish) -> tuple[Candidate, ...]:
        """Return the devices that a request for all of them means.

        Raises:
            AllocationError: that cannot be said now.
        """
        for node_pool in self.pools:
            if node_pool.pool.problem:
                problem = node_pool.pool.problem
                raise AllocationError(f"request {wish.name} asks for all devices, but {problem}")
        return self.of(wish)

    def _find(self, wish: Wish) -> Iterator[Candidate]:
        for node_pool in self.pools:
            if node_pool.pool.problem:
                continue
            for record in node_pool.devices:
                try:
                    if not self._selects(wish, record):
                        continue
                except SelectorError as error:
                    yield Candidate(record, node_pool.pool, {}, error=str(error))
                    continue
                consumed = consumption(record.device.capacity, wish.capacity)
                if consumed is not None:
                    tainted = is_kept_away(record.device, wish.tolerations)
                    yield Candidate(record, node_pool.pool, consumed, tainted)

    def _selects(self, wish: Wish, record: DeviceRecord) -> bool:
        for rule in wish.rules:
            try:
                if not self._selectors.matches(rule.expression, record.view()):
                    return False
            except SelectorError as error:
                raise SelectorError(f"{rule.owner}: device {record.id}: {error}") from error
        return True
