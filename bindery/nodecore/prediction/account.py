"""What is left on one node's zones while the containers of a pod get their resources.

The managers choose among CPUs and devices by id; here they are counted. Counts are exact for what
lies on one zone. Several zones fill in the order of the CPU manager's packed choice, for machines
without more NUMA nodes than sockets, and devices in the order of zones.
"""

from collections.abc import Mapping, Sequence

from bindery.nodecore import masks
from bindery.nodecore.cpu.static import SmtAlignmentError
from bindery.nodecore.errors import AllocationError
from bindery.nodecore.memory import hints as memory_hints
from bindery.nodecore.memory import static as memory_static
from bindery.nodecore.memory import tables
from bindery.nodecore.numamemory import MemoryTable, NumaNodeState
from bindery.nodecore.pods import CPU
from bindery.nodecore.prediction.requests import Wanted
from bindery.nodecore.prediction.zones import Counts, NodeZones, is_memory
from bindery.nodecore.topology.hints import Hint, ProviderHints, ResourceHints, hint


class Account:
    """The zones of a node and what the pod's init containers leave to the later ones."""

    def __init__(self, node: NodeZones) -> None:
        self._node = node
        self._zones = range(len(node.free))
        names = {name for counts in (*node.totals, *node.free) for name in counts}
        self._free = {
            name: [counts.get(name, 0) for counts in node.free]
            for name in names
            if not is_memory(name)
        }
        self._reusable = {name: [0] * len(node.free) for name in self._free}
        self._split = list(node.split or (0 for _ in self._zones))
        self._has_cpus = node.has_static_cpus and self._is_placed(CPU)
        self._machine = _machine(node)
        self._reusable_memory: dict[tuple[int, str], int] = {}

    def hints(self, wanted: Wanted) -> list[ProviderHints]:
        """Return the hints of the device manager, the CPU manager and the memory manager."""
        cpus: ProviderHints = None
        if wanted.cpus and self._has_cpus:
            cpus = {CPU: self._counted(CPU, wanted.cpus)}
        memory: ProviderHints = None
        if wanted.memory and self._node.has_static_memory:
            memory = memory_hints.calculate(self._machine, wanted.memory, self._reusable_memory)
        return [
            {name: self._counted(name, count) for name, count in wanted.devices.items()},
            cpus,
            memory,
        ]

    def allocate(self, wanted: Wanted, hint: Hint) -> int:
        """Take a container's resources; return the mask of the zones that they are from.

        Raises:
            AllocationError: they are not there.
        """
        used = 0
        for name, count in wanted.devices.items():
            if self._is_placed(name):
                used |= self._allocate_devices(name, count, hint.mask, is_init=wanted.is_init)
        if wanted.cpus and self._has_cpus:
            used |= self._allocate_cpus(wanted.cpus, hint.mask, is_init=wanted.is_init)
        if wanted.memory and self._node.has_static_memory:
            group = memory_static.choose_group(
                self._machine, wanted.memory, self._reusable_memory, hint
            )
            used |= self._charge(wanted, group)
        return used

    def take(self, wanted: Wanted, mask: int) -> None:
        """Take a container's resources from the zones of `mask` first, and no more than is free."""
        for name, count in wanted.devices.items():
            if self._is_placed(name):
                self._hand_out(name, _fill(self._usable(name), mask, count), wanted.is_init)
        if wanted.cpus and self._has_cpus:
            self._hand_out(CPU, _fill(self._usable(CPU), mask, wanted.cpus), wanted.is_init)
        if wanted.memory and self._node.has_static_memory:
            group = masks.nodes_of(mask) or tuple(self._zones)
            if not memory_hints.has_room(self._machine, group, wanted.memory):
                group = tuple(self._zones)
            self._charge(wanted, group)

    def after(self) -> tuple[tuple[Counts, ...], tuple[int, ...], tuple[int, ...]]:
        """Return what is free on each zone, the split CPUs, and the groups of memory."""
        free = tuple(
            {
                **{name: counts[zone] for name, counts in self._free.items()},
                **{name: table.free for name, table in self._machine[zone].memory.items()},
            }
            for zone in self._zones
        )
        groups = tuple(
            masks.mask_of(self._machine[zone].cells) if self._machine[zone].assignments else 0
            for zone in self._zones
        )
        return free, tuple(self._split), groups

    def _counted(self, resource: str, count: int) -> ResourceHints:
        """Return the hints for `count` CPUs or devices; None if no zone has any."""
        if not self._is_placed(resource):
            return None
        totals = {zone: counts.get(resource, 0) for zone, counts in enumerate(self._node.totals)}
        present = {zone: total for zone, total in totals.items() if total > 0}
        free = self._free[resource]
        reusable = self._reusable[resource]
        needed = masks.mask_of(zone for zone in present if reusable[zone] > 0)
        fewest = next(
            (mask.bit_count() for mask, total in masks.sums(present).items() if total >= count),
            len(present),
        )
        has = masks.sums({zone: free[zone] for zone in present})
        room = count - sum(reusable)
        return [
            hint(mask, mask.bit_count() == fewest)
            for mask, available in has.items()
            if available >= room and not needed & ~mask
        ]

    def _is_placed(self, resource: str) -> bool:
        return any(counts.get(resource, 0) > 0 for counts in self._node.totals)

    def _usable(self, resource: str) -> list[int]:
        pairs = zip(self._free[resource], self._reusable[resource], strict=True)
        return [free + reusable for free, reusable in pairs]

    def _allocate_devices(
        self, resource: str, count: int, mask: int | None, *, is_init: bool
    ) -> int:
        """Take devices: reusable ones first, then those on the zones of `mask`."""
        taken = _fill(self._reusable[resource], None, count)
        free = self._free[resource]
        more = _fill(free, mask, count - sum(taken))
        given = [one + other for one, other in zip(taken, more, strict=True)]
        if sum(given) < count:
            raise AllocationError(f"requested number of devices unavailable for {resource}")
        return self._hand_out(resource, given, is_init)

    def _allocate_cpus(self, count: int, mask: int | None, *, is_init: bool) -> int:
        """Take CPUs as the packed choice does: on the zones of `mask`, then anywhere."""
        self._check_whole_cores(count)
        sizes = [counts.get(CPU, 0) for counts in self._node.totals]
        usable = self._usable(CPU)
        if sum(usable) < count:
            raise AllocationError("not enough cpus available to satisfy request")
        given = [0 for _ in self._zones]
        if mask is not None:
            aligned = [cpus if mask >> zone & 1 else 0 for zone, cpus in enumerate(usable)]
            given = packed(aligned, sizes, self._split, min(count, sum(aligned)))
        rest = [cpus - taken for cpus, taken in zip(usable, given, strict=True)]
        more = packed(rest, sizes, self._split, count - sum(given))
        given = [one + other for one, other in zip(given, more, strict=True)]
        return self._hand_out(CPU, given, is_init)

    def _check_whole_cores(self, count: int) -> None:
        threads = self._node.threads_per_core
        if not threads:
            return
        if count % threads:
            raise SmtAlignmentError("the request is not a multiple of the CPUs of a core")
        if count > sum(self._free[CPU]) - sum(self._split):
            raise SmtAlignmentError("not enough free physical CPUs")

    def _hand_out(self, resource: str, given: Sequence[int], is_init: bool) -> int:
        """Record what each zone gives; reusable ones go first. Return the mask of the zones."""
        free, reusable = self._free[resource], self._reusable[resource]
        for zone, count in enumerate(given):
            reused = min(reusable[zone], count)
            free[zone] -= count - reused
            reusable[zone] += count - reused if is_init else -reused
            if resource == CPU:
                self._split[zone] = min(self._split[zone], free[zone])
        return masks.mask_of(zone for zone, count in enumerate(given) if count)

    def _charge(self, wanted: Wanted, group: Sequence[int]) -> int:
        mask = masks.mask_of(group)
        for resource, size in wanted.memory.items():
            key = (mask, resource)
            left = self._reusable_memory.get(key, 0)
            self._machine = tables.charge(self._machine, group, resource, max(0, size - left))
            if wanted.is_init:
                self._reusable_memory[key] = max(left, size)
            elif key in self._reusable_memory:
                self._reusable_memory[key] = max(0, left - size)
        return mask


def packed(
    available: Sequence[int], sizes: Sequence[int], split: Sequence[int], count: int
) -> list[int]:
    """Return how many CPUs of each zone the CPU manager's packed choice takes.

    Whole zones that are not larger than what is still needed come first, then whole cores and then
    single CPUs of the zones with the fewest available CPUs. `split`: the available CPUs of each
    zone that are not whole cores.
    """
    left = list(available)
    for zone in _fullest_first(left):
        if 0 < left[zone] == sizes[zone] <= count:
            count -= left[zone]
            left[zone] = 0
    order = _fullest_first(left)
    for kept in (split, [0] * len(left)):
        for zone in order:
            taken = max(0, min(left[zone] - kept[zone], count))
            left[zone] -= taken
            count -= taken
    return [before - after for before, after in zip(available, left, strict=True)]


def _fullest_first(available: Sequence[int]) -> list[int]:
    return sorted(range(len(available)), key=lambda zone: (available[zone], zone))


def _fill(available: Sequence[int], mask: int | None, count: int) -> list[int]:
    """Return how many of each zone are taken, as far as it goes: zones of `mask` come first."""
    given = [0 for _ in available]
    order = sorted(range(len(available)), key=lambda zone: not (mask or 0) >> zone & 1)
    for zone in order:
        given[zone] = max(0, min(available[zone], count))
        count -= given[zone]
    return given


def _machine(node: NodeZones) -> tables.NodeStates:
    """Return the memory manager's state of each zone."""
    return {
        zone: NumaNodeState(
            assignments=1 if group else 0,
            memory=_tables(node.free[zone], node.totals[zone]),
            cells=masks.nodes_of(group) or (zone,),
        )
        for zone, group in enumerate(node.memory_groups)
    }


def _tables(free: Counts, totals: Counts) -> Mapping[str, MemoryTable]:
    return {
        name: MemoryTable(total, 0, total, total - free.get(name, 0), free.get(name, 0))
        for name, total in totals.items()
        if is_memory(name)
    }
