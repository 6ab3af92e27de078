"""The ledger of node resources: no plan uses more than a node has."""

from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.resources import Request


class NodeLedger:
    """Updates idle, releasing and pipelined amounts of the node table with Statements.

    It also logs the changed rows, with which placement updates its cached scores.
    """

    name = "nodes"

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.touched: list[int] = []
        """Changed rows in order; append-only."""
        self.has_evicted = False
        """Whether a Statement has evicted a pod, also if it was undone."""
        self.has_kept = False
        """Whether room was kept for a reservation, also if it was given back."""

    def apply(self, operation: Operation) -> None:
        """Enter `operation`; refuse it if the pod does not fit."""
        row, request = operation.row, operation.task.shape.request
        if operation.kind is OperationKind.EVICT:
            self.has_evicted = True
            self._nodes.release(row, request, 1)
        else:
            self._check(operation)
            if operation.kind is OperationKind.ALLOCATE:
                self._nodes.hold(row, request, 1)
            else:
                self._nodes.promise(row, request, 1)
        self.touched.append(row)

    def revert(self, operation: Operation) -> None:
        """Undo `operation`."""
        row, request = operation.row, operation.task.shape.request
        if operation.kind is OperationKind.EVICT:
            self._nodes.release(row, request, -1)
        elif operation.kind is OperationKind.ALLOCATE:
            self._nodes.hold(row, request, -1)
        else:
            self._nodes.promise(row, request, -1)
        self.touched.append(row)  # not popped: readers of the log may have seen the first entry

    def keep(self, row: int, request: Request, sign: int) -> None:
        """Keep (`sign` 1) room on a node for a gang with a reservation, or give it back (-1).

        It counts as promised room, but belongs to no pod and no operation.
        """
        self.has_kept = True
        self._nodes.promise(row, request, sign)
        self.touched.append(row)

    def let_go(self, row: int, request: Request, sign: int) -> None:
        """Count (`sign` 1) idle room as being released, or as idle again (-1).

        It was kept for a gang whose pods are being evicted, and goes with them.
        """
        self.has_evicted = True
        self._nodes.hold(row, request, sign)
        self._nodes.release(row, request, sign)
        self.touched.append(row)

    def _check(self, operation: Operation) -> None:
        nodes, row = self._nodes, operation.row
        request = nodes.demand(row, operation.task.shape.request)
        idle_now, releasing, pipelined = nodes.idle, nodes.releasing, nodes.pipelined
        for index, amount in zip(request.indices, request.amounts, strict=True):
            idle = int(idle_now[index, row])
            future = idle + int(releasing[index, row]) - int(pipelined[index, row])
            # The minimum keeps idle room that is promised to other pods out.
            room = future if operation.kind is OperationKind.PIPELINE else min(idle, future)
            if amount > room:
                resource = nodes.axis.names[index]
                raise LedgerRefusalError(
                    f"node {nodes.name(row)} has {nodes.axis.display(index, room)} of {resource}, "
                    f"{nodes.axis.display(index, amount)} requested"
                )
