"""The zones of all nodes in arrays: what is free now, and after all releasing pods have gone.

A slot is the place of a node in the arrays; slots do not change while the node has zones. A session
adds and takes parts, and gives back the same parts when it undoes its plan, so all amounts are
whole numbers. `touched` lists the changed slots, for those who cache results by slot.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.masks import nodes_of
from bindery.nodecore.prediction.arrays import ZoneArrays, stack
from bindery.nodecore.prediction.zones import NodeZones, is_memory

NO_SLOT: Final = -1
_NO_SPANS: Final[Counter[int]] = Counter()
_MOST_MOVES: Final = 1 << 16
_MOST_TOUCHED: Final = 1 << 20
"""Longer logs are cut, and caches start again."""

Amounts = NDArray[np.float64]
"""[zone, resource]: whole CPUs, bytes, devices."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldZones:
    """What one pod holds of a node's zones."""

    amounts: Amounts
    split: Amounts
    """Free CPUs that share a core with a reserved CPU: [zone]."""
    spans: tuple[int, ...] = ()
    """Masks of zones whose memory it uses together."""
    has_split: bool = False
    """Whether `split` is not zero."""

    def within(self, most: Amounts) -> "HeldZones":
        """Return the part of it that is at most `most`."""
        if (self.amounts <= most).all():
            return self
        return replace(self, amounts=np.clip(self.amounts, 0, np.maximum(most, 0)))

    def joined(self, other: "HeldZones") -> "HeldZones":
        """Return the larger of both amounts for each zone and resource."""
        if np.array_equal(self.amounts, other.amounts):
            return self
        return HeldZones(
            np.maximum(self.amounts, other.amounts),
            np.maximum(self.split, other.split),
            tuple(sorted({*self.spans, *other.spans})),
            self.has_split or other.has_split,
        )

    @property
    def zones(self) -> int:
        """The mask of the zones that it holds something of."""
        return sum(1 << zone for zone in np.flatnonzero(self.amounts.any(axis=1)).tolist())


class _State(NamedTuple):
    """What is free on a node."""

    free: Amounts
    groups: NDArray[np.uint8]
    split: Amounts
    key: bytes


@dataclass
class Side:
    """The zones at one time: now, or after all releases."""

    kinds: list[int]
    """Slot -> number of its kind; see `ZoneTable`."""
    arrays: ZoneArrays = field(default_factory=lambda: stack([]))
    spans: defaultdict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Slot -> mask of zones -> number of pods that use the memory of these zones together."""
    memory: list[int] = field(default_factory=list)
    """The columns of memory and huge pages."""

    _keys: dict[int, bytes] = field(default_factory=dict)
    """Slot -> its key, until the slot changes."""
    _moves: dict[tuple[int, bytes, HeldZones, int], _State] = field(default_factory=dict)
    """Kind, key, part and sign of a move -> the state after it."""

    def move(self, slot: int, part: HeldZones, sign: int) -> None:
        """Give back (`sign` 1) or take (-1) a part."""
        if part.spans or slot in self.spans:
            self._move(slot, part, sign)
            return
        # Equal nodes are filled in the same way, and arrays of this size are slow to compute with.
        move = self.kinds[slot], self.key(slot), part, sign
        after = self._moves.get(move)
        if after is None:
            self._move(slot, part, sign)
            if len(self._moves) >= _MOST_MOVES:
                self._moves.clear()
            self._moves[move] = self._state(slot)
            return
        arrays = self.arrays
        arrays.free[slot], arrays.groups[slot] = after.free, after.groups
        if part.has_split:
            arrays.split[slot] = after.split
        self._keys[slot] = after.key

    def _state(self, slot: int) -> _State:
        arrays = self.arrays
        each = arrays.free[slot], arrays.groups[slot], arrays.split[slot]
        free, groups, split = (one.copy() for one in each)
        return _State(free, groups, split, self.key(slot))

    def _move(self, slot: int, part: HeldZones, sign: int) -> None:
        free = self.arrays.free[slot]
        if sign > 0:
            free += part.amounts
        else:
            free -= part.amounts
        if part.has_split:
            self.arrays.split[slot] += sign * part.split
        for mask in part.spans:
            self.spans[slot][mask] -= sign
        self.regroup(slot)

    def follow(self, slot: int, other: "Side", part: HeldZones, sign: int) -> None:
        """Do what `move` does, where `other` was equal before and has done so already."""
        self.arrays.free[slot] = other.arrays.free[slot]
        self.arrays.groups[slot] = other.arrays.groups[slot]
        if part.has_split:
            self.arrays.split[slot] = other.arrays.split[slot]
        for mask in part.spans:
            self.spans[slot][mask] -= sign
        self._keys.pop(slot, None)

    def key(self, slot: int) -> bytes:
        """Return bytes that are equal for two slots of a kind if the same is free there."""
        key = self._keys.get(slot)
        if key is None:
            arrays = self.arrays
            key = arrays.free[slot].tobytes() + arrays.groups[slot].tobytes()
            key = self._keys[slot] = key + arrays.split[slot].tobytes()
        return key

    def set(self, slot: int, node: NodeZones) -> None:
        """Set what is free on a node; call `regroup` when the spans of its pods are known."""
        self.arrays.free[slot] = 0
        self.arrays.split[slot] = 0
        self.arrays.write(slot, node)
        self.spans.pop(slot, None)
        self._keys.pop(slot, None)

    def copy(self, slot: int, other: "Side") -> None:
        """Set what is free on a node to what `other` has."""
        for name in _FREE:
            getattr(self.arrays, name)[slot] = getattr(other.arrays, name)[slot]
        self._keys.pop(slot, None)
        self.spans.pop(slot, None)
        if slot in other.spans:
            self.spans[slot] = Counter(other.spans[slot])

    def regroup(self, slot: int) -> None:
        """Compute which zones' memory is used together, and which zones' is used alone."""
        self._keys.pop(slot, None)
        arrays, columns = self.arrays, self.memory
        # Lists are faster than arrays of this size, and every operation gets here.
        free, totals = arrays.free[slot].tolist(), arrays.totals[slot].tolist()
        groups = [0] * len(free)
        for zone, (left, total) in enumerate(zip(free, totals, strict=True)):
            if any(left[column] < total[column] for column in columns):
                groups[zone] = 1 << zone
        for mask, count in self.spans.get(slot, _NO_SPANS).items():
            for zone in nodes_of(mask) if count > 0 else ():
                groups[zone] |= mask
        arrays.groups[slot] = groups

    def forget_states(self) -> None:
        """Forget all keys and moves, because the arrays have another shape."""
        self._keys.clear()
        self._moves.clear()


class ZoneTable:
    """The zones of nodes by slot."""

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        """Node name -> slot."""
        self.names: list[str] = []
        """Slot -> node name; "" for a free slot."""
        self.apart: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """Slot -> number of pods that make `later` differ from `now`."""
        self.kinds: list[int] = []
        """Slot -> number of its kind; nodes of a kind differ at most in what is free."""
        self.now = Side(self.kinds)
        self.later = Side(self.kinds)
        self.touched: list[int] = []
        """Changed slots in order."""
        self.epoch = 0
        """Grows when all cached results are outdated."""
        self.version = 0
        """Grows when a node comes or goes, or changes its kind."""
        self._axis: dict[str, int] = {}
        """Resource -> index."""
        self._known_kinds: dict[tuple[Any, ...], int] = {}
        self._unused: list[int] = []

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of the resources in the arrays."""
        return self.now.arrays.resources

    def __len__(self) -> int:
        return len(self.slots)

    def slot(self, name: str) -> int:
        """Return the slot of the node `name`; `NO_SLOT` if it has no zones."""
        return self.slots.get(name, NO_SLOT)

    def put(self, name: str, zones: NodeZones) -> int:
        """Add a node, or replace all but what is free; return its slot."""
        row = stack([zones])
        kind = self._kind(row)
        slot = self.slot(name)
        if slot != NO_SLOT and self.kinds[slot] == kind:
            return slot
        self.version += 1
        if slot == NO_SLOT:
            slot = self._new_slot(name)
        self._make_room(row)
        self._write_kind(slot, row)
        self.kinds[slot] = kind
        self.now.regroup(slot)
        self.later.regroup(slot)
        self.touched.append(slot)
        return slot

    def remove(self, name: str) -> None:
        """Remove a node, if it has zones."""
        slot = self.slots.pop(name, NO_SLOT)
        if slot == NO_SLOT:
            return
        self.version += 1
        self.names[slot] = ""
        self._unused.append(slot)
        for arrays in (self.now.arrays, self.later.arrays):
            arrays.zone_count[slot] = 0
        self.apart[slot] = 0
        self.touched.append(slot)

    @contextmanager
    def changing(self, slot: int) -> Iterator[None]:
        """Return a context whose block may set what is free on a node; log it if it differs."""
        before = self._state(slot)
        yield
        if before != self._state(slot):
            self.touched.append(slot)

    def trim(self) -> None:
        """Cut the log of touched slots if it is long."""
        if len(self.touched) > _MOST_TOUCHED:
            self.touched.clear()
            self.epoch += 1

    def part(self, before: NodeZones, after: NodeZones) -> HeldZones:
        """Return what a pod takes that turns `before` into `after`."""
        amounts, split = self.amounts(before.free), self._split(before)
        amounts -= self.amounts(after.free)
        multiple = {mask for mask in after.groups if mask & (mask - 1)}
        taken = self.memory_zones(amounts)
        spans = tuple(sorted(mask for mask in multiple if mask & taken and taken & (taken - 1)))
        split -= self._split(after)
        return HeldZones(amounts, split, spans, bool(split.any()))

    def amounts(self, zones: Any) -> Amounts:
        """Return amounts by zone and resource as an array; unknown resources are left out."""
        found = np.zeros(self.now.arrays.free.shape[1:], dtype=np.float64)
        for zone, counts in enumerate(zones):
            for name, amount in counts.items():
                if name in self._axis:
                    found[zone, self._axis[name]] = amount
        return found

    def memory_zones(self, amounts: Amounts) -> int:
        """Return the mask of the zones with memory in `amounts`."""
        return sum(
            1 << zone
            for zone in range(len(amounts))
            if any(amounts[zone, index] > 0 for index in self.now.memory)
        )

    # -- inside ----------------------------------------------------------------------------------

    def _split(self, node: NodeZones) -> Amounts:
        found = np.zeros(self.now.arrays.split.shape[1], dtype=np.float64)
        found[: len(node.split)] = node.split
        return found

    def _state(self, slot: int) -> tuple[bytes, bytes, int]:
        return self.now.key(slot), self.later.key(slot), int(self.apart[slot])

    def _kind(self, row: ZoneArrays) -> int:
        key = (row.resources, *(getattr(row, name).tobytes() for name in _STATIC))
        return self._known_kinds.setdefault(key, len(self._known_kinds))

    def _new_slot(self, name: str) -> int:
        if self._unused:
            slot = self._unused.pop()
            self.names[slot] = name
        else:
            slot = len(self.names)
            self.names.append(name)
            self.kinds.append(NO_SLOT)
        self.slots[name] = slot
        return slot

    def _make_room(self, row: ZoneArrays) -> None:
        """Let the arrays grow until they have room for all slots, and for the zones of `row`."""
        old = self.now.arrays
        names = (*old.resources, *(name for name in row.resources if name not in self._axis))
        zones = max(old.free.shape[1], row.free.shape[1])
        capacity = len(old.zone_count)
        if capacity < len(self.names):
            capacity = max(16, 2 * capacity, len(self.names))
        if (capacity, zones, len(names)) == old.free.shape:
            return
        self.epoch += 1  # parts and keys have the shape of the arrays
        self.now.forget_states()
        self.later.forget_states()
        sizes = {"N": capacity, "Z": zones, "R": len(names)}
        self.now.arrays = _grown(old, names, sizes)
        own: dict[str, Any] = {
            name: _array(getattr(self.later.arrays, name), _AXES[name], sizes) for name in _FREE
        }
        self.later.arrays = replace(self.now.arrays, **own)
        self.apart = _array(self.apart, "N", sizes)
        self._axis = {name: index for index, name in enumerate(names)}
        self.now.memory = [i for name, i in self._axis.items() if is_memory(name)]
        self.later.memory = self.now.memory

    def _write_kind(self, slot: int, row: ZoneArrays) -> None:
        columns = [self._axis[name] for name in row.resources]
        zones = row.free.shape[1]
        for name in _STATIC:
            own, new = getattr(self.now.arrays, name), getattr(row, name)[0]
            own[slot] = 0
            if _AXES[name] == "N":
                own[slot] = new
            elif name == "totals":
                own[slot][:zones, columns] = new
            else:
                own[slot][:zones, :zones] = new


_AXES: Final = {
    "free": "NZR",
    "split": "NZ",
    "groups": "NZ",
    "totals": "NZR",
    "distances": "NZZ",
    "zone_count": "N",
    "policy": "N",
    "scope": "N",
    "has_static_cpus": "N",
    "has_static_memory": "N",
    "prefer_closest": "N",
    "threads_per_core": "N",
}
"""The axes of each array: nodes, zones, resources."""
_FREE: Final = ("free", "split", "groups")
"""The arrays that change when pods come and go."""
_STATIC: Final = tuple(name for name in _AXES if name not in _FREE)
"""The arrays that decide the kind of a node; now and later share them."""


def _grown(arrays: ZoneArrays, names: tuple[str, ...], sizes: dict[str, int]) -> ZoneArrays:
    grown = {name: _array(getattr(arrays, name), axes, sizes) for name, axes in _AXES.items()}
    return ZoneArrays(resources=names, **grown)


def _array(old: NDArray[Any], axes: str, sizes: dict[str, int]) -> NDArray[Any]:
    """Return `old`, in the lower corner of a larger array of zeros."""
    new = np.zeros([sizes[axis] for axis in axes], dtype=old.dtype)
    new[tuple(slice(size) for size in old.shape)] = old
    return new
