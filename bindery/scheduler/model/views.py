"""The tables as those see them who only read: no member of these types changes anything.

Plugins get these types; the tables themselves go to the cache and to ledgers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bindery.api.gpushare import GpuShare
from bindery.kube.objects import Node
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.queues import QueueEntry
from bindery.scheduler.model.resources import Request, ResourceAxis
from bindery.scheduler.model.verdicts import Rows


class Columns(Protocol):
    """An array that is only read; its axes are named where it stands."""

    def __getitem__(self, place: Any, /) -> Any:
        """Return the values at `place`, as numpy does."""
        ...


class DevicesView(Protocol):
    """The GPUs of nodes one by one; see `model.devices`."""

    def count(self, row: int) -> int:
        """Return how many devices the node at `row` has."""
        ...

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Return how many devices each of `rows` has."""
        ...

    def memory_mib(self, rows: Rows | int) -> NDArray[np.int64]:
        """Return the memory of one device of each of `rows`, 0 where it is not known."""
        ...

    def used(self, row: int, device: int) -> int:
        """Return how much of a device pods hold or were promised."""
        ...

    def is_shared(self, row: int, device: int) -> bool:
        """Return whether a GPU group stands on a device."""
        ...

    def fits_now(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return on which of `rows` enough devices have idle room for `share`."""
        ...

    def fits_later(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return on which of `rows` `share` fits once all that is being released has gone."""
        ...

    def joins_now(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return on which of `rows` `share` fits onto devices that are shared already."""
        ...

    def joins_later(self, share: GpuShare, rows: Rows) -> BoolColumn:
        """Return the same as `joins_now`, once all that is being released has gone."""
        ...


class NodesView(Protocol):
    """All nodes by row; columns are [resource, node row], int64, in units of the axis."""

    @property
    def axis(self) -> ResourceAxis:
        """The names and units of resources."""
        ...

    @property
    def rows(self) -> Mapping[str, int]:
        """Node name -> row."""
        ...

    @property
    def nodes(self) -> Sequence[Node | None]:
        """The node of each row; None where there is none any more."""
        ...

    @property
    def version(self) -> int:
        """Grows when labels, taints, allocatable or readiness of a node change."""
        ...

    @property
    def allocatable(self) -> Columns:
        """What nodes offer to pods."""
        ...

    @property
    def idle(self) -> Columns:
        """What nobody holds; negative where a node is overcommitted."""
        ...

    @property
    def releasing(self) -> Columns:
        """What is held by pods that are going."""
        ...

    @property
    def pipelined(self) -> Columns:
        """What is promised of idle and releasing room."""
        ...

    @property
    def devices(self) -> DevicesView:
        """GPUs one by one."""
        ...

    def name(self, row: int) -> str:
        """Return the name of the node at `row`."""
        ...

    def least(self, request: Request) -> Request:
        """Return the least that `request` takes on any node."""
        ...


class QueuesView(Protocol):
    """All queues by row."""

    @property
    def entries(self) -> Sequence[QueueEntry]:
        """The queue of each row."""
        ...


class StateView(Protocol):
    """The state that plans are made on; see `model.state`."""

    @property
    def axis(self) -> ResourceAxis:
        """The names and units of resources."""
        ...

    @property
    def nodes(self) -> NodesView:
        """The nodes."""
        ...

    @property
    def queues(self) -> QueuesView:
        """The queues."""
        ...


class QueueSums(Protocol):
    """What queues hold with all queues below them, as the plan stands: [resource, queue row]."""

    @property
    def chains(self) -> Sequence[Sequence[int]]:
        """Queue row -> itself and the queues above it, up to the top."""
        ...

    @property
    def allocated(self) -> Columns:
        """What active pods hold."""
        ...

    @property
    def non_preemptible(self) -> Columns:
        """The part of it that pods hold which may not be evicted for others."""
        ...

    @property
    def releasing(self) -> Columns:
        """What pods hold that are going."""
        ...


class SharesView(Protocol):
    """What queues deserve: [resource, queue row]; see `fairness.shares`."""

    @property
    def quota(self) -> Columns:
        """Quotas, infinite where there is none."""
        ...

    @property
    def limit(self) -> Columns:
        """Limits, infinite where there is none."""
        ...

    def is_over(self, row: int) -> bool:
        """Return whether the queue is above its fair share in all that it holds."""
        ...

    def fits_quota(self, row: int, added: Mapping[int, int]) -> bool:
        """Return whether the queue stays within its quota with `added` (resource -> units)."""
        ...

    def is_undeserving(self, row: int, added: Mapping[int, int]) -> bool:
        """Return whether the queue deserves nothing of what `added` asks for."""
        ...

    def dominant(self, row: int, added: Mapping[int, int] | None = None) -> float:
        """Return the largest part of its fair share that the queue holds, with `added`."""
        ...

    def size(self, row: int) -> float:
        """Return the size of the queue's allocatable share."""
        ...
