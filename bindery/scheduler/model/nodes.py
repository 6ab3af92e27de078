"""The nodes as columns: allocatable, idle, releasing and pipelined amounts.

Written by the cluster cache (truth) and by the node ledger (plans). A node keeps its row, and the
row of a deleted node is used again for a new one.

    idle = allocatable - used;  future idle = idle + releasing - pipelined
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bindery.api import quantity
from bindery.api.gpus import MODEL_PREFIX
from bindery.api.gpushare import RESERVATION_REQUESTS, WHOLE
from bindery.api.names import GPU_MODEL_LABEL, GPU_RESOURCE
from bindery.kube.objects.watched import Node, Taint
from bindery.scheduler.model.columns import BoolColumn, IntColumns, grown
from bindery.scheduler.model.devices import DeviceTable
from bindery.scheduler.model.images import ImageTable, UsedImages
from bindery.scheduler.model.jobs import NO_ROW, Task, TaskStatus
from bindery.scheduler.model.nodereading import (
    allocatable_of,
    decides_filters,
    devices_of,
    is_ready,
    offers,
)
from bindery.scheduler.model.resources import (
    Request,
    ResourceAxis,
    gpu_amount,
    reservation_amounts,
)
from bindery.scheduler.model.sharedcards import CardTable, shared_cards


class NodeTable:
    """Columns over nodes. Axis 0: resource (`ResourceAxis`); axis 1: node row. int64."""

    def __init__(self, axis: ResourceAxis) -> None:
        self.axis = axis
        self.rows: dict[str, int] = {}
        """Node name -> row."""
        self.nodes: list[Node | None] = []
        """Row -> node object; None for a free row."""
        self._free: list[int] = []
        self._models: dict[int, int] = {}
        """Row -> position of its GPU model on the resource axis, if the node has one."""
        self._cards = CardTable()
        self._charged: dict[tuple[int, Request], Request] = {}
        self._allocatable: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._idle: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._releasing: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._pipelined: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._foreign: IntColumns = np.zeros((0, 0), dtype=np.int64)
        self._cut_allocatable, self._cut_idle = self._allocatable, self._idle
        self._cut_releasing, self._cut_pipelined = self._releasing, self._pipelined
        """The columns, cut to the rows and resources in use."""
        self._order: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._order_version = -1
        self._ready: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._ready_version = -1
        self._exists: BoolColumn = np.zeros(0, dtype=np.bool_)
        self._exists_version = -1
        self.reservation: Request = axis.request(reservation_amounts(RESERVATION_REQUESTS))
        """Request of one reservation pod beside its device."""
        self._slots: Counter[int] = Counter()
        """Row -> number of reservation pods that are needed and do not exist yet."""
        self.devices = DeviceTable(self._take_slot, self._promise_slot)
        """GPUs one by one."""
        self.served: frozenset[int] = frozenset()
        """Positions of the resources that device classes serve; see `serves`. Set by
        `PlanState.serve`."""
        self.images = ImageTable()
        """Container images. They change no filter, and so not `version`."""
        self.version = 0
        """Grows with each change other than of usage; the version for caches of filters."""

    # -- columns, cut to the rows and resources in use; they are views and can be written --------

    @property
    def allocatable(self) -> IntColumns:
        """Allocatable amounts of the nodes."""
        self._make_room()
        return self._cut_allocatable

    @property
    def idle(self) -> IntColumns:
        """Allocatable minus used; negative on an over-committed node."""
        self._make_room()
        return self._cut_idle

    @property
    def releasing(self) -> IntColumns:
        """The part of the used amounts that pods are releasing."""
        self._make_room()
        return self._cut_releasing

    @property
    def pipelined(self) -> IntColumns:
        """Amounts promised to pipelined pods out of idle and releasing room."""
        self._make_room()
        return self._cut_pipelined

    @property
    def foreign(self) -> IntColumns:
        """The part of the used amounts that pods of other schedulers hold."""
        return self._foreign[: len(self.axis), : len(self.nodes)]

    @property
    def exists(self) -> BoolColumn:
        """Mask of the rows with a node. Do not write to it."""
        if self._exists_version != self.version:
            found = (node is not None for node in self.nodes)
            self._exists = np.fromiter(found, np.bool_, len(self.nodes))
            self._exists_version = self.version
        return self._exists

    def used(self) -> IntColumns:
        """Return the amounts that pods hold, releasing pods included."""
        return self.allocatable - self.idle

    def in_name_order(self) -> NDArray[np.intp]:
        """Return the rows of all nodes sorted by name. Ties are broken in this order."""
        if self._order_version != self.version:
            names = sorted(self.rows)
            self._order = np.array([self.rows[name] for name in names], dtype=np.intp)
            self._order_version = self.version
        return self._order

    def charge(self, row: int, request: Request) -> Request:
        """Return the amounts that a pod at `row` counts in its queue, with its GPUs by model."""
        model, request = self._models.get(row), self._by_memory(row, request).in_queues
        gpus = self._cards.charged(row, request)
        if gpus is not None:
            request = request.instead(self.axis.index(GPU_RESOURCE), gpus)
        if model is None:
            return request
        # Cached: equal pods share one request object.
        charged = self._charged.get((model, request))
        if charged is None:
            gpu = self.axis.index(GPU_RESOURCE)
            gpus = sum(a for i, a in zip(request.indices, request.amounts, strict=True) if i == gpu)
            charged = request.plus({model: gpus}) if gpus else request
            self._charged[model, request] = charged
        return charged

    def changes_devices(self, node: Node) -> bool:
        """Return whether the known `node` has other GPUs, so that its pods count other amounts."""
        old = self.nodes[self.rows[node.metadata.name]]
        if old is None:
            return False
        if devices_of(old) != devices_of(node) or shared_cards(old) != shared_cards(node):
            return True
        names = [self.axis.names[index] for index in self.served]
        return any(offers(old, name) != offers(node, name) for name in names)

    # -- parts of GPUs by memory: their amount differs from node to node -------------------------

    def demand(self, row: int, request: Request) -> Request:
        """Return `request` with the amounts that it has on the node at `row`."""
        for index in self.served.intersection(request.indices):
            if not self.allocatable[index, row]:
                request = request.instead(index, 0)
        return self._by_memory(row, request)

    def serves(self, index: int, rows: NDArray[np.intp]) -> BoolColumn:
        """Return on which of `rows` devices of a class serve the resource at `index`.

        That is where the class exists and no device plugin offers the resource. There, pods hold
        none of it in these columns; the ledger of claims counts the devices.
        """
        if index not in self.served:
            return np.zeros(len(rows), dtype=np.bool_)
        return np.asarray(self.allocatable[index, rows] == 0)

    def _by_memory(self, row: int, request: Request) -> Request:
        share = request.share
        if share is None or not share.memory_mib:
            return request
        amount = gpu_amount(self.devices.portion(share, row), share.devices)
        return request.instead(self.axis.index(GPU_RESOURCE), amount)

    def demands(
        self, request: Request, rows: NDArray[np.intp]
    ) -> Iterator[tuple[int, int | NDArray[np.int64]]]:
        """Yield each position on the resource axis with the amount of `request` on `rows`.

        The amount is an array if it differs between nodes.
        """
        gpu, share = self.axis.index(GPU_RESOURCE), request.share
        for index, amount in zip(request.indices, request.amounts, strict=True):
            if index == gpu and share is not None and share.memory_mib:
                portions = self.devices.portions(share, rows)
                # The same formula as `gpu_amount`, over an array.
                yield index, np.maximum(portions * 1000 // WHOLE, 1) * share.devices
            elif index in self.served:
                yield index, np.where(self.serves(index, rows), 0, amount)
            else:
                yield index, amount

    def least(self, request: Request) -> Request:
        """Return `request` with its smallest amounts: those on nodes with the largest devices."""
        gpus = self._cards.least(request)
        if gpus is not None:
            return request.instead(self.axis.index(GPU_RESOURCE), gpus)
        memories = self.devices.known_memories() if request.is_by_memory else ()
        return self._by(request, int(max(memories))) if len(memories) else request

    def least_on_nodes(self, request: Request) -> Request:
        """Return the smallest amounts of `request` in these columns, on any node."""
        least = self.least(request).on_nodes
        for index in self.served.intersection(least.indices):
            least = least.instead(index, 0)
        return least

    def image_percent(self, used: UsedImages) -> NDArray[np.int64]:
        """Return how much of the images of a pod each node has, 0 to 100 [node row]."""
        return self.images.percent(used, len(self.nodes), len(self.rows))

    def smallest_device_mib(self) -> int:
        """Return the smallest known device memory, in MiB; 0 if none is known."""
        return int(min(self.devices.known_memories(), default=0))

    def _by(self, request: Request, device_mib: int) -> Request:
        assert request.share is not None, "only shares differ from node to node"
        portion = request.share.portion_of(device_mib) or WHOLE
        amount = gpu_amount(min(portion, WHOLE), request.share.devices)
        return request.instead(self.axis.index(GPU_RESOURCE), amount)

    def total(self, further: Sequence[Mapping[int, int]] = ()) -> NDArray[np.int64]:
        """Return the amounts that ready nodes offer to queues [resource], with GPUs by model.

        `further`: row -> number of GPUs that are no resources of the node; `NO_ROW` for GPUs that
        several nodes can use.
        """
        total = self.offered(self._ready_rows(), further).sum(axis=1)
        shared = sum(by_row.get(NO_ROW, 0) for by_row in further)
        total[self.axis.index(GPU_RESOURCE)] += shared * quantity.scale(GPU_RESOURCE)
        return np.asarray(total, dtype=np.int64)

    def offered(self, rows: NDArray[np.intp], further: Sequence[Mapping[int, int]]) -> IntColumns:
        """Return the amounts that the nodes at `rows` offer to queues, with GPUs by model.

        [resource, position in rows]. Pods of other schedulers take theirs. `further`: see `total`.
        """
        # Pods of other schedulers may hold more than their node has.
        offered = np.maximum((self.allocatable - self.foreign)[:, rows], 0)
        gpu = self.axis.index(GPU_RESOURCE)
        for index, gpus in self.axis.counted_as_gpus():
            if index < len(offered):
                offered[gpu] += offered[index] * gpus
        for row, cards in self._cards.all():  # allocatable of these nodes counts shares, not cards
            offered[gpu, rows == row] = cards
        more = np.zeros(len(self.nodes) + 1, dtype=np.int64)  # the last is that of NO_ROW
        for by_row in further:
            for row, count in by_row.items():
                more[row] += count * quantity.scale(GPU_RESOURCE)
        offered[gpu] += more[rows]
        if self._models:
            models = np.fromiter((self._models.get(row, NO_ROW) for row in rows), np.intp)
            known = np.flatnonzero(models != NO_ROW)
            np.add.at(offered, (models[known], known), offered[gpu, known])
        return np.asarray(offered)

    def _ready_rows(self) -> NDArray[np.intp]:
        if self._ready_version != self.version:
            rows = (row for row, node in enumerate(self.nodes) if node and is_ready(node))
            self._ready = np.fromiter(rows, np.intp)
            self._ready_version = self.version
        return self._ready

    def name(self, row: int) -> str:
        """Return the name of the node at `row`."""
        node = self.nodes[row]
        assert node is not None, f"row {row} is no node"
        return node.metadata.name

    # -- what the cache writes -----------------------------------------------------------------

    def put(self, node: Node) -> int:
        """Add or update a node; return its row. Raises QuantityError and changes nothing."""
        # Parse first: an error must leave the table unchanged.
        amounts = allocatable_of(node)
        row = self.rows.get(node.metadata.name, NO_ROW)
        if row == NO_ROW:
            row = self._new_row(node)
        old = self.nodes[row]
        if old is None or decides_filters(old, node):
            self.version += 1
        self.nodes[row] = node
        self.devices.put_node(row, *devices_of(node)[1:])
        self._cards.put(row, shared_cards(node))
        model = node.metadata.labels.get(GPU_MODEL_LABEL)
        if model:
            self._models[row] = self.axis.index(MODEL_PREFIX + model)
        else:
            self._models.pop(row, None)
        # New resources lengthen the axis, so the columns grow only after all have an index.
        indices = {self.axis.index(name): amount for name, amount in amounts.items()}
        self._make_room()
        # A node may offer less than before; its pods still hold the same amounts.
        used = self.allocatable[:, row] - self.idle[:, row]
        self.allocatable[:, row] = 0
        for index, amount in indices.items():
            self.allocatable[index, row] = amount
        self.idle[:, row] = self.allocatable[:, row] - used
        return row

    def remove(self, name: str) -> None:
        """Remove the node `name`. The caller has withdrawn its pods before."""
        row = self.rows.pop(name)
        self.nodes[row] = None
        self._models.pop(row, None)
        self.images.put(row, ())
        self.images.nodes_changed()
        self._cards.put(row, None)
        self.devices.put_node(row, 0, 0)
        self._free.append(row)
        for columns in (
            self.allocatable,
            self.idle,
            self.releasing,
            self.pipelined,
            self.foreign,
        ):
            columns[:, row] = 0
        self.version += 1

    def empty(self) -> None:
        """Remove all holds and promises of pods from all nodes."""
        self._make_room()
        self.devices.empty()
        self._idle[:] = self._allocatable
        for columns in (self._releasing, self._pipelined, self._foreign):
            columns[:] = 0

    def hold(self, row: int, request: Request, sign: int) -> None:
        """Add (`sign` 1) or remove (-1) a pod that holds room on the node."""
        self._make_room()
        request = self.demand(row, request)
        for index, amount in zip(request.indices, request.amounts, strict=True):
            self._idle[index, row] -= sign * amount

    def hold_task(self, task: Task, sign: int) -> None:
        """Add (`sign` 1) or remove (-1) a pod on its node, by its status and scheduler."""
        self.hold(task.row, task.shape.request, sign)
        if not task.is_ours:
            self.hold_foreign(task.row, task.shape.request, sign)
        if task.status is TaskStatus.RELEASING:
            self.release(task.row, task.shape.request, sign)

    def set_reservation(self, request: Request) -> None:
        """Set the request of a reservation pod, also for those counted already."""
        if request == self.reservation:
            return
        for row, count in self._slots.items():
            self.hold(row, self.reservation, -count)
            self.hold(row, request, count)
        self.reservation = request

    def _take_slot(self, row: int, sign: int) -> None:
        """Reserve (1) or free (-1) room for a reservation pod that does not exist yet."""
        self._slots[row] += sign
        if not self._slots[row]:
            del self._slots[row]
        self.hold(row, self.reservation, sign)

    def _promise_slot(self, row: int, sign: int) -> None:
        """Promise room to one such pod (1), or end the promise (-1)."""
        self.promise(row, self.reservation, sign)

    def hold_foreign(self, row: int, request: Request, sign: int) -> None:
        """Add or remove a pod of another scheduler; its amount is not divided among queues."""
        self._make_room()
        request = self.demand(row, request)
        for index, amount in zip(request.indices, request.amounts, strict=True):
            self._foreign[index, row] += sign * amount

    def release(self, row: int, request: Request, sign: int) -> None:
        """Add or remove a pod that is releasing its room."""
        self._make_room()
        request = self.demand(row, request)
        for index, amount in zip(request.indices, request.amounts, strict=True):
            self._releasing[index, row] += sign * amount

    def promise(self, row: int, request: Request, sign: int) -> None:
        """Add or remove a pod that waits for room that is being released."""
        self._make_room()
        request = self.demand(row, request)
        for index, amount in zip(request.indices, request.amounts, strict=True):
            self._pipelined[index, row] += sign * amount

    def _new_row(self, node: Node) -> int:
        if self._free:
            row = self._free.pop()
        else:
            row = len(self.nodes)
            self.nodes.append(None)
        self.rows[node.metadata.name] = row
        self.images.nodes_changed()
        return row

    def _make_room(self) -> None:
        resources, items = len(self.axis.names), len(self.nodes)
        if self._cut_idle.shape == (resources, items):  # it is asked many times for each pod
            return
        if self._idle.shape[0] < resources or self._idle.shape[1] < items:
            self._allocatable = grown(self._allocatable, resources, items)
            self._idle = grown(self._idle, resources, items)
            self._releasing = grown(self._releasing, resources, items)
            self._pipelined = grown(self._pipelined, resources, items)
            self._foreign = grown(self._foreign, resources, items)
        self._cut_allocatable = self._allocatable[:resources, :items]
        self._cut_idle = self._idle[:resources, :items]
        self._cut_releasing = self._releasing[:resources, :items]
        self._cut_pipelined = self._pipelined[:resources, :items]


def taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints that keep pods away from the node."""
    return tuple(taint for taint in node.spec.taints or () if taint.effect != "PreferNoSchedule")
