"""The ledger of single GPUs: no plan gives away more of a device than it has.

It follows the node ledger, which has only the sum of the free GPUs of a node. It chooses the
devices of every pod with GPUs, in the order of the plugins' choice. Without a choice, shares go
onto the fullest devices.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from bindery.api.gpushare import WHOLE, GpuShare
from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.devices import DeviceTable, Places, in_order
from bindery.scheduler.model.jobs import JobKey, Task
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.state import PlanState

Choose = Callable[[Task, int], Sequence[int] | None]
"""The plugins' choice: the devices of a node row for a task, best first; None without a choice."""

_GROUPS: Final = uuid.UUID("7a1f4f0e-4b8b-5a83-9a53-5d1d6f0b7c11")
"""The namespace for the names of GPU groups; its value is arbitrary."""


class DeviceLedger:
    """Enters the operations of Statements into the device table."""

    name = "devices"

    def __init__(self, state: PlanState, choose: Choose) -> None:
        self._state = state
        self._nodes: NodeTable = state.nodes
        self._table: DeviceTable = state.nodes.devices
        self._choose = choose

    def apply(self, operation: Operation) -> None:
        """Enter `operation`; refuse it without room on the devices."""
        task, share = operation.task, operation.task.shape.request.share
        if share is None:
            return
        if operation.kind is OperationKind.EVICT:
            # A pod on a node without single devices has no places.
            if task.uid in self._table.held_by:
                self._table.release(task.uid, 1)
            return
        if share.portion == WHOLE and not self._table.count(operation.row):
            return  # the node has GPUs only as a sum, in the node ledger
        now = operation.kind is OperationKind.ALLOCATE
        places = self._places(task, share, operation.row, now=now)
        if now:
            self._table.hold(task.uid, places)
        else:
            self._table.promise(task.uid, places)

    def revert(self, operation: Operation) -> None:
        """Undo `operation`."""
        uid = operation.task.uid
        if operation.task.shape.request.share is None:
            return
        # On a node without single devices, `apply` has entered nothing.
        if operation.kind is OperationKind.EVICT:
            if uid in self._table.held_by:
                self._table.release(uid, -1)
        elif operation.kind is OperationKind.ALLOCATE:
            if uid in self._table.held_by:
                self._table.let_go(uid)
        elif uid in self._table.promised_to:
            self._table.break_promise(uid)

    def _places(self, task: Task, share: GpuShare, row: int, *, now: bool) -> Places:
        table = self._table
        room = table.candidates(share, row, now=now)
        apart = self._of_other_jobs(task, row, room.tolist())
        # The message distinguishes full devices from the job's own pods in the way.
        if len(apart) < share.devices:
            raise LedgerRefusalError(self._refusal(share, row, len(room) >= share.devices))
        if share.portion == WHOLE:  # free devices are equal, so plugins have no choice
            return Places(row, tuple(apart[: share.devices]), (), WHOLE)
        wanted = [device for device in self._choose(task, row) or () if device in apart]
        # A plugin may choose too few of the devices with room.
        if len(wanted) < share.devices:
            wanted = list(in_order(table, row, apart, spread=False))
        devices = tuple(wanted[: share.devices])
        portion = table.portion(share, row)
        groups = self._groups(task, row, devices)
        places = Places(row, devices, groups, portion)
        self._demand_slots(places, now=now)
        return places

    def _of_other_jobs(self, task: Task, row: int, devices: list[int]) -> list[int]:
        """Leave out the devices of other pods of the job, if the job spreads over devices."""
        if not task.spreads_devices:
            return devices
        taken = {
            device
            for places in self._of_job(task.job)
            if places.row == row
            for device in places.devices
        }
        return [device for device in devices if device not in taken]

    def _of_job(self, key: JobKey) -> Iterator[Places]:
        """Yield the held and promised places of the job's pods."""
        for uid in self._state.jobs[key].tasks:
            for places in (self._table.held_by.get(uid), self._table.promised_to.get(uid)):
                if places is not None:
                    yield places

    def _groups(self, task: Task, row: int, devices: tuple[int, ...]) -> tuple[str, ...]:
        """Return the group of each device, or a new group for a device without one.

        The name is derived from pod and node, so the same snapshot gives the same plan in every
        scheduler.
        """
        groups: list[str] = []
        number = 0
        for device in devices:
            group = self._table.group_on(row, device)
            while group is None:
                text = f"{task.uid}/{self._nodes.name(row)}/{number}"
                name = str(uuid.uuid5(_GROUPS, text))
                group = name if self._table.device_of(row, name) is None else None
                number += 1
            groups.append(group)
        return tuple(groups)

    def _demand_slots(self, places: Places, *, now: bool) -> None:
        """Raise LedgerRefusalError without room for the reservation pods of new groups."""
        new, row, nodes = len(self._table.opened_by(places, now=now)), places.row, self._nodes
        if not new:
            return
        for index, amount in zip(nodes.reservation.indices, nodes.reservation.amounts, strict=True):
            idle = int(nodes.idle[index, row])
            later = idle + int(nodes.releasing[index, row] - nodes.pipelined[index, row])
            # Room that is promised must stay free, so `later` can be less than `idle`.
            if new * amount > (min(idle, later) if now else later):
                raise LedgerRefusalError(
                    f"insufficient {nodes.axis.names[index]} for the reservation pod of a GPU",
                    fits_later=now and new * amount <= later,
                )

    def _refusal(self, share: GpuShare, row: int, is_apart: bool) -> str:
        name = self._nodes.name(row)
        if is_apart:
            return f"node {name} has no GPU without another pod of the job"
        return f"node {name} has no room for {share_text(share)}"


def share_text(share: GpuShare) -> str:
    """Return `share` for a message; it may be a number of whole devices."""
    return f"{share.devices} whole GPUs" if share.portion == WHOLE else str(share)
