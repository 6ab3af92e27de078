"""The zones of all nodes in arrays: what is free now, and after all releasing pods have gone.

A slot is the place of a node in the arrays; slots do not change while the node has zones. A session
adds and takes parts, and gives back the same parts when it undoes its plan, so all amounts are
whole numbers. `touched` lists the changed slots, for those who cache results by slot.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.prediction.arrays import ZoneArrays, stack
from bindery.nodecore.prediction.zones import NodeZones
from bindery.scheduler.plugins.numa.amounts import (
    Amounts,
    Axis,
    FreeZones,
    HeldZones,
    corner,
    groups,
)

NO_SLOT: Final = -1
_NO_SPANS: Final[Counter[int]] = Counter()
_MOST_MOVES: Final = 1 << 16
_MOST_TOUCHED: Final = 1 << 20
"""Longer logs are cut, and caches start again."""


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
    axis: Axis = field(default_factory=Axis)

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

    def key(self, slot: int) -> bytes:
        """Return bytes that are equal for two slots of a kind if the same is free there."""
        key = self._keys.get(slot)
        if key is None:
            arrays = self.arrays
            key = arrays.free[slot].tobytes() + arrays.groups[slot].tobytes()
            key = self._keys[slot] = key + arrays.split[slot].tobytes()
        return key

    def write(self, slot: int, free: FreeZones) -> None:
        """Set what is free on a node."""
        self.arrays.free[slot], self.arrays.split[slot] = free.free, free.split
        self.spans.pop(slot, None)
        if any(free.spans.values()):
            self.spans[slot] = Counter(free.spans)
        self.regroup(slot)

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
        arrays, columns = self.arrays, self.axis.memory
        # Lists are faster than arrays of this size, and every operation gets here.
        free, totals = arrays.free[slot].tolist(), arrays.totals[slot].tolist()
        arrays.groups[slot] = groups(free, totals, columns, self.spans.get(slot, _NO_SPANS))

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
        self._known_kinds: dict[tuple[Any, ...], int] = {}
        self._unused: list[int] = []

    @property
    def axis(self) -> Axis:
        """The resources and zones of the arrays."""
        return self.now.axis

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

    def settle(self, slot: int, now: FreeZones, later: FreeZones, apart: int) -> None:
        """Set what is free on a node, now and after `apart` releases; log it if it differs."""
        before = self._state(slot)
        self.now.write(slot, now)
        self.later.write(slot, later)
        self.apart[slot] = apart
        if before != self._state(slot):
            self.touched.append(slot)

    def trim(self) -> None:
        """Cut the log of touched slots if it is long."""
        if len(self.touched) > _MOST_TOUCHED:
            self.touched.clear()
            self.epoch += 1

    # -- inside ----------------------------------------------------------------------------------

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
        names = (*old.resources, *(name for name in row.resources if name not in old.resources))
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
        self.now.axis = self.later.axis = Axis(names, zones)

    def _write_kind(self, slot: int, row: ZoneArrays) -> None:
        columns = [self.axis.columns[name] for name in row.resources]
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
    return corner(old, [sizes[axis] for axis in axes])
