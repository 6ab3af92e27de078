"""The candidates for requests among the devices of one node, whether in use or not.

`node_fit` makes them again after a change of the node's devices; the allocator reads them.
Selectors are evaluated here, once for each request and device. If a selector fails for a device,
the search fails when it reaches the device and not before, as in Kubernetes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bindery.kube.objects.claims import DeviceToleration
from bindery.kube.objects.devices import Device
from bindery.kube.objects.taints import tolerates
from bindery.scheduler.plugins.dra.capacity import consumption
from bindery.scheduler.plugins.dra.cel import SelectorError, Selectors
from bindery.scheduler.plugins.dra.claims import DeviceWish
from bindery.scheduler.plugins.dra.inventory import DeviceRecord, NodePool, Pool
from bindery.scheduler.plugins.dra.usage import DeviceId


def is_kept_away(device: Device, tolerations: Sequence[DeviceToleration]) -> bool:
    """Return whether `device` has a taint without a match in `tolerations` (KEP-5055).

    Only the effects NoSchedule and NoExecute count, as in Kubernetes.
    """
    return any(
        taint.effect in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint)
        for taint in device.taints
    )


class AllocationError(Exception):
    """The search is not possible on a node, for example because a selector fails."""


@dataclass(frozen=True, slots=True)
class CandidateDevice:
    """A device selected for a request, or the `error` of a selector."""

    record: DeviceRecord
    pool: Pool
    consumed: Mapping[str, int]
    """Capacity name -> amount for the request, in billionths."""
    is_tainted: bool = False
    """Whether the device has a taint without a toleration of the request."""
    error: str = ""


class Candidates:
    """The candidates on one node, by request. Valid while the node's devices stay the same."""

    def __init__(self, pools: Sequence[NodePool], selectors: Selectors) -> None:
        self.pools = pools
        self._selectors = selectors
        self._found: dict[DeviceWish, tuple[CandidateDevice, ...]] = {}
        self._devices: dict[DeviceWish, frozenset[DeviceId]] = {}

    def of(self, wish: DeviceWish) -> tuple[CandidateDevice, ...]:
        """Return the candidates for `wish`, in the order of the search."""
        cached = self._found.get(wish)
        if cached is None:
            cached = self._found[wish] = tuple(self._find(wish))
        return cached

    def devices(self, wish: DeviceWish) -> frozenset[DeviceId]:
        """Return the ids of the candidates for `wish`."""
        cached = self._devices.get(wish)
        if cached is None:
            cached = self._devices[wish] = frozenset(each.record.id for each in self.of(wish))
        return cached

    def all_of(self, wish: DeviceWish) -> tuple[CandidateDevice, ...]:
        """Return the candidates for a request for all devices.

        Raises:
            AllocationError: a pool of the node is incomplete or invalid, so "all" is undefined.
        """
        for node_pool in self.pools:
            if node_pool.pool.problem:
                problem = node_pool.pool.problem
                raise AllocationError(f"request {wish.name} asks for all devices, but {problem}")
        return self.of(wish)

    def _find(self, wish: DeviceWish) -> Iterator[CandidateDevice]:
        for node_pool in self.pools:
            if node_pool.pool.problem:
                continue
            for record in node_pool.devices:
                try:
                    if not self._selects(wish, record):
                        continue
                except SelectorError as error:
                    yield CandidateDevice(record, node_pool.pool, {}, error=str(error))
                    continue
                consumed = consumption(record.device.capacity, wish.capacity)
                # A tainted device stays a candidate: a request for all devices must fail on it.
                if consumed is not None:
                    tainted = is_kept_away(record.device, wish.tolerations)
                    yield CandidateDevice(record, node_pool.pool, consumed, tainted)

    def _selects(self, wish: DeviceWish, record: DeviceRecord) -> bool:
        for rule in wish.rules:
            try:
                if not self._selectors.matches(rule.expression, record.view()):
                    return False
            except SelectorError as error:
                raise SelectorError(f"{rule.owner}: device {record.id}: {error}") from error
        return True
