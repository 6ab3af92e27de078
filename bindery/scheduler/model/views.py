"""Read-only views of the tables: no member of these types changes anything.

Plugins get these types. Only the cache and the ledgers get the tables themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bindery.api.gpushare import GpuShare
from bindery.kube.objects.watched import Node
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.images import UsedImages
from bindery.scheduler.model.queues import QueueEntry
from bindery.scheduler.model.resources import Request, ResourceAxis
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows


class Columns(Protocol):
    """A read-only array; each attribute of this type documents its axes."""

    def __getitem__(self, place: Any, /) -> Any:
        """Return the values at `place`, as numpy does."""


class DevicesView(Protocol):
    """The GPUs of nodes one by one; see `model.devices`."""

    def count(self, row: int) -> int:
        """Return the number of devices of the node at `row`."""

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Return the number of devices of each of `rows`."""

    def memory_mib(self, rows: Rows | int) -> NDArray[np.int64]:
        """Return the memory of one device of each of `rows`, in MiB; 0 if not known."""

    def used(self, row: int, device: int) -> int:
        """Return the held and promised amount of a device, without the releasing amount."""

    @property
    def has_shared(self) -> bool:
        """Whether a device is held in part, or a node has more tenants than devices."""

    def is_shared(self, row: int, device: int) -> bool:
        """Return whether a device has a GPU group."""

    def free(self, rows: Rows) -> NDArray[np.int64]:
        """Return the free part of each device after all releases [device, position in rows]."""

    def portions(self, share: GpuShare, rows: Rows) -> NDArray[np.int64]:
        """Return `share` as a portion of a device of each of `rows`."""

    def fits_now(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return a mask of `rows`: enough devices have idle room for `share`."""

    def fits_later(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return a mask of `rows`: `share` fits when all releasing pods have gone."""

    def joins_now(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return a mask of `rows`: `share` fits on devices that already have a GPU group."""

    def joins_later(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return the same as `joins_now`, for when all releasing pods have gone."""


class NodesView(Protocol):
    """All nodes by row; columns are [resource, node row], int64, in units of the axis."""

    @property
    def axis(self) -> ResourceAxis:
        """The names and units of resources."""

    @property
    def rows(self) -> Mapping[str, int]:
        """Node name -> row."""

    @property
    def nodes(self) -> Sequence[Node | None]:
        """The node of each row; None for a row without a node."""

    @property
    def version(self) -> int:
        """Grows when labels, taints, allocatable or readiness of a node change."""

    @property
    def allocatable(self) -> Columns:
        """Allocatable amounts of the nodes."""

    @property
    def idle(self) -> Columns:
        """Allocatable minus used; negative on an over-committed node."""

    @property
    def releasing(self) -> Columns:
        """The part of the used amounts that pods are releasing."""

    @property
    def pipelined(self) -> Columns:
        """Amounts promised to pipelined pods out of idle and releasing room."""

    @property
    def devices(self) -> DevicesView:
        """GPUs one by one."""

    def image_percent(self, used: UsedImages) -> Columns:
        """Return how much of the images of a pod each node has, 0 to 100 [node row]."""

    def name(self, row: int) -> str:
        """Return the name of the node at `row`."""

    def demands(
        self, request: Request, rows: Rows
    ) -> Iterator[tuple[int, int | NDArray[np.int64]]]:
        """Yield each position on the resource axis with the amount of `request` on `rows`.

        The amount is an array if it differs between nodes.
        """

    def serves(self, index: int, rows: Rows) -> BoolColumn:
        """Return on which of `rows` devices of a class serve the resource at `index`."""

    def least_on_nodes(self, request: Request) -> Request:
        """Return the smallest amounts of `request` in these columns, on any node."""

    def least(self, request: Request) -> Request:
        """Return `request` with its smallest amounts over all nodes."""


class PodCountsView(Protocol):
    """How many pods of each shape exist; see `model.state`."""

    @property
    def version(self) -> int:
        """Grows with each change."""

    @property
    def by_day(self) -> Mapping[str, Mapping[Shape, int]]:
        """Day of creation (`2026-01-31`, UTC; "" if not known) -> shape -> number of pods."""


class QueuesView(Protocol):
    """All queues by row."""

    @property
    def entries(self) -> Sequence[QueueEntry]:
        """The queue of each row."""


class StateView(Protocol):
    """The state that plans are made on; see `model.state`."""

    @property
    def axis(self) -> ResourceAxis:
        """The names and units of resources."""

    @property
    def nodes(self) -> NodesView:
        """The nodes."""

    @property
    def queues(self) -> QueuesView:
        """The queues."""

    @property
    def pod_counts(self) -> PodCountsView:
        """The number of pods by shape and day of creation."""


class QueueSums(Protocol):
    """Amounts of each queue with all queues below it, by the open plan: [resource, queue row]."""

    @property
    def chains(self) -> Sequence[Sequence[int]]:
        """Queue row -> the row itself and those of its ancestors, bottom up."""

    @property
    def allocated(self) -> Columns:
        """Amounts held by active pods."""

    @property
    def non_preemptible(self) -> Columns:
        """The part of `allocated` held by pods that may not be evicted for others."""

    @property
    def releasing(self) -> Columns:
        """Amounts still held by evicted and deleted pods."""


class SharesView(Protocol):
    """The fair shares of queues: [resource, queue row]; see `fairness.shares`."""

    @property
    def quota(self) -> Columns:
        """Quotas; infinite for no quota."""

    @property
    def limit(self) -> Columns:
        """Limits; infinite for no limit."""

    @property
    def limits(self) -> Sequence[Mapping[int, float]]:
        """Queue row -> its limits: position on the resource axis -> units."""

    def order_key(
        self, row: int, request: Mapping[int, int], change: Mapping[int, int]
    ) -> tuple[float, ...]:
        """Return the key of the queue for the order in which queues are served.

        `request`: what its next job adds. `change`: what a plan adds to the queue or takes from it.
        Both: position on the resource axis -> units.
        """
