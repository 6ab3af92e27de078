"""The ledger of queues: their amounts, by themselves and with all queues below."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bindery.api.names import GPU_RESOURCE
from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.queues import QueueTable, rolled_up
from bindery.scheduler.model.resources import Request


class QueueLedger:
    """Updates the amounts of queues with Statements, and their sums up the tree."""

    name = "queues"

    def __init__(self, queues: QueueTable, nodes: NodeTable) -> None:
        self._queues = queues
        self._nodes = nodes
        self.chains = queues.chains()
        """Queue row -> rows of itself and its ancestors, bottom up."""
        self._quota, _, self._limit = queues.rules()
        self.unsettled: Callable[[], None] | None = None
        """Charges what gangs hold beside their pods in the plan so far; None if all is charged."""
        self._allocated = self.rolled_up(queues.allocated)
        self._non_preemptible = self.rolled_up(queues.non_preemptible)
        leaving = queues.releasing
        # Mostly nothing is being released, and the sums of thousands of queues take milliseconds.
        self.releasing = self.rolled_up(leaving) if leaving.any() else np.zeros_like(leaving)
        """[resource, queue]: amounts still held by evicted and deleted pods."""

    @property
    def allocated(self) -> IntColumns:
        """[resource, queue]: what gangs hold, with all queues below.

        That is the amounts of active and pipelined pods, and what is charged beside pods.
        """
        if self.unsettled is not None:
            self.unsettled()
        return self._allocated

    @property
    def non_preemptible(self) -> IntColumns:
        """[resource, queue]: the part of `allocated` that may not be evicted for others."""
        if self.unsettled is not None:
            self.unsettled()
        return self._non_preemptible

    def charge(self, row: int, amounts: NDArray[np.int64], *, preemptible: bool) -> None:
        """Add `amounts` [resource], which a gang of the queue at `row` holds beside its pods."""
        for ancestor in self.chains[row]:
            self._allocated[:, ancestor] += amounts
            if not preemptible:
                self._non_preemptible[:, ancestor] += amounts

    def apply(self, operation: Operation) -> None:
        """Enter `operation`; refuse it if a limit for GPUs that depends on the node is exceeded.

        The `queuelimits` and `fairshare` plugins check all other limits.
        """
        if operation.kind is not OperationKind.EVICT:
            self._check_model(operation)
            if operation.task.shape.request.is_by_memory:
                self._check_share(operation)
        self._enter(operation, -1 if operation.kind is OperationKind.EVICT else 1)

    def revert(self, operation: Operation) -> None:
        """Undo `operation`."""
        self._enter(operation, 1 if operation.kind is OperationKind.EVICT else -1)

    def _enter(self, operation: Operation, sign: int) -> None:
        task = operation.task
        request = self._nodes.charge(operation.row, task.shape.request)
        if operation.kind is OperationKind.ALLOCATE:
            self._queues.ask(task.queue_row, task.shape.request, -sign)
        # A pipelined pod stays pending in the queue table; only the sums of this ledger count it.
        if operation.kind is not OperationKind.PIPELINE:
            self._queues.hold(task.queue_row, request, preemptible=task.is_preemptible, sign=sign)
        self._add(self._allocated, task.queue_row, request, sign)
        if operation.kind is OperationKind.EVICT:
            self._queues.leave(task.queue_row, request, -sign)
            self._add(self.releasing, task.queue_row, request, -sign)
        if not task.is_preemptible:
            self._add(self._non_preemptible, task.queue_row, request, sign)

    def _check_model(self, operation: Operation) -> None:
        task = operation.task
        request = task.shape.request.in_queues
        charged = self._nodes.charge(operation.row, request)
        # `charge` appends the GPUs of the model to the request's own amounts.
        for index, amount in zip(
            charged.indices[len(request.indices) :],
            charged.amounts[len(request.amounts) :],
            strict=True,
        ):
            for row in self.chains[task.queue_row]:
                over = self.allocated[index, row] + amount > self._limit[index, row]
                pinned = not task.is_preemptible and (
                    self.non_preemptible[index, row] + amount > self._quota[index, row]
                )
                if over or pinned:
                    name, model = self._queues.entries[row].name, self._queues.axis.names[index]
                    bound = "limit" if over else "quota, for non-preemptible jobs,"
                    raise LedgerRefusalError(f"queue {name} is at its {bound} of {model}")

    def _check_share(self, operation: Operation) -> None:
        """Refuse a share of a GPU by memory that exceeds a limit on this node.

        The plugins have checked only its smallest amount over all nodes.
        """
        task, gpu = operation.task, self._queues.axis.index(GPU_RESOURCE)
        request = self._nodes.charge(operation.row, task.shape.request)
        amount = request.amounts[request.indices.index(gpu)]
        for row in self.chains[task.queue_row]:
            if self.allocated[gpu, row] + amount > self._limit[gpu, row]:
                name = self._queues.entries[row].name
                raise LedgerRefusalError(f"queue {name} is at its limit of GPUs")

    def rolled_up(self, own: IntColumns) -> IntColumns:
        """Return the sums of each queue with all queues below; `own` has their own amounts."""
        return rolled_up(own, self.chains)

    def _add(self, columns: IntColumns, row: int, request: Request, sign: int) -> None:
        for index, amount in zip(request.indices, request.amounts, strict=True):
            for ancestor in self.chains[row]:
                columns[index, ancestor] += sign * amount
