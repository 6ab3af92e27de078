"""The ledger of queue shares: what every queue holds, by itself and with all below it."""

import numpy as np

from bindery.scheduler.ledgers.base import Operation, OperationKind
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.queues import QueueTable
from bindery.scheduler.model.resources import Request


class QueueLedger:
    """Keeps `allocated` of the queue table in step with Statements, and its sums up the tree."""

    name = "queues"

    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues
        self.chains = [queues.chain(row) for row in range(len(queues.entries))]
        """Queue row -> rows of itself and its ancestors, bottom up."""
        self.allocated: IntColumns = np.zeros_like(queues.allocated)
        """[resource, queue]: what active and pipelined pods hold, with all queues below."""
        for row, chain in enumerate(self.chains):
            self.allocated[:, list(chain)] += queues.allocated[:, [row]]

    def apply(self, operation: Operation) -> None:
        """Enter `operation`. Limits are the business of the `queuelimits` plugin."""
        self._enter(operation, -1 if operation.kind is OperationKind.EVICT else 1)

    def revert(self, operation: Operation) -> None:
        """Take `operation` back."""
        self._enter(operation, 1 if operation.kind is OperationKind.EVICT else -1)

    def _enter(self, operation: Operation, sign: int) -> None:
        row, request = operation.task.queue_row, operation.task.shape.request
        if operation.kind is not OperationKind.PIPELINE:
            self._queues.hold(row, request, sign)
        self._add(row, request, sign)

    def _add(self, row: int, request: Request, sign: int) -> None:
        for index, amount in zip(request.indices, request.amounts, strict=True):
            for ancestor in self.chains[row]:
                self.allocated[index, ancestor] += sign * amount
