"""Charges of tasks to nodes and queues: writes the columns for one task at a time.

Used by tasks.py. Invariant: a charge is withdrawn with the same status, node and queue with which
it was entered, as none of them changes in between.
"""

from collections import defaultdict

from bindery.scheduler.cache.deviceplaces import DevicePlaces, known_first
from bindery.scheduler.model.jobs import NO_ROW, Task, TaskStatus, Uid
from bindery.scheduler.model.state import PlanState


class Charges:
    """Writes the columns of `state`, and has the tasks of each node, known or not."""

    def __init__(self, state: PlanState) -> None:
        self._state = state
        self.devices = DevicePlaces(state.nodes.devices)
        self._on_node: defaultdict[str, set[Uid]] = defaultdict(set)
        """Node name -> tasks that hold room there."""
        self.writes = 0
        """Number of writes, counted before each write.

        If an error occurs and the number has not changed, all sums are still consistent."""

    def empty(self) -> None:
        """Remove all charges."""
        self._state.nodes.empty()
        self._state.queues.empty()
        self.devices.empty()
        self._on_node.clear()

    def enter(self, task: Task) -> None:
        """Charge `task` by its status, node name and queue; set its node's row."""
        if task.status.holds_room:
            self._on_node[task.node_name].add(task.uid)
            task.row = self._state.nodes.rows.get(task.node_name, NO_ROW)
            self._charge_node(task, 1)
        self._charge_queue(task, 1)

    def withdraw(self, task: Task) -> None:
        """Remove the charges of `task`."""
        self._charge_queue(task, -1)
        if task.status.holds_room:
            self._on_node[task.node_name].discard(task.uid)
            if not self._on_node[task.node_name]:
                del self._on_node[task.node_name]
            self._charge_node(task, -1)
            task.row = NO_ROW

    def adopt(self, task: Task, node_name: str) -> None:
        """Set the node of `task`. The ledgers of its Statement have charged it already."""
        task.node_name = node_name
        self._on_node[node_name].add(task.uid)

    def on_node(self, node_name: str) -> tuple[Uid, ...]:
        """Return the tasks that hold room on a node."""
        return tuple(self._on_node.get(node_name, ()))

    def node_came(self, node_name: str, row: int) -> None:
        """Charge the tasks of a node that has just become known."""
        tasks = (self._state.tasks[uid] for uid in self._on_node.get(node_name, ()))
        self.writes += 1
        for task in known_first(tasks):
            if task.row == NO_ROW:
                # The queue amount depends on the node, so it is charged again with the row.
                self._charge_queue(task, -1)
                task.row = row
                self._charge_node(task, 1)
                self._charge_queue(task, 1)

    def node_goes(self, node_name: str) -> None:
        """Withdraw the tasks of a node that is about to be deleted or to change its GPUs."""
        self.writes += 1
        nodes = self._state.nodes
        nodes.devices.crowded.discard(nodes.rows.get(node_name, NO_ROW))
        for uid in self._on_node.get(node_name, ()):
            task = self._state.tasks[uid]
            if task.row != NO_ROW:
                self._charge_queue(task, -1)
                self._charge_node(task, -1)
                task.row = NO_ROW
                self._charge_queue(task, 1)

    def _charge_node(self, task: Task, sign: int) -> None:
        if task.row == NO_ROW:
            return
        nodes = self._state.nodes
        if sign < 0:
            self.devices.withdraw(task)
            # `resettle` finds out whether the node is still crowded without this task.
            if task.row in nodes.devices.crowded:
                nodes.devices.crowded.remove(task.row)
                self.devices.resettle(self._others_on(task))
        else:
            self.devices.enter(task)
        nodes.hold_task(task, sign)

    def _others_on(self, task: Task) -> list[Task]:
        others = (self._state.tasks[uid] for uid in self._on_node.get(task.node_name, ()))
        return [other for other in others if other.row == task.row and other is not task]

    def _charge_queue(self, task: Task, sign: int) -> None:
        """Charge the queue of `task`, also by the GPU model of its node."""
        if not task.is_ours:  # pods of other schedulers use room, but no queue's share
            return
        queues, request = self._state.queues, task.shape.request
        if task.row != NO_ROW:
            request = self._state.nodes.charge(task.row, request)
        if task.status.is_active:
            queues.hold(task.queue_row, request, preemptible=task.is_preemptible, sign=sign)
        elif task.status is TaskStatus.RELEASING:
            queues.leave(task.queue_row, request, sign)
        elif task.status is TaskStatus.PENDING:
            queues.ask(task.queue_row, request, sign)
