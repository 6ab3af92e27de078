"""The ledger of HAMi's devices: the devices of planned pods, and the usage of each node.

The plugin makes one per session, from the holdings of bound pods and the data at the binder. The
usage of a node is summed up when it is first needed. Invariant: undoing an operation restores all
usage exactly, and a planned pod keeps its devices until then.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bindery.api.hami import assignment as assignments
from bindery.api.hami.assignment import Assignment
from bindery.api.hami.errors import HamiFormatError
from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.jobs import Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.plugins.hami.amounts import Amounts
from bindery.scheduler.plugins.hami.device_requests import DeviceRequests
from bindery.scheduler.plugins.hami.fit import Fitting, ShapeRequest, held_by
from bindery.scheduler.plugins.hami.fleet import Fleet, HeldDevices
from bindery.scheduler.plugins.hami.quotas import Budget, Excess, Limits, least
from bindery.scheduler.plugins.hami.reasons import CARD_PROMISED, Reasons
from bindery.scheduler.plugins.hami.usage import NodeUsage

Handed = tuple[Uid, str, Mapping[str, Any]]
"""Pod UID, node name and data for the binder."""


@dataclass(frozen=True)
class _Planned:
    node: str
    held: HeldDevices
    assignment: Assignment


class HamiLedger:
    """Enters the operations of Statements into the usage of devices."""

    name = "hami"

    def __init__(
        self,
        fleet: Fleet,
        requests: DeviceRequests,
        state: PlanState,
        handed: Iterable[Handed],
        limits: Limits | None = None,
    ) -> None:
        self._fleet, self._requests, self._state = fleet, requests, state
        self._usage: dict[str, NodeUsage] = {}
        self._planned: dict[Uid, _Planned] = {}
        self._handed_over: dict[Uid, HeldDevices] = {}
        self._coming: defaultdict[str, list[Uid]] = defaultdict(list)
        for uid, node, data in handed:
            held = self._handed(uid, node, data)
            if held is not None:
                self._handed_over[uid] = held
                self._coming[node].append(uid)
        self.budget = self._counted(limits or Limits())
        self._least: dict[Shape, Amounts] = {}

    # ---- queries --------------------------------------------------------------------------------

    def fits(self, shape: Shape, node_name: str, *, later: bool) -> bool:
        """Return whether one more pod of `shape` fits onto the node's devices."""
        wanted = self._requests.of(shape)
        return wanted is None or self._fit(wanted, node_name, later=later)[0] is not None

    def reasons(self, task: Task, node_name: str) -> Reasons:
        """Return why `task` does not fit onto the node's devices now."""
        wanted = self._requests.of(task.shape)
        if wanted is None:
            return Reasons()
        avoided = self._avoided(task, node_name, later=False)
        return self._fit(wanted, node_name, later=False, avoided=avoided)[1]

    def over_quota(self, tasks: Sequence[Task]) -> Excess | None:
        """Return a limit of the namespace, exceeded by `tasks` in any case, or None.

        Releasing pods do not count, and each task counts with the least possible amount.
        """
        if not tasks or not self.budget.limits.of(tasks[0].namespace):
            return None
        requested: Counter[str] = Counter()
        for task in tasks:
            requested.update(self._least_of(task.shape))
        return self.budget.excess(tasks[0].namespace, requested, later=True)

    def assignment(self, uid: Uid) -> Assignment | None:
        """Return the devices of a pod planned in this session, or None."""
        planned = self._planned.get(uid)
        return planned.assignment if planned is not None else None

    def usage(self, node_name: str) -> NodeUsage:
        """Return the usage of the node's devices, at this point of the plan."""
        usage = self._usage.get(node_name)
        if usage is None:
            usage = self._usage[node_name] = NodeUsage()
            for uid, held in self._holders(node_name):
                usage.hold(held)
                task = self._state.tasks.get(uid)
                if task is not None and task.status is TaskStatus.RELEASING:
                    usage.release(held)
        return usage

    # ---- the ledger -----------------------------------------------------------------------------

    def apply(self, operation: Operation) -> None:
        """Enter `operation`; refuse it without room on the devices."""
        task, node = operation.task, self._state.nodes.name(operation.row)
        if operation.kind is OperationKind.EVICT:
            held = self._held(task.uid)
            if held is not None:
                self.usage(held.node).release(held)
                self.budget.promise(task.namespace, held.amounts, -1)
            return
        wanted = self._requests.of(task.shape)
        if wanted is None or node not in self._fleet.nodes:
            return
        later = operation.kind is OperationKind.PIPELINE
        avoided = self._avoided(task, node, later=later)
        assignment, reasons = self._fit(wanted, node, later=later, avoided=avoided)
        if assignment is None:
            raise LedgerRefusalError(f"node {node} has no devices for it: {reasons}")
        if not assignment.devices:
            return
        planned = _Planned(node, held_by(assignment, wanted, node), assignment)
        usage, counted = self.usage(node), planned.held.amounts
        excess = self.budget.excess(task.namespace, counted, later=later)
        if excess is not None:
            raise LedgerRefusalError(f"{excess}")
        if later:
            usage.promise(planned.held)
            self.budget.promise(task.namespace, counted)
        else:
            usage.hold(planned.held)
            self.budget.hold(task.namespace, counted)
        self._planned[task.uid] = planned

    def revert(self, operation: Operation) -> None:
        """Undo `operation`."""
        uid = operation.task.uid
        if operation.kind is OperationKind.EVICT:
            held = self._held(uid)
            if held is not None:
                self.usage(held.node).keep(held)
                self.budget.promise(operation.task.namespace, held.amounts)
            return
        planned = self._planned.pop(uid, None)
        if planned is None:
            return
        if operation.kind is OperationKind.PIPELINE:
            self.usage(planned.node).break_promise(planned.held)
            self.budget.promise(operation.task.namespace, planned.held.amounts, -1)
        else:
            self.usage(planned.node).let_go(planned.held)
            self.budget.hold(operation.task.namespace, planned.held.amounts, -1)

    # ---- inside ---------------------------------------------------------------------------------

    def _counted(self, limits: Limits) -> Budget:
        """Return the current amounts of namespaces with limits."""
        budget = Budget(limits)
        # Without limits, which is usual, no pod needs to be counted.
        for uid in self._fleet.held.keys() | self._handed_over.keys() if limits.namespaces else ():
            task, held = self._state.tasks.get(uid), self._held(uid)
            if task is not None and held is not None and task.namespace in limits.namespaces:
                budget.hold(task.namespace, held.amounts)
                if task.status is TaskStatus.RELEASING:
                    budget.promise(task.namespace, held.amounts, -1)
        return budget

    def _least_of(self, shape: Shape) -> Amounts:
        if shape not in self._least:
            wanted = self._requests.of(shape)
            found = least(wanted.request, self._fleet.nodes.values()) if wanted is not None else {}
            self._least[shape] = found
        return self._least[shape]

    def _avoided(self, task: Task, node_name: str, *, later: bool) -> frozenset[str]:
        """Return the devices with other pods of the job, if the job spreads over devices."""
        if not task.spreads_devices:
            return frozenset()
        there: list[HeldDevices | None] = []
        for uid, other in self._state.jobs[task.job].tasks.items():
            planned = self._planned.get(uid)
            there.append(planned.held if planned is not None else None)
            if not (later and other.status is TaskStatus.RELEASING):
                there.append(self._held(uid))
        on_node = (held for held in there if held is not None and held.node == node_name)
        return frozenset(uuid for held in on_node for uuid in held.devices)

    def _fit(
        self,
        wanted: ShapeRequest,
        node_name: str,
        *,
        later: bool,
        avoided: frozenset[str] = frozenset(),
    ) -> tuple[Assignment | None, Reasons]:
        node = self._fleet.nodes.get(node_name)
        # Without such devices on the node, the request is for another device plugin.
        if node is None or not any(v.word in node.devices for v in wanted.request.vendors):
            return Assignment({}), Reasons()
        usage = self.usage(node_name)
        policies = self._requests.policies(wanted)
        fitting = Fitting(node, wanted, policies, usage.later if later else usage.now, avoided)
        found = fitting.run()
        # A pod on idle devices must not take the room of a promise on one of them.
        if found is not None and not later and usage.promise_count:
            beside = Fitting(node, wanted, policies, usage.now.joined(usage.later), avoided)
            found = beside.run()
            if found is None:
                return None, Reasons.of_node(CARD_PROMISED)
        return found, fitting.reasons

    def _held(self, uid: Uid) -> HeldDevices | None:
        """Return the holding of a pod: by the data at the binder, else by its annotations.

        The binder records all pods of this scheduler. A pod without a record was bound by another
        client, which may have forged the annotations, so the pod holds nothing.
        """
        if uid in self._handed_over:
            return self._handed_over[uid]
        held, task = self._fleet.held.get(uid), self._state.tasks.get(uid)
        is_forged = held is not None and not held.is_recorded and task is not None and task.is_ours
        return None if is_forged else held

    def _holders(self, node_name: str) -> Iterator[tuple[Uid, HeldDevices]]:
        """Yield the holdings on a node, including those of requests at the binder."""
        uids = {uid for uid, _ in self._fleet.on_node(node_name)}
        for uid in sorted(uids.union(self._coming.get(node_name, ()))):
            held = self._held(uid)
            if held is not None and held.node == node_name:
                yield uid, held

    def _handed(self, uid: Uid, node: str, data: Mapping[str, Any]) -> HeldDevices | None:
        task = self._state.tasks.get(uid)
        wanted = self._requests.of(task.shape) if task is not None else None
        if task is None or wanted is None or task.status.has_ended:
            return None
        if task.pod_node not in ("", node):  # somebody else has bound it, to another node
            return None
        try:
            return held_by(assignments.from_data(data), wanted, node)
        except HamiFormatError:  # somebody else wrote the request; the binder refuses it
            return None
