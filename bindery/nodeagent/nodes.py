"""Keeps Node objects and Leases, as a kubelet does for its node.

Started by `agent` for all hollow nodes, and by `containers.agent` for this machine; `pods` reads
from it which nodes are registered. Like a kubelet, it registers a node only at the start: a deleted
node stays deleted, and its Lease is no longer renewed. A node without the label that marks its kind
is never written to.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from bindery.kube.events.recorder import EventRecorder, ObjectReference
from bindery.kube.http.requests import PatchKind
from bindery.kube.objects.resources import LEASES, NODES
from bindery.kube.objects.watched import Meta
from bindery.kube.watches.reflector import Change, EventType, Reflector
from bindery.nodeagent import metrics, node_objects
from bindery.nodeagent.node_objects import (
    AGENT_NODES,
    LEASE_DURATION_S,
    LEASE_NAMESPACE,
    AgentNode,
)
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodeagent.work import WorkQueue

RENEW_S: Final = LEASE_DURATION_S * 0.25
"""A quarter of the Lease's duration, as in the kubelet."""
RENEW_JITTER: Final = 0.04
REFRESH_S: Final = 300.0
"""`nodeStatusReportFrequency`: how often an unchanged status is written."""
HEAL_S: Final = 10.0
"""`nodeStatusUpdateFrequency`: minimum seconds between two writes of a changed status."""

_WORKERS: Final = 16

log = structlog.get_logger(__name__)


class Duty(StrEnum):
    """A periodic task of a node."""

    REGISTER = "register"
    ADOPT = "adopt"
    RENEW = "renew"
    REFRESH = "refresh"
    DESCRIBE = "describe"


class NodeStage(StrEnum):
    """The stage of a node's registration."""

    PENDING = "pending"
    REGISTERED = "registered"
    RETIRED = "retired"
    """The Node or its hollow label was deleted by another client."""
    REFUSED = "refused"
    """A Node of the same name exists that is of another kind."""
    FAILED = "failed"
    """The node's kubelet does not start."""


class NodeTask(NamedTuple):
    """One duty of one node; a key of the queue."""

    duty: Duty
    node: str


@dataclass
class _State:
    """The state of one node. Times are times of the clock that is passed in."""

    node: ManagedNode
    stage: NodeStage = NodeStage.PENDING
    uid: str = ""
    renewed_s: float = 0.0
    refreshed_s: float = 0.0


class UsedVolumes(Protocol):
    """The volumes that the status of a node names in `volumesInUse`."""

    def in_use(self) -> list[str] | None:
        """Return them; None: the field stays as it is."""

    def set_reported(self, volumes: list[str]) -> None:
        """Record that the status names them."""


class NodeKeeper:
    """Registers `nodes`, renews their Leases and refreshes their status.

    All have the same mark. `prepare` starts the kubelet of a node; it returns the reason if the
    kubelet does not start. `on_registered` is called with a node when its pods may be run.
    `problem` returns why a node cannot run pods, empty if it can. `volumes`: of the one node.
    """

    def __init__(
        self,
        client: Client,
        nodes: tuple[ManagedNode, ...],
        *,
        events: EventRecorder,
        prepare: Callable[[ManagedNode], str | None],
        on_registered: Callable[[ManagedNode], None],
        problem: Callable[[], str] = lambda: "",
        volumes: UsedVolumes | None = None,
    ) -> None:
        environment = client.environment
        self._client, self._clock = client, environment.now_s
        self._random = random = environment.random
        self._events, self._prepare, self._on_registered = events, prepare, on_registered
        self._problem, self._volumes = problem, volumes
        self._states = {node.name: _State(node) for node in nodes}
        self._pending = set(self._states)
        self._queue = WorkQueue("nodes", self._handle, workers=_WORKERS, random=random)
        self._reflector = Reflector(
            client,
            AGENT_NODES,
            self._on_change,
            label_selector=f"{nodes[0].mark}=true",
            # The API server lets a node watch only itself, by its name.
            field_selector=f"metadata.name={nodes[0].name}" if len(nodes) == 1 else "",
        )
        self.settled = asyncio.Event()
        """Set when all nodes have finished their first registration."""

    def registered(self, name: str) -> ManagedNode | None:
        """Return the hollow node called `name`, if this agent runs it and it is registered."""
        state = self._states.get(name)
        return state.node if state is not None and state.stage is NodeStage.REGISTERED else None

    def uid(self, name: str) -> str | None:
        """Return the UID of the Node object called `name`, if it is registered."""
        state = self._states.get(name)
        return state.uid if state is not None and state.stage is NodeStage.REGISTERED else None

    def seen(self, node: ManagedNode) -> AgentNode:
        """Return the Node object of `node` from the watch, or as it was registered."""
        found = self._reflector.objects.get(("", node.name))
        return found or AgentNode(metadata=Meta(name=node.name, labels=node.labels))

    def complain(self, node: ManagedNode, problem: str, reason: str = "StateLost") -> None:
        """Write a warning event for `node`."""
        log.error("a node has a problem", node=node.name, problem=problem)
        reference = ObjectReference(NODES.api_version, NODES.kind, "", node.name, node.name)
        self._events.warning(reference, reason, problem)

    def refresh(self, node: ManagedNode) -> None:
        """Write the status of `node` now: its devices, or what makes it ready, have changed.

        Its labels are written too if they are other ones than before.
        """
        state = self._states[node.name]
        before, state.node = state.node, node
        self._queue.add(NodeTask(Duty.REFRESH, node.name))
        if (before.labels, before.provider_id) != (node.labels, node.provider_id):
            self._queue.add(NodeTask(Duty.DESCRIBE, node.name))

    @property
    def healthy(self) -> bool:
        """Whether the watch is alive and the Leases of all registered nodes are valid."""
        now = self._clock()
        return self._reflector.healthy() and not any(
            state.stage is NodeStage.REGISTERED and now - state.renewed_s > LEASE_DURATION_S
            for state in self._states.values()
        )

    async def run(self) -> None:
        """Register all nodes, then keep them; does not return."""
        for name in self._states:
            self._queue.add(NodeTask(Duty.REGISTER, name))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run())
            group.create_task(self._queue.run())

    async def remove_all(self) -> None:
        """Delete the registered nodes and their Leases; call it after `run` has ended."""
        async with asyncio.TaskGroup() as group:
            limit = asyncio.Semaphore(_WORKERS)
            for state in self._states.values():
                if state.stage is NodeStage.REGISTERED:
                    group.create_task(self._remove(state, limit))

    def report(self) -> None:
        """Update the gauges."""
        stages = [state.stage for state in self._states.values()]
        for stage in NodeStage:
            metrics.NODES.labels(stage.value).set(stages.count(stage))
        metrics.WORK_WAITING.labels("nodes").set(self._queue.waiting)

    async def _handle(self, task: NodeTask) -> float | None:
        state = self._states[task.node]
        match task.duty:
            case Duty.REGISTER if state.stage is NodeStage.PENDING:
                await self._register(state)
            case Duty.ADOPT if state.stage is NodeStage.RETIRED:
                await self._adopt(state)
            case Duty.RENEW if state.stage is NodeStage.REGISTERED:
                return await self._renew(state)
            case Duty.REFRESH if state.stage is NodeStage.REGISTERED:
                return await self._refresh(state)
            case Duty.DESCRIBE if state.stage is NodeStage.REGISTERED:
                await self._describe(state)
        return None

    async def _register(self, state: _State) -> None:
        problem = self._prepare(state.node)
        if problem is not None:
            self.complain(state.node, problem, "KubeletSetupFailed")
            self._enter(state, NodeStage.FAILED)
            return
        try:
            created = await self._client.create(
                AGENT_NODES, node_objects.node_body(state.node, self._clock())
            )
        except AlreadyExistsError:
            await self._adopt(state)
        else:
            self._begin(state, created)

    async def _adopt(self, state: _State) -> None:
        """Continue with an existing node; its cordon and taints are kept."""
        name = state.node.name
        try:
            existing = await self._client.get(AGENT_NODES, name)
            if not node_objects.is_marked(existing, state.node.mark):
                log.error("a node of this name exists that another program made; it is left "
                          "unchanged", node=name, missing_label=state.node.mark)  # fmt: skip
                self._enter(state, NodeStage.REFUSED)
                return
            own = node_objects.own_patch(state.node, existing)
            if own is not None:
                await self._client.patch(NODES, name, own)
            patch = node_objects.adoption_patch(state.node, existing, self._clock())
            adopted = await self._client.patch(
                AGENT_NODES, name, patch, subresource="status", kind=PatchKind.STRATEGIC
            )
        except NotFoundError:
            self._enter(state, NodeStage.RETIRED)
            return
        self._begin(state, adopted)

    def _begin(self, state: _State, node: AgentNode) -> None:
        state.uid = node.metadata.uid
        state.refreshed_s = state.renewed_s = self._clock()
        self._enter(state, NodeStage.REGISTERED)
        # Spread the first renewals over the whole period, so that not all nodes write at once.
        renew_s = self._random.uniform(0.0, RENEW_S)
        refresh_s = self._random.uniform(0.5, 1.0) * REFRESH_S
        self._queue.add_later(NodeTask(Duty.RENEW, state.node.name), renew_s)
        self._queue.add_later(NodeTask(Duty.REFRESH, state.node.name), refresh_s)
        if node_objects.own_patch(state.node, node) is not None:  # described otherwise meanwhile
            self._queue.add(NodeTask(Duty.DESCRIBE, state.node.name))
        self._on_registered(state.node)

    async def _renew(self, state: _State) -> float:
        now = self._clock()
        name = state.node.name
        try:
            await self._client.patch(
                LEASES, name, node_objects.lease_patch(state.node, now), namespace=LEASE_NAMESPACE
            )
        except NotFoundError:
            body = node_objects.lease_body(state.node, state.uid, now)
            await self._client.create(LEASES, body, namespace=LEASE_NAMESPACE)
        was_late = now - state.renewed_s > 2 * RENEW_S
        state.renewed_s = now
        if was_late:
            # After an outage all nodes write at the same moment: spread the next renewals.
            return self._random.uniform(0.2, 1.0) * RENEW_S
        return RENEW_S * (1 + self._random.uniform(0.0, RENEW_JITTER))

    async def _refresh(self, state: _State) -> float | None:
        now = self._clock()
        existing = self._reflector.objects.get(("", state.node.name))
        in_use = self._volumes.in_use() if self._volumes is not None else None
        try:
            await self._client.patch(
                NODES,
                state.node.name,
                node_objects.status_patch(state.node, existing, now, self._problem(), in_use),
                subresource="status",
                kind=PatchKind.STRATEGIC,
            )
        except NotFoundError:
            self._enter(state, NodeStage.RETIRED)
            return None
        state.refreshed_s = now
        if self._volumes is not None and in_use is not None:
            self._volumes.set_reported(in_use)
        return REFRESH_S * (1 + self._random.uniform(0.0, RENEW_JITTER))

    async def _describe(self, state: _State) -> None:
        try:
            existing = await self._client.get(AGENT_NODES, state.node.name)
            own = node_objects.own_patch(state.node, existing)
            if own is not None:
                await self._client.patch(NODES, state.node.name, own)
        except NotFoundError:
            self._enter(state, NodeStage.RETIRED)

    async def _remove(self, state: _State, limit: asyncio.Semaphore) -> None:
        async with limit:
            try:
                await self._client.delete(NODES, state.node.name, uid=state.uid)
                await self._client.delete(LEASES, state.node.name, LEASE_NAMESPACE)
            except (NotFoundError, ConflictError):
                pass  # already deleted, or replaced by another client's Node: keep the new one
            except KubeError as error:
                log.warning("the node stays", node=state.node.name, error=str(error))

    def _on_change(self, change: Change[AgentNode]) -> None:
        state = self._states.get(change.object.metadata.name)
        if state is None:
            return
        if change.type is EventType.DELETED:
            if state.stage is NodeStage.REGISTERED and state.uid == change.object.metadata.uid:
                log.info("the node was deleted; it comes back when this agent is started again",
                         node=state.node.name)  # fmt: skip
                self._enter(state, NodeStage.RETIRED)
        elif state.stage is NodeStage.RETIRED and change.type is EventType.ADDED:
            self._queue.add(NodeTask(Duty.ADOPT, state.node.name))
        elif (
            state.stage is NodeStage.REGISTERED
            and not node_objects.is_ready(change.object)
            and not self._problem()
        ):
            # The node controller marks a node with a late Lease as not ready: write the status now.
            pause_s = HEAL_S - (self._clock() - state.refreshed_s)
            self._queue.add_later(NodeTask(Duty.REFRESH, state.node.name), pause_s)

    def _enter(self, state: _State, stage: NodeStage) -> None:
        state.stage = stage
        if stage is not NodeStage.REGISTERED:
            for duty in (Duty.RENEW, Duty.REFRESH):
                self._queue.forget(NodeTask(duty, state.node.name))
        self._pending.discard(state.node.name)
        if not self._pending:
            self.settled.set()
