"""The GPUs of the nodes one by one: how much of each is held, is being released, is promised.

Kept by the node table's owners beside its sums: by `cache/charges.py` (truth) and by
`plugins/gpu_sharing/ledger.py` (plans). A whole GPU is a share of the size of a device. Pods with
shares of one device form its GPU group (KAI-Scheduler). Only the reservation pod tells which
device of the node that is, so an index here names a device only among those of this table.

The one invariant: a column is the sum of the places in `held_by` and `promised_to`, and a group
stands on one device for as long as it has a member.
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
    """The devices of one node of which a pod has a part."""

    row: int
    devices: tuple[int, ...]
    """Indexes on the node."""
    groups: tuple[str, ...]
    """The GPU group on each; none for whole devices."""
    portion: int
    """Of each device, in units of which `WHOLE` make one."""


@dataclass(slots=True)
class _Group:
    device: int
    users: int = 0
    reservations: int = 0


class DeviceTable:
    """Columns [device, node row], int64, in units of which `WHOLE` make one device.

    `take_slot` is told (row, 1 or -1) of pods that will be needed, or not any more, to hold a
    device for a group: its reservation pod needs room on the node too. `promise_slot` is told of
    those that promises will need.
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
        """How many users and reservations the group on a device has."""
        self._memory: IntColumns = np.zeros((1, 0), dtype=np.int64)
        self._groups: dict[int, dict[str, _Group]] = {}
        """Node row -> group -> where it stands."""
        self.crowded: set[int] = set()
        """Node rows with more tenants than devices, which have no room for more."""
        self.held_by: dict[Holder, Places] = {}
        self.promised_to: dict[Holder, Places] = {}
        self._opened_for: dict[tuple[int, int], set[Holder]] = {}
        """(node row, device) on which no group stood -> who has been promised a part of it."""

    # -- nodes ---------------------------------------------------------------------------------

    def put_node(self, row: int, count: int, memory_mib: int) -> None:
        """Note that the node at `row` has `count` devices of `memory_mib` each (0: not known)."""
        self._make_room(row, count)
        self._capacity[:, row] = 0
        self._capacity[:count, row] = WHOLE
        self._memory[0, row] = memory_mib

    def empty(self) -> None:
        """Forget what pods hold, release and are promised, and all groups."""
        for columns in (self._held, self._releasing, self._promised, self._members):
            columns[:] = 0
        self._groups.clear()
        self.crowded.clear()
        self.held_by.clear()
        self.promised_to.clear()

    def count(self, row: int) -> int:
        """Return how many devices the node at `row` has."""
        if row >= self._capacity.shape[1]:
            return 0
        return int((self._capacity[:, row] > 0).sum())

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Return how many devices each of `rows` has."""
        return np.asarray((self._capacity[:, rows] > 0).sum(axis=0))

    def memory_mib(self, rows: Rows | int) -> NDArray[np.int64]:
        """Return the memory of one device of each of `rows`, 0 where it is not known."""
        return np.asarray(self._memory[0, rows])

    def known_memories(self) -> NDArray[np.int64]:
        """Return the memory of one device of every node that has some and says so."""
        if not self._capacity.size:
            return np.zeros(0, dtype=np.int64)
        width = self._capacity.shape[1]
        has = self._capacity.any(axis=0) & (self._memory[0, :width] > 0)
        return np.asarray(self._memory[0, :width][has])

    # -- what fits -----------------------------------------------------------------------------

    def portions(self, share: GpuShare, rows: Rows) -> NDArray[np.int64]:
        """Return which portion of a device `share` is on each of `rows`.

        More than `WHOLE` where it is larger than a device, or nobody knows.
        """
        if share.portion:
            return np.full(len(rows), share.portion, dtype=np.int64)
        memory = self.memory_mib(rows)
        known = memory > 0
        parts = share.memory_mib * WHOLE // np.where(known, memory, 1)
        return np.where(known, parts, WHOLE + 1)

    def portion(self, share: GpuShare, row: int) -> int:
        """Return which portion of a device `share` is at `row`; see `portions`."""
        part = share.portion_of(int(self._memory[0, row]))
        return WHOLE + 1 if part is None else part

    def fits_now(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return on which of `rows` enough devices have room for `share`."""
        fits = self._room_now(rows) >= self.portions(share, rows)
        if share.portion == WHOLE:
            fits &= self._members[:, rows] == 0  # a group's device is taken, used or not
        return np.asarray(fits.sum(axis=0) >= share.devices)

    def fits_later(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return where it fits once all that is being released has gone."""
        fits = self._room_later(rows) >= self.portions(share, rows)
        return np.asarray(fits.sum(axis=0) >= share.devices)

    def joins_now(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return on which of `rows` `share` fits onto devices that are shared already."""
        fits = self._room_now(rows) >= self.portions(share, rows)
        fits &= self._members[:, rows] > 0
        return np.asarray(fits.sum(axis=0) >= share.devices)

    def joins_later(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return where it fits onto devices that are shared already, once all that is being
        released has gone.
        """
        fits = self._room_later(rows) >= self.portions(share, rows)
        fits &= self._members[:, rows] > 0
        return np.asarray(fits.sum(axis=0) >= share.devices)

    def candidates(self, share: GpuShare, row: int, *, now: bool) -> NDArray[np.intp]:
        """Return the devices of `row` that have room for a part of `share`, by index."""
        rows = np.array([row])
        room = self._room_now(rows) if now else self._room_later(rows)
        fits = room[:, 0] >= self.portion(share, row)
        if now and share.portion == WHOLE:
            fits &= self._members[:, row] == 0
        return np.flatnonzero(fits)

    def used(self, row: int, device: int) -> int:
        """Return how much of a device is held or promised, without what is being released."""
        column = self._held[device, row] - self._releasing[device, row]
        return int(column + self._promised[device, row])

    def held(self, row: int, device: int) -> int:
        """Return how much of a device is held, by pods that are being released too."""
        return int(self._held[device, row])

    def is_shared(self, row: int, device: int) -> bool:
        """Return whether a GPU group stands on the device."""
        return bool(self._members[device, row])

    def groups_of(self, holder: Holder) -> tuple[str, ...]:
        """Return the groups that `holder` belongs to."""
        places = self.held_by.get(holder)
        return places.groups if places is not None else ()

    def group_on(self, row: int, device: int) -> str | None:
        """Return the group that stands on the device."""
        for name, group in self._groups.get(row, {}).items():
            if group.device == device:
                return name
        return None

    def device_of(self, row: int, group: str) -> int | None:
        """Return the device of `row` on which `group` stands."""
        found = self._groups.get(row, {}).get(group)
        return None if found is None else found.device

    # -- writing -------------------------------------------------------------------------------

    def hold(self, holder: Holder, places: Places) -> None:
        """Let `holder` have `places`."""
        assert holder not in self.held_by, f"{holder} holds devices already"
        self.held_by[holder] = places
        self._make_room(places.row, 0)
        self._add(self._held, places, 1)
        self._join(places)

    def let_go(self, holder: Holder) -> Places:
        """Take back `hold`."""
        places = self.held_by.pop(holder)
        self._leave(places)
        self._add(self._held, places, -1)
        return places

    def release(self, holder: Holder, sign: int) -> None:
        """Count what `holder` has as being released (`sign` 1), or not any more (-1)."""
        self._add(self._releasing, self.held_by[holder], sign)

    def promise(self, holder: Holder, places: Places) -> None:
        """Promise `places` to `holder`."""
        assert holder not in self.promised_to, f"{holder} has been promised devices already"
        self.promised_to[holder] = places
        self._add(self._promised, places, 1)
        for device in self.opened_by(places, now=False):
            self._promise_slot(places.row, 1)
            self._opened_for[places.row, device] = set()
        for device in places.devices if places.groups else ():
            if (places.row, device) in self._opened_for:
                self._opened_for[places.row, device].add(holder)

    def break_promise(self, holder: Holder) -> None:
        """Take back `promise`."""
        places = self.promised_to.pop(holder)
        self._add(self._promised, places, -1)
        for device in places.devices:
            holders = self._opened_for.get((places.row, device), set())
            if holders == {holder}:
                del self._opened_for[places.row, device]
                self._promise_slot(places.row, -1)
            holders.discard(holder)

    def opened_by(self, places: Places, *, now: bool) -> list[int]:
        """Return the devices of `places` that will need a reservation pod because of them.

        `now`: they are to be held, not promised.
        """
        row = places.row
        return [
            device
            for device in (places.devices if places.groups else ())
            if not self._members[device, row] and (now or (row, device) not in self._opened_for)
        ]

    def reserve(self, row: int, group: str, device: int) -> None:
        """Note that a reservation pod holds the device of `group`: `device` for a new group."""
        self._count_reservation(row, group, device, 1)

    def unreserve(self, row: int, group: str) -> None:
        """Take back `reserve`."""
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
        """Return whether the reservation pod of `group` is yet to come."""
        return group.users > 0 and group.reservations == 0

    def _add(self, columns: IntColumns, places: Places, sign: int) -> None:
        for device in places.devices:
            columns[device, places.row] += sign * places.portion

    def _room_now(self, rows: Rows) -> IntColumns:
        idle = self._capacity[:, rows] - self._held[:, rows]
        return np.asarray(np.minimum(idle, self._room_later(rows)))

    def _room_later(self, rows: Rows) -> IntColumns:
        idle = self._capacity[:, rows] - self._held[:, rows]
        room = np.asarray(idle + self._releasing[:, rows] - self._promised[:, rows])
        if self.crowded:  # which of its devices is whose is not known
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
    """Return the devices `among`, the most wanted first: those that are shared already and used
    most, or with `spread` those used least; ties by index.
    """

    def key(device: int) -> tuple[int, int, int]:
        used = table.used(row, device)
        return (0, used, device) if spread else (-table.is_shared(row, device), -used, device)

    return tuple(sorted(among, key=key))
