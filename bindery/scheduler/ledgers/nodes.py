"""The ledger of node resources: no plan holds more than a node has."""

from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.resources import Request


class NodeLedger:
    """Keeps idle, releasing and pipelined of the node table in step with Statements.

    It also keeps the log of touched rows, from which placement refreshes its cached scores.
    """

    name = "nodes"

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.touched: list[int] = []
        """Rows in the order in which they were changed; only ever appended to."""
        self.has_evicted = False
        """Whether any Statement has evicted something, undone or not."""
        self.has_kept = False
        """Whether room has been kept for a reservation, given back or not."""

    def apply(self, operation: Operation) -> None:
        """Enter `operation`; refuse what does not fit."""
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
        """Take `operation` back."""
        row, request = operation.row, operation.task.shape.request
        if operation.kind is OperationKind.EVICT:
            self._nodes.release(row, request, -1)
        elif operation.kind is OperationKind.ALLOCATE:
            self._nodes.hold(row, request, -1)
        else:
            self._nodes.promise(row, request, -1)
        self.touched.append(row)

    def keep(self, row: int, request: Request, sign: int) -> None:
        """Keep (`sign` 1) room on a node for a gang that has a reservation, or give it back (-1).

        It is promised room that belongs to no pod, and so to no operation.
        """
        self.has_kept = True
        self._nodes.promise(row, request, sign)
        self.touched.append(row)

    def _check(self, operation: Operation) -> None:
        nodes, row = self._nodes, operation.row
        request = nodes.demand(row, operation.task.shape.request)
        for index, amount in zip(request.indices, request.amounts, strict=True):
            idle = int(nodes.idle[index, row])
            future = idle + int(nodes.releasing[index, row]) - int(nodes.pipelined[index, row])
            room = future if operation.kind is OperationKind.PIPELINE else min(idle, future)
            if amount > room:
                resource = nodes.axis.names[index]
                raise LedgerRefusalError(
                    f"node {nodes.name(row)} has {nodes.axis.display(index, room)} of {resource}, "
                    f"{nodes.axis.display(index, amount)} asked"
                )
