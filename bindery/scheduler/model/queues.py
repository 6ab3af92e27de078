"""The queues as columns: limits and what each holds, and the tree that they form.

Written by the cluster cache and by the queue ledger. A queue that is only named, by a job, has a
row too, so that what its pods hold is counted when the Queue object comes later.
"""

from dataclasses import dataclass

import numpy as np

from bindery.api import quantity
from bindery.api.names import DEFAULT_QUEUE
from bindery.api.quantity import QuantityError
from bindery.api.queue import UNLIMITED
from bindery.kube.objects import Queue
from bindery.scheduler.model.columns import IntColumns, grown
from bindery.scheduler.model.jobs import NO_ROW
from bindery.scheduler.model.resources import Request, ResourceAxis

NO_LIMIT = np.iinfo(np.int64).max
"""The value in `limit` for "unlimited"."""


@dataclass(slots=True, eq=False)
class QueueEntry:
    """What is not a number about a queue."""

    name: str
    priority: int = 100
    parent: str | None = None
    is_open: bool = True
    created: str = ""
    exists: bool = False
    """Whether its object has been seen; the default queue need not exist."""
    invalid: str | None = None
    """Why its spec cannot be used: its gangs wait."""


class QueueTable:
    """Columns over queues. Axis 0: resource; axis 1: queue row. int64."""

    def __init__(self, axis: ResourceAxis) -> None:
        self.axis = axis
        self.rows: dict[str, int] = {}
        self.entries: list[QueueEntry] = []
        self._allocated: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._limits: dict[int, dict[int, int]] = {}
        """Queue row -> place on the resource axis -> limit."""
        self.version = 0
        """Grows with every change other than of what queues hold."""

    @property
    def allocated(self) -> IntColumns:
        """What active pods of the queue itself hold, without the queues below it."""
        self._make_room()
        return self._allocated[: len(self.axis), : len(self.entries)]

    def limit(self) -> IntColumns:
        """Return each queue's own limit [resource, queue], NO_LIMIT where there is none."""
        limit = np.full((len(self.axis), len(self.entries)), NO_LIMIT, dtype=np.int64)
        for row, limits in self._limits.items():
            for index, amount in limits.items():
                limit[index, row] = amount
        return limit

    def row(self, name: str) -> int:
        """Return the row of the queue `name`, giving it one if it is new."""
        row = self.rows.get(name, NO_ROW)
        if row == NO_ROW:
            row = self.rows[name] = len(self.entries)
            self.entries.append(QueueEntry(name, exists=name == DEFAULT_QUEUE))
            self.version += 1
        return row

    def put(self, queue: Queue) -> None:
        """Take in a queue object. A spec that cannot be used makes the queue invalid."""
        row = self.row(queue.metadata.name)
        entry = self.entries[row]
        entry.exists, entry.created = True, queue.metadata.creation_timestamp or ""
        entry.priority, entry.parent = queue.spec.priority, queue.spec.parent or None
        entry.is_open = queue.spec.state != "Closed"
        entry.invalid = None
        limits: dict[int, int] = {}
        for name, resource in queue.spec.resources.items():
            try:
                index = self.axis.index(name)
                amount = quantity.parse(resource.limit, self.axis.names[index])
            except QuantityError as error:
                entry.invalid = f"spec.resources.{name}.limit: {error}"
                continue
            if resource.limit not in (UNLIMITED, str(UNLIMITED)):
                if amount < 0:
                    entry.invalid = f"spec.resources.{name}.limit: {resource.limit} is negative"
                limits[index] = amount
        self._limits[row] = limits
        if entry.parent is not None:
            self.row(entry.parent)
        self.version += 1

    def remove(self, name: str) -> None:
        """Forget the object of the queue `name`; what its pods hold stays counted."""
        row = self.rows[name]
        self.entries[row] = QueueEntry(name, exists=name == DEFAULT_QUEUE)
        self._limits.pop(row, None)
        self.version += 1

    def hold(self, row: int, request: Request, sign: int) -> None:
        """Add (`sign` 1) or take back (-1) what a pod of the queue holds."""
        allocated = self.allocated
        for index, amount in zip(request.indices, request.amounts, strict=True):
            allocated[index, row] += sign * amount

    def chain(self, row: int) -> tuple[int, ...]:
        """Return the rows of a queue and its ancestors, bottom up; a cycle ends where it closes."""
        rows: list[int] = []
        at: int | None = row
        while at is not None and at not in rows:
            rows.append(at)
            parent = self.entries[at].parent
            at = None if parent is None else self.rows.get(parent)
        return tuple(rows)

    def problem(self, row: int) -> tuple[str, str] | None:
        """Return why nothing of the queue at `row` can be planned: (reason, text), or None."""
        for at in self.chain(row):
            entry = self.entries[at]
            if not entry.exists:
                return "QueueDoesNotExist", f"queue {entry.name} does not exist"
            if entry.invalid is not None:
                return "QueueInvalid", f"queue {entry.name} is not valid: {entry.invalid}"
            if not entry.is_open:
                return "QueueClosed", f"queue {entry.name} is closed"
        top = self.entries[self.chain(row)[-1]]
        if top.parent is not None:
            return "QueueInvalid", f"queue {top.name} is its own ancestor"
        return None

    def _make_room(self) -> None:
        if self._allocated.shape[0] < len(self.axis) or self._allocated.shape[1] < len(
            self.entries
        ):
            self._allocated = grown(self._allocated, len(self.axis), len(self.entries))
