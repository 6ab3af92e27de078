"""The GPUs of pods on nodes: writes the device table for one task at a time.

Used by charges.py. A pod object has the number of devices and the GPU groups. The index of the
device on the node is known only if the node reported it. Otherwise the table assigns a free device
to the pod and keeps it as long as the pod exists. Invariant: a task's entry is withdrawn exactly
as it was entered.
"""

from collections.abc import Iterable

from bindery.api.gpushare import WHOLE, GpuShare
from bindery.scheduler.model.devices import DeviceTable, Places, in_order
from bindery.scheduler.model.jobs import Task, TaskStatus, Uid


def known_first(tasks: Iterable[Task]) -> list[Task]:
    """Return `tasks` in the order in which they enter a node.

    Tasks with known devices come first: the others take the devices that are left.
    """
    return sorted(tasks, key=lambda task: (not task.gpu_indexes, task.uid))


class DevicePlaces:
    """Writes `table`, and remembers the devices of pods, so that updates of a pod keep them."""

    def __init__(self, table: DeviceTable) -> None:
        self._table = table
        self._last: dict[Uid, Places] = {}
        self._reserving: dict[Uid, tuple[int, str]] = {}
        """Reservation pod -> node row and group."""

    def enter(self, task: Task) -> None:
        """Enter the devices of `task`, which holds room on a known node."""
        share, row = task.shape.request.share, task.row
        if task.reserves_gpu:
            self._enter_reservation(task)
            return
        # A node without known devices, or with HAMi's sharing, has none in this table.
        if share is None or not self._table.count(row):
            return
        places = self._places(task, share)
        self._table.hold(task.uid, places)
        self._last[task.uid] = places
        if task.status is TaskStatus.RELEASING:
            self._table.release(task.uid, 1)

    def withdraw(self, task: Task) -> None:
        """Withdraw the devices of `task`. Its status has not changed since `enter`."""
        reserved = self._reserving.pop(task.uid, None)
        if reserved is not None:
            self._table.unreserve(*reserved)
        if task.uid in self._table.held_by:
            if task.status is TaskStatus.RELEASING:
                self._table.release(task.uid, -1)
            # Not `_last` as it was: a plan may have chosen other devices since `enter`.
            self._last[task.uid] = self._table.let_go(task.uid)

    def empty(self) -> None:
        """Forget all entries after the table was emptied; the last devices of pods stay known."""
        self._reserving.clear()

    def resettle(self, tasks: Iterable[Task]) -> None:
        """Assign devices again to `tasks`, all tasks of a crowded node that a pod has left.

        If two pods share a device only in the table, one of them really uses the device that has
        become free. Without a new assignment that device would count as free forever.
        """
        entered = known_first(tasks)
        for task in entered:
            self.withdraw(task)
            self.forget(task.uid)
        for task in entered:
            self.enter(task)

    def forget(self, uid: Uid) -> None:
        """Forget the last devices of a deleted pod."""
        self._last.pop(uid, None)

    def _enter_reservation(self, task: Task) -> None:
        """Enter a reservation pod for its group; a releasing one holds the device by itself."""
        table, row = self._table, task.row
        if not task.gpu_groups or not table.count(row):
            return
        group = task.gpu_groups[0]
        device = table.device_of(row, group)
        if device is None:
            seen = self._seen(task)
            device = self._free(row, seen[0] if seen else None, [])
        places = Places(row, (device,), (), WHOLE)
        self._last[task.uid] = places
        # A releasing one no longer serves its group, but its device is in use until it has gone.
        if task.status not in (TaskStatus.RELEASING, TaskStatus.STUCK):
            self._reserving[task.uid] = (row, group)
            table.reserve(row, group, device)
            return
        table.hold(task.uid, places)
        if task.status is TaskStatus.RELEASING:
            table.release(task.uid, 1)

    def _seen(self, task: Task) -> list[int]:
        """Return the reported devices of `task`; without a report, its last devices."""
        seen = [index for index in task.gpu_indexes if index < self._table.count(task.row)]
        last = self._last.get(task.uid)
        if not seen and last is not None and last.row == task.row:
            return list(last.devices)
        return seen

    def _places(self, task: Task, share: GpuShare) -> Places:
        row, portion = task.row, self._table.portion(share, task.row)
        seen = self._seen(task)
        if share.portion == WHOLE:
            return Places(row, self._whole(share, row, seen), (), WHOLE)
        # A pod without group labels gets groups of its own, so that it still takes its part.
        groups = task.gpu_groups or tuple(f"{task.uid}/{n}" for n in range(share.devices))
        devices: list[int] = []
        for number, group in enumerate(groups):
            device = self._table.device_of(row, group)
            if device is None:
                wish = seen[number] if len(seen) == len(groups) else None
                device = self._free(row, wish, devices)
            devices.append(device)
        return Places(row, tuple(devices), groups, min(portion, WHOLE))

    def _whole(self, share: GpuShare, row: int, seen: list[int]) -> tuple[int, ...]:
        devices: list[int] = []
        for number in range(share.devices):
            wish = seen[number] if number < len(seen) else None
            devices.append(self._free(row, wish, devices))
        return tuple(devices)

    def _free(self, row: int, wish: int | None, taken: list[int]) -> int:
        """Return `wish` if it is free, else the first free device.

        If none is free, mark the node as crowded and return `wish` or the device with most room.
        """
        table = self._table
        free = [
            index
            for index in range(table.count(row))
            if index not in taken and not table.is_shared(row, index) and not table.held(row, index)
        ]
        if wish is not None and wish in free:
            return wish
        if free:
            return free[0]
        # This happens, as watch events of pods and requests arrive in any order, and users may
        # set a pod's node themselves.
        table.crowded.add(row)
        if wish is not None:
            return wish
        return in_order(table, row, range(table.count(row)), spread=True)[0]
