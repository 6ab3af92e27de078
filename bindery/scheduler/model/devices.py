"""The GPUs of each node, one by one: how much of each is held, being released and promised.

Written by `cache/charges.py` (truth) and by `plugins/gpusharing/ledger.py` (plans). A whole GPU
is a share with the size of a device. Pods with shares of one device form a GPU group, as in
KAI-Scheduler. Only a group's reservation pod shows the physical device, so an index in this table
identifies a device only within the table.

Invariant: a column is the sum of the places in `held_by` and `promised_to`, and a group stays on
one device as long as it has a member.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.api.gpushare import WHOLE, GpuShare
from bindery.scheduler.model.columns import BoolColumn, IntColumns, grown
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.model.views import DevicesView

Holder = Hashable
"""A pod's UID."""


@dataclass(frozen=True, slots=True)
class Places:
    """The devices of one node that a pod uses, whole or in part."""

    row: int
    devices: tuple[int, ...]
    """Indexes on the node."""
    groups: tuple[str, ...]
    """The GPU group on each device; empty for whole devices."""
    portion: int
    """The part of each device; `WHOLE` is a whole device."""


@dataclass(slots=True)
class _Group:
    device: int
    users: int = 0
    reservations: int = 0


class DeviceTable:
    """Columns [device, node row], int64; `WHOLE` is a whole device.

    A group without a reservation pod will need one, and that pod needs room on the node too. The
    table calls `take_slot(row, 1)` when a group begins to need one and `take_slot(row, -1)` when
    it no longer does. It calls `promise_slot` in the same way for groups that are only promised.
    """

    def __init__(
        self, take_slot: Callable[[int, int], None], promise_slot: Callable[[int, int], None]
    ) -> None:
        self._take_slot, self._promise_slot = take_slot, promise_slot
        self._capacity: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._held: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._releasing: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._promised: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._members: IntColumns = np.zeros((0, 0), dtype=np.int64)
        """Number of users and reservations of the group on each device."""
        self._memory: IntColumns = np.zeros((1, 0), dtype=np.int64)
        self._groups: dict[int, dict[str, _Group]] = {}
        """Node row -> group name -> its device and members."""
        self.crowded: set[int] = set()
        """Rows of nodes with more tenants than devices; they take no further pods."""
        self.held_by: dict[Holder, Places] = {}
        self.promised_to: dict[Holder, Places] = {}
        self._opened_for: dict[tuple[int, int], set[Holder]] = {}
        """(node row, device without a group) -> the holders of promises on it."""

    # -- nodes ---------------------------------------------------------------------------------

    def put_node(self, row: int, count: int, memory_mib: int) -> None:
        """Set the devices of the node at `row`; `memory_mib` per device, 0 if not known."""
        self._make_room(row, count)
        self._capacity[:, row] = 0  # the node may have had more devices before
        self._capacity[:count, row] = WHOLE
        self._memory[0, row] = memory_mib

    def empty(self) -> None:
        """Remove all holds, releases, promises and groups."""
        for columns in (self._held, self._releasing, self._promised, self._members):
            columns[:] = 0
        self._groups.clear()
        self.crowded.clear()
        self.held_by.clear()
        self.promised_to.clear()

    def count(self, row: int) -> int:
        """Return the number of devices of the node at `row`."""
        if row >= self._capacity.shape[1]:
            return 0
        return int((self._capacity[:, row] > 0).sum())

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Return the number of devices of each of `rows`."""
        return np.asarray((self._capacity[:, rows] > 0).sum(axis=0))

    def memory_mib(self, rows: Rows | int) -> NDArray[np.int64]:
        """Return the memory of one device of each of `rows`, in MiB; 0 if not known."""
        return np.asarray(self._memory[0, rows])

    def known_memories(self) -> NDArray[np.int64]:
        """Return the memory of one device, in MiB, of every node with devices of known memory."""
        if not self._capacity.size:
            return np.zeros(0, dtype=np.int64)
        width = self._capacity.shape[1]  # `_memory` may be wider
        has = self._capacity.any(axis=0) & (self._memory[0, :width] > 0)
        return np.asarray(self._memory[0, :width][has])

    @property
    def has_shared(self) -> bool:
        """Whether a device is held in part, or a node has more tenants than devices."""
        return bool(self.crowded) or any(self._groups.values())

    # -- what fits -----------------------------------------------------------------------------

    def portions(self, share: GpuShare, rows: Rows) -> NDArray[np.int64]:
        """Return `share` as a portion of a device of each of `rows`.

        More than `WHOLE` if the share is larger than a device or the device memory is not known.
        """
        if share.portion:
            return np.full(len(rows), share.portion, dtype=np.int64)
        memory = self.memory_mib(rows)
        known = memory > 0
        parts = share.memory_mib * WHOLE // np.where(known, memory, 1)
        return np.where(known, parts, WHOLE + 1)  # WHOLE + 1 fits on no device

    def portion(self, share: GpuShare, row: int) -> int:
        """Return `share` as a portion of a device of `row`; see `portions`."""
        part = share.portion_of(int(self._memory[0, row]))
        return WHOLE + 1 if part is None else part

    def fits_now(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return a mask of `rows`: enough devices have idle room for `share`."""
        fits = self._room_now(rows) >= self.portions(share, rows)
        if share.portion == WHOLE:
            # The device of a group belongs to its reservation pod, even if no pod uses it now.
            fits &= self._members[:, rows] == 0
        return np.asarray(fits.sum(axis=0) >= share.devices)

    def fits_later(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return a mask of `rows`: `share` fits when all releasing pods have gone."""
        fits = self._room_later(rows) >= self.portions(share, rows)
        return np.asarray(fits.sum(axis=0) >= share.devices)

    def joins_now(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return a mask of `rows`: `share` fits on devices that already have a GPU group."""
        fits = self._room_now(rows) >= self.portions(share, rows)
        fits &= self._members[:, rows] > 0
        return np.asarray(fits.sum(axis=0) >= share.devices)

    def joins_later(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return the same as `joins_now`, for when all releasing pods have gone."""
        fits = self._room_later(rows) >= self.portions(share, rows)
        fits &= self._members[:, rows] > 0
        return np.asarray(fits.sum(axis=0) >= share.devices)

    def candidates(self, share: GpuShare, row: int, *, now: bool) -> NDArray[np.intp]:
        """Return the indexes of the devices of `row` with room for one part of `share`."""
        rows = np.array([row])
        room = self._room_now(rows) if now else self._room_later(rows)
        fits = room[:, 0] >= self.portion(share, row)
        if now and share.portion == WHOLE:  # as in `fits_now`
            fits &= self._members[:, row] == 0
        return np.flatnonzero(fits)

    def used(self, row: int, device: int) -> int:
        """Return the held and promised amount of a device, without the releasing amount."""
        column = self._held[device, row] - self._releasing[device, row]
        return int(column + self._promised[device, row])

    def held(self, row: int, device: int) -> int:
        """Return the held amount of a device, releasing pods included."""
        return int(self._held[device, row])

    def is_shared(self, row: int, device: int) -> bool:
        """Return whether the device has a GPU group."""
        return bool(self._members[device, row])

    def free(self, rows: Rows) -> IntColumns:
        """Return the free part of each device after all releases [device, position in rows]."""
        return np.maximum(self._room_later(rows), 0)

    def groups_of(self, holder: Holder) -> tuple[str, ...]:
        """Return the GPU groups of `holder`."""
        places = self.held_by.get(holder)
        return places.groups if places is not None else ()

    def group_on(self, row: int, device: int) -> str | None:
        """Return the group on the device."""
        for name, group in self._groups.get(row, {}).items():
            if group.device == device:
                return name
        return None

    def device_of(self, row: int, group: str) -> int | None:
        """Return the device of `group` on the node at `row`."""
        found = self._groups.get(row, {}).get(group)
        return None if found is None else found.device

    # -- writing -------------------------------------------------------------------------------

    def hold(self, holder: Holder, places: Places) -> None:
        """Charge `places` to `holder`."""
        assert holder not in self.held_by, f"{holder} holds devices already"
        self.held_by[holder] = places
        self._make_room(places.row, 0)
        self._add(self._held, places, 1)
        self._join(places)

    def let_go(self, holder: Holder) -> Places:
        """Undo `hold`."""
        places = self.held_by.pop(holder)
        self._leave(places)
        self._add(self._held, places, -1)
        return places

    def release(self, holder: Holder, sign: int) -> None:
        """Count the devices of `holder` as releasing (`sign` 1), or no longer (-1)."""
        self._add(self._releasing, self.held_by[holder], sign)

    def promise(self, holder: Holder, places: Places) -> None:
        """Promise `places` to `holder`."""
        assert holder not in self.promised_to, f"{holder} has been promised devices already"
        self.promised_to[holder] = places
        self._add(self._promised, places, 1)
        # The first promise on a device without a group reserves room for its reservation pod.
        for device in self.opened_by(places, now=False):
            self._promise_slot(places.row, 1)
            self._opened_for[places.row, device] = set()
        for device in places.devices if places.groups else ():
            if (places.row, device) in self._opened_for:
                self._opened_for[places.row, device].add(holder)

    def break_promise(self, holder: Holder) -> None:
        """Undo `promise`."""
        places = self.promised_to.pop(holder)
        self._add(self._promised, places, -1)
        for device in places.devices:
            holders = self._opened_for.get((places.row, device), set())
            if holders == {holder}:  # the last promise on the device gives the room back
                del self._opened_for[places.row, device]
                self._promise_slot(places.row, -1)
            holders.discard(holder)

    def opened_by(self, places: Places, *, now: bool) -> list[int]:
        """Return the devices of `places` that will need a new reservation pod.

        `now`: the places are about to be held, not promised.
        """
        row = places.row
        return [
            device
            for device in (places.devices if places.groups else ())
            if not self._members[device, row] and (now or (row, device) not in self._opened_for)
        ]

    def reserve(self, row: int, group: str, device: int) -> None:
        """Count a reservation pod of `group`; a new group gets `device`."""
        self._count_reservation(row, group, device, 1)

    def unreserve(self, row: int, group: str) -> None:
        """Undo `reserve`."""
        self._count_reservation(row, group, self._groups[row][group].device, -1)

    def _count_reservation(self, row: int, group: str, device: int, sign: int) -> None:
        self._make_room(row, 1)
        found = self._groups.setdefault(row, {}).setdefault(group, _Group(device))
        had_slot = self._needs_slot(found)
        found.reservations += sign
        self._members[found.device, row] += sign
        self._settle_slot(row, found, had_slot=had_slot)
        self._drop_if_empty(row, group)

    def _join(self, places: Places) -> None:
        # Whole devices have no groups, so the lengths may differ only then.
        for device, name in zip(places.devices, places.groups, strict=bool(places.groups)):
            group = self._groups.setdefault(places.row, {}).setdefault(name, _Group(device))
            had_slot = self._needs_slot(group)
            group.users += 1
            self._members[group.device, places.row] += 1
            self._settle_slot(places.row, group, had_slot=had_slot)

    def _leave(self, places: Places) -> None:
        for name in places.groups:
            group = self._groups[places.row][name]
            had_slot = self._needs_slot(group)
            group.users -= 1
            self._members[group.device, places.row] -= 1
            self._settle_slot(places.row, group, had_slot=had_slot)
            self._drop_if_empty(places.row, name)

    def _drop_if_empty(self, row: int, name: str) -> None:
        group = self._groups[row][name]
        if not group.users and not group.reservations:
            del self._groups[row][name]
            if not self._groups[row]:
                del self._groups[row]

    def _settle_slot(self, row: int, group: _Group, *, had_slot: bool) -> None:
        needs_slot = self._needs_slot(group)
        if needs_slot is not had_slot:
            self._take_slot(row, 1 if needs_slot else -1)

    @staticmethod
    def _needs_slot(group: _Group) -> bool:
        """Return whether `group` has users and no reservation pod yet."""
        return group.users > 0 and group.reservations == 0

    def _add(self, columns: IntColumns, places: Places, sign: int) -> None:
        for device in places.devices:
            columns[device, places.row] += sign * places.portion

    def _room_now(self, rows: Rows) -> IntColumns:
        idle = self._capacity[:, rows] - self._held[:, rows]
        # The minimum keeps idle room that is promised to other pods out.
        return np.asarray(np.minimum(idle, self._room_later(rows)))

    def _room_later(self, rows: Rows) -> IntColumns:
        idle = self._capacity[:, rows] - self._held[:, rows]
        room = np.asarray(idle + self._releasing[:, rows] - self._promised[:, rows])
        if self.crowded:  # the devices that its pods really use are not known
            room[:, np.isin(rows, list(self.crowded))] = 0
        return room

    def _make_room(self, row: int, count: int) -> None:
        if self._memory.shape[1] <= row:
            self._memory = grown(self._memory, 1, row + 1)
        if self._held.shape[0] >= count and self._held.shape[1] > row:
            return
        self._capacity = grown(self._capacity, count, row + 1)
        self._held = grown(self._held, count, row + 1)
        self._releasing = grown(self._releasing, count, row + 1)
        self._promised = grown(self._promised, count, row + 1)
        self._members = grown(self._members, count, row + 1)


def in_order(
    table: DevicesView, row: int, among: Iterable[int], *, spread: bool
) -> tuple[int, ...]:
    """Return the devices `among` in order of preference.

    Shared devices come first, then the most used; with `spread`, the least used. Ties are broken
    by index.
    """

    def key(device: int) -> tuple[int, int, int]:
        used = table.used(row, device)
        return (0, used, device) if spread else (-table.is_shared(row, device), -used, device)

    return tuple(sorted(among, key=key))
