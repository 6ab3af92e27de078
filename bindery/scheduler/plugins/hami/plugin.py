"""The scheduler plugin hami: plans devices registered by HAMi's device plugins.

It reads the annotations of nodes and pods, and has a ledger of the shares, memory and cores of
every device. The binder plugin of the same name writes the chosen devices under HAMi's node lock.
Nodes without such devices are not filtered, unless a pod requests resources that only HAMi has.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator

from bindery.api.base import ApiModel
from bindery.api.hami import assignment as assignments
from bindery.api.hami import names
from bindery.api.hami.assignment import FORGED
from bindery.api.hami.vendor import Register
from bindery.api.hami.vendortable import BY_WORD, VENDORS
from bindery.api.hami.wishes import DevicePolicy, NodePolicy
from bindery.kube.objects.quotas import RESOURCE_QUOTAS, ResourceQuota
from bindery.kube.objects.resources import NODES, PODS, Resource
from bindery.kube.objects.watched import KubeObject, Node, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.model.verdicts import NodeFailure, Refusal, Rows
from bindery.scheduler.plugins.hami import order
from bindery.scheduler.plugins.hami.device_requests import DeviceRequests
from bindery.scheduler.plugins.hami.fleet import Fleet
from bindery.scheduler.plugins.hami.ledger import HamiLedger
from bindery.scheduler.plugins.hami.quotas import NOT_FIT, Limits
from bindery.scheduler.plugins.hami.reasons import Reasons
from bindery.scheduler.plugins.view import SessionView

_PER_POINT = 3.0
"""Scales HAMi's node score, 0 to 30, to 0 to 90: above nodeplacement, below nodepreference."""
_FULLEST = 30.0
_EXPLAINED_NODES = 32
"""Maximum number of checked nodes for the explanation of a waiting pod."""


class HamiArguments(ApiModel):
    """Defaults for pods without HAMi's annotations, and the planned vendors."""

    node_policy: NodePolicy | None = None
    """The order of nodes. Default: the strategy of the plugin nodeplacement for GPUs, or
    binpack."""
    device_policy: DevicePolicy = DevicePolicy.SPREAD
    """The order of devices on a node."""
    vendors: tuple[str, ...] = tuple(
        vendor.word for vendor in VENDORS if vendor.register is not Register.CAPACITY
    )
    """The planned vendors. By default without vendors that are known by node capacity only, because
    their device plugin may not be HAMi's."""

    @field_validator("vendors")
    @classmethod
    def _are_known(cls, vendors: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [word for word in vendors if word not in BY_WORD]
        if unknown:
            raise ValueError(f"there is no vendor {unknown[0]}; known: {', '.join(BY_WORD)}")
        return vendors


class Hami:
    """Plans HAMi's devices. Keeps devices, holders and limits between sessions."""

    name = "hami"
    arguments = HamiArguments

    def __init__(self, arguments: HamiArguments) -> None:
        self._arguments = arguments
        vendors = tuple(BY_WORD[word] for word in arguments.vendors)
        self._fleet = Fleet(vendors)
        self._requests = DeviceRequests(vendors, arguments.device_policy)
        self._limits = Limits()
        self._explained: dict[Shape, str | None] = {}
        """Shape -> explanation for its waiting pods, at the end of this session."""

    # ---- objects --------------------------------------------------------------------------------

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return nodes (devices), pods (holders) and ResourceQuotas (limits)."""
        return (NODES, PODS, RESOURCE_QUOTAS)

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change; return True if the devices of a node changed."""
        item, gone = change.object, change.type is EventType.DELETED
        if isinstance(item, Node):
            name = item.metadata.name
            return self._fleet.drop_node(name) if gone else self._fleet.put_node(item)
        if isinstance(item, Pod):
            if gone:
                self._fleet.drop_pod(Uid(item.metadata.uid))
            else:
                self._fleet.put_pod(item)
        if isinstance(item, ResourceQuota):
            if gone:
                self._limits.drop(item)
            else:
                self._limits.put(item)
        return False

    def supported_needs(self) -> Collection[Need]:
        """Return the need for HAMi's devices."""
        return (Need.HAMI_DEVICES,)

    def ledger(self, session: SessionView, state: PlanState) -> HamiLedger:
        """Return the ledger of devices for `session`."""
        handed = session.handed_over(self.name)
        self._explained = {}  # explanations depend on the plan of their session
        return HamiLedger(self._fleet, self._requests, state, handed, self._limits)

    # ---- where pods fit -------------------------------------------------------------------------

    def invalid_task(self, session: SessionView, task: Task) -> Refusal | None:  # noqa: ARG002  # the protocol's
        """Refuse a pod with forged device annotations, or with an invalid request."""
        forged = task.shape.forged_annotation
        problem = FORGED.format(forged) if forged else self._requests.problem(task.shape)
        return (
            Refusal(JobReason.INVALID_DEVICE_REQUEST, problem, is_lasting=True) if problem else None
        )

    def over_capacity(
        self,
        session: SessionView,
        job: Job,  # noqa: ARG002
        tasks: Sequence[Task],
    ) -> Refusal | None:
        """Refuse `tasks` if their namespace would exceed its ResourceQuota."""
        excess = session.ledger(HamiLedger).over_quota(tasks)
        return Refusal(NOT_FIT, str(excess)) if excess is not None else None

    def node_failures(self, session: SessionView, shape: Shape) -> Iterator[NodeFailure]:
        """Yield the nodes without the requested devices, and those with unreadable annotations."""
        wanted = self._requests.of(shape)
        if wanted is None:
            return
        nodes = session.state.nodes.nodes
        unread, without = np.zeros(len(nodes), np.bool_), np.zeros(len(nodes), np.bool_)
        for row, node in enumerate(nodes):
            if node is None:
                continue
            found = self._fleet.nodes.get(node.metadata.name)
            words = found.devices if found is not None else {}
            lacks = any(vendor.word not in words for vendor in wanted.request.vendors)
            if lacks and found is not None and found.problems:
                unread[row] = True
            # A pod with whole devices only may run on a node without HAMi.
            elif lacks and wanted.request.names_shares:
                without[row] = True
        yield NodeFailure("register devices in a form that cannot be read", unread)
        yield NodeFailure("have no devices that HAMi shares", without)

    def keeps_room_for(self, shape: Shape) -> bool:
        """Return whether pods of `shape` request HAMi's devices."""
        return self._requests.of(shape) is not None

    def is_by_sums(self, session: SessionView, shape: Shape) -> bool:  # noqa: ARG002  # the protocol's
        """Return whether no node has devices that HAMi shares."""
        return not self._fleet.nodes

    def has_room(self, session: SessionView, shape: Shape, rows: Rows, later: bool) -> BoolColumn:
        """Return for each of `rows` whether its devices have room; nodes without HAMi always do."""
        ledger, fits = session.ledger(HamiLedger), np.ones(len(rows), dtype=np.bool_)
        if self._fleet.nodes:
            for position, name in self._own(session, rows):
                fits[position] = ledger.fits(shape, name, later=later)
        return fits

    def no_room_text(self, shape: Shape) -> str:  # noqa: ARG002  # the protocol's
        """Return the text for nodes without room on their devices."""
        return "have no room on their devices"

    def explain_wait(self, session: SessionView, job: Job, task: Task, message: str) -> str | None:  # noqa: ARG002  # the protocol's
        """Return HAMi's reasons against the devices of some nodes.

        A pod with whole devices only has them if it can run nowhere but on HAMi's nodes.
        """
        if self._requests.of(task.shape) is None or not self._fleet.nodes:
            return None
        if task.spreads_devices:  # the reasons depend on the other pods of its job
            return self._explain(session, task)
        if task.shape not in self._explained:
            self._explained[task.shape] = self._explain(session, task)
        return self._explained[task.shape]

    def _has_other_nodes(self, session: SessionView, rows: Rows, shape: Shape) -> bool:
        """Return whether one of `rows` that HAMi does not share is large enough for `shape`."""
        nodes = session.state.nodes
        enough = np.ones(len(rows), dtype=np.bool_)
        for index, amount in nodes.demands(shape.request, rows):
            enough &= nodes.allocatable[index][rows] >= amount
        own = {position for position, _ in self._own(session, rows)}
        return any(position not in own for position in np.flatnonzero(enough).tolist())

    def _explain(self, session: SessionView, task: Task) -> str | None:
        passing, found = session.passing(task.shape), Reasons()
        rows, wanted = session.order[passing[session.order]], self._requests.of(task.shape)
        shares = wanted is not None and wanted.request.names_shares
        if not shares and self._has_other_nodes(session, rows, task.shape):
            return None
        # In name order, so that the explanation is stable from cycle to cycle.
        for row in rows[:_EXPLAINED_NODES]:
            found += session.ledger(HamiLedger).reasons(task, session.state.nodes.name(int(row)))
        return f"devices: {found}" if found else None

    def node_scores(
        self, session: SessionView, shape: Shape, rows: Rows
    ) -> NDArray[np.float64] | None:
        """Return 0 to 90 by the usage of devices; None for pods without device requests."""
        wanted = self._requests.of(shape)
        if wanted is None or not self._fleet.nodes:
            return None
        scores = np.zeros(len(rows), dtype=np.float64)
        wished = wanted.wishes.node_policy or self._arguments.node_policy
        spreads = (wished or session.packing.strategies.gpu) == NodePolicy.SPREAD
        for position, name in self._own(session, rows):
            devices = [d for found in self._fleet.nodes[name].devices.values() for d in found]
            full = order.node_score(devices, session.ledger(HamiLedger).usage(name).now.used)
            scores[position] = _PER_POINT * (_FULLEST - full if spreads else full)
        return scores

    # ---- binding --------------------------------------------------------------------------------

    def bind_data(self, session: SessionView, task: Task, row: int) -> Mapping[str, Any] | None:  # noqa: ARG002  # the protocol's
        """Return the devices of `task`, for the binder to write."""
        assignment = session.ledger(HamiLedger).assignment(task.uid)
        return assignment.to_data() if assignment is not None else None

    def bind_effects(
        self, pod: Pod, node_name: str, data: Mapping[str, Any]
    ) -> Iterable[KubeObject]:
        """Return `pod` with the annotations of the binder, and its devices allocated."""
        if not data:  # a pod without planned devices
            return
        assignment = assignments.from_data(data)
        written = assignments.written(assignment, pod.metadata.uid, node_name, 0)
        written[names.BIND_PHASE] = names.BindPhase.SUCCESS.value
        meta = msgspec.structs.replace(
            pod.metadata, annotations={**pod.metadata.annotations, **written}
        )
        yield msgspec.structs.replace(pod, metadata=meta)

    def _own(self, session: SessionView, rows: Rows) -> Iterator[tuple[int, str]]:
        """Yield position in `rows` and name of each node with HAMi's devices."""
        nodes = session.state.nodes.nodes
        for position, row in enumerate(rows):
            node = nodes[row]
            if node is not None and node.metadata.name in self._fleet.nodes:
                yield position, node.metadata.name
