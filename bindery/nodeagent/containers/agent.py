"""Runs the pods of this machine until a stop signal: the entry point of the package.

`bindery.cli.processes.containers` connects the client and calls `run`. The agent ends without
ending pods: the next one takes them over. All state is in the API server, in the runtime, and in
the kubelet's checkpoint files below the directory of plugins.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.events.recorder import EventRecorder
from bindery.nodeagent.containers import cgroups, fields, hostfiles, labels, thismachine
from bindery.nodeagent.containers.cgroups import NoCgroupKeeper, PodCgroupKeeper
from bindery.nodeagent.containers.checks import Checks
from bindery.nodeagent.containers.configs import AgentPlaces, NodeSurroundings
from bindery.nodeagent.containers.csiregistration import CsiRegistration, NodeStorage
from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.downward import PodSurroundings
from bindery.nodeagent.containers.errors import EndpointError, RuntimeCallError
from bindery.nodeagent.containers.hostfiles import ClusterNames
from bindery.nodeagent.containers.images import Images
from bindery.nodeagent.containers.logfiles import LogLimits, LogRotation
from bindery.nodeagent.containers.objects import PodObjects
from bindery.nodeagent.containers.parts import NodeParts, report
from bindery.nodeagent.containers.resources import NodeResources
from bindery.nodeagent.containers.runtime import Runtime, socket_of
from bindery.nodeagent.containers.security import NodeLimits
from bindery.nodeagent.containers.serving import tls
from bindery.nodeagent.containers.serving.callers import Callers
from bindery.nodeagent.containers.serving.server import NodeServer, Served
from bindery.nodeagent.containers.storageobjects import ApiVolumeObjects
from bindery.nodeagent.containers.thismachine import MachineError, NodeOptions
from bindery.nodeagent.containers.volumes import NodeVolumes, VolumeParts
from bindery.nodeagent.containers.workers import PodWorkers
from bindery.nodeagent.identity.cloud import CloudRequestManager
from bindery.nodeagent.identity.process import NodeIdentity
from bindery.nodeagent.kubeletside.claimapi import ServerClaims
from bindery.nodeagent.kubeletside.node import NodeClocks, NodeSockets
from bindery.nodeagent.nodes import NodeKeeper
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodeagent.topologies import DELAY_S, TopologyKeeper
from bindery.nodeagent.volumes import nodestatus
from bindery.nodeagent.volumes.mounts import LinuxMounter
from bindery.nodecore.cgroups.manager import CgroupError
from bindery.nodecore.containers import Ref
from bindery.nodecore.podsync.restarts import RestartBackoff
from bindery.observability.health import HealthServer
from bindery.observability.listening import NOWHERE, Listening

COMPONENT: Final = "bindery-nodeagent"
_STATUS_S: Final = 10.0
_ANNOUNCE_S: Final = 5.0
_CONDITIONS: Final = {
    "RuntimeReady": "container runtime",
    "NetworkReady": "container runtime network",
}

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class AgentOptions:
    """Where the agent's runtime and files are.

    Attributes:
        endpoint: the runtime's address, as the kubelet's `--container-runtime-endpoint`.
        client_ca: who signs certificates of callers of the agent's port; None: callers have tokens.
        plugins: where plugins look for a kubelet, and the checkpoints; the kubelet's
            `/var/lib/kubelet`.
        resolver: the node's resolv.conf; None: pods get none.
    """

    endpoint: str
    node: NodeOptions
    plugins: Path
    logs: Path
    names: ClusterNames
    resolver: Path | None
    client_ca: Path | None = None
    log_limits: LogLimits = field(default_factory=LogLimits)


class ContainerAgent:
    """The agent of this machine; `runtime` is connected.

    Raises:
        MachineError: the directory of plugins cannot be used.
    """

    def __init__(
        self, client: Client, runtime: Runtime, options: AgentOptions, node: ManagedNode, name: str
    ) -> None:
        clock, random = client.environment.now_s, client.environment.random
        self._runtime, self._network = runtime, ""
        self._identity: NodeIdentity | None = None
        self._cloud: CloudRequestManager | None = None
        self._events = EventRecorder(client, COMPONENT)
        self._registered = asyncio.Event()
        self._plugins = options.plugins
        self._objects = PodObjects(client)
        around = PodSurroundings((node.address,), (), node.machine.allocatable)
        self._volumes = NodeVolumes(
            VolumeParts(
                root=options.node.root,
                name=node.name,
                mounter=LinuxMounter(),
                storage=ApiVolumeObjects(client, node.name),
                objects=self._objects,
                around=around,
                now_s=clock,
                report=partial(report, self._events),
                labels=lambda: self.nodes.seen(node).metadata.labels,
            )
        )
        self._storage = NodeStorage(client, node.name)
        self._sockets = self._sockets_of(client, node)
        self._sockets.use_csi(CsiRegistration(self._volumes.drivers, self._storage))
        self._resources = NodeResources(
            node,
            self._sockets,
            lambda: self.nodes.seen(node),
            lambda problem: self.nodes.complain(node, problem),
            lambda: self._topologies.changed(node),
        )
        self.nodes = NodeKeeper(
            client,
            (node,),
            events=self._events,
            prepare=lambda _: self._resources.failure,
            on_registered=lambda _: self._registered.set(),
            problem=lambda: self.problem,
            volumes=self._volumes,
        )
        self._topologies = self._topologies_of(client)
        self._parts = NodeParts(
            client=client,
            events=self._events,
            runtime=runtime,
            runtime_name=name,
            objects=self._objects,
            volumes=self._volumes,
            images=Images(runtime, self._objects, clock),
            checks=Checks(runtime),
            cgroups=_cgroups(self._resources),
            resources=self._resources,
            places=AgentPlaces(options.node.root, options.logs),
            node=_surroundings(options, node),
            around=around,
            backoff=RestartBackoff(clock),
            refusal=fields.refusal_by(client),
            clock=clock,
            random=random,
        )
        self.workers = PodWorkers(self._parts, self._registered)
        self._logs = LogRotation(runtime, options.logs, options.log_limits, clock)
        self._client_ca, self._address = options.client_ca, node.address
        callers = Callers(client, node.name, clock)
        self._server = NodeServer(Served(runtime, self.workers.find, callers, clock))

    def keep(self, identity: NodeIdentity | None, cloud: CloudRequestManager | None) -> None:
        """Rotate the certificates of the client, and follow a provider that has answered once."""
        self._identity, self._cloud = identity, cloud
        if identity is not None:
            identity.complain = self._complain_of_certificate

    @property
    def problem(self) -> str:
        """Why this node cannot run pods; empty if it can."""
        return self.workers.runtime_problem or self._network

    async def run(self, stop: asyncio.Event, *, listening: Listening = NOWHERE) -> None:
        """Run pods until `stop` is set; they go on running then.

        Raises:
            MachineError: plugins cannot be served, or are served by another program.
            EndpointError: the runtime does not answer.
        """
        checks: dict[str, Callable[[], bool]] = {
            "nodes": lambda: self.nodes.healthy,
            "registered": self._registered.is_set,
            "pods": lambda: self.workers.healthy,
        }
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(HealthServer(listening, checks))
            thismachine.check_plugins(self._plugins)
            if (port := self._resources.node.port) is not None:
                context = tls.context_of(self._client_ca)
                tls.use_own(context, self._resources.node.name, self._address, self._parts.clock())
                if self._identity is not None:
                    self._identity.serve(context)
                await stack.enter_async_context(self._server.serving(self._address, port, context))
            self._resources.start(await self._running())
            if self._resources.failure is None:
                await self._serve()
                stack.push_async_callback(self._sockets.stop)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            works = [
                self._events.run(), self._objects.run(), self.nodes.run(), self._watch(),
                self._announce(), self._volumes.run(self._attached, self._changed),
                self.workers.run(), self._sockets.wait(), self._logs.run(),
                self._topologies.run(),
            ]  # fmt: skip
            if self._identity is not None:
                works.append(self._identity.run(stop))
            if self._cloud is not None:
                works.append(self._cloud.run(self._changed))
            tasks = [group.create_task(work) for work in works]
            await stop.wait()
            for task in tasks:
                task.cancel()

    def _sockets_of(self, client: Client, node: ManagedNode) -> NodeSockets:
        environment = client.environment
        try:
            return NodeSockets(
                node.name,
                node.machine.config,
                self._plugins,
                ServerClaims(client, node.name),
                NodeClocks(environment.now_s, environment.random),
                self._evict,
                node.machine.declared_features,
            )
        except OSError as error:
            raise MachineError(f"{self._plugins} cannot be used: {error}") from error

    def _topologies_of(self, client: Client) -> TopologyKeeper:
        return TopologyKeeper(
            client,
            kubelet=lambda _: self._resources if self._resources.is_open else None,
            node_uid=self.nodes.uid,
            delay_s=DELAY_S,
            random=client.environment.random,
        )

    async def _evict(self, uids: Sequence[str]) -> None:
        await self.workers.evict(uids)  # the workers are made after what asks for them

    async def _running(self) -> list[Ref]:
        """Return the containers that run, of an earlier agent; raises EndpointError."""
        try:
            found = await self._runtime.containers()
        except RuntimeCallError as error:
            raise EndpointError(f"the container runtime does not answer: {error}") from error
        return [
            (one.labels.get(labels.POD_UID, ""), one.labels.get(labels.CONTAINER, ""))
            for one in found
            if one.state == cri.CONTAINER_RUNNING
        ]

    async def _serve(self) -> None:
        """Open the sockets of plugins; raises MachineError."""
        try:
            await self._sockets.serve()
        except OSError as error:
            raise MachineError(f"the sockets of plugins cannot be opened: {error}") from error

    async def _watch(self) -> None:
        """Write the node when its network is ready or not any more, or its devices change."""
        # The registration may have written a problem that is over at the first look after it.
        written: tuple[str, ManagedNode] | None = None
        while True:
            try:
                status = await self._runtime.status()
            except RuntimeCallError as error:
                self._network = f"container runtime is down: {error}"
            else:
                self._network = _runtime_problem(status)
            found = self.problem, self._described()
            if found != written and self._registered.is_set():
                self._topologies.changed(self._resources.node)
                self.nodes.refresh(found[1])
                written = found
            await asyncio.sleep(_STATUS_S)

    async def _announce(self) -> None:
        """Write the CSINode and the mark of the Node once, before a driver has registered."""
        await self._registered.wait()
        while True:
            try:
                return await self._storage.announce()
            except KubeError as error:
                log.warning("the CSINode cannot be written", error=str(error))
            await asyncio.sleep(_ANNOUNCE_S)

    def _attached(self) -> Mapping[str, str] | None:
        if not self._registered.is_set():
            return None
        seen = self.nodes.seen(self._resources.node)
        return nodestatus.attached(seen.status.volumes_attached or ())

    def _changed(self) -> None:
        self.nodes.refresh(self._described())

    def _described(self) -> ManagedNode:
        node = self._resources.described()
        return node if self._cloud is None else self._cloud.described(node)

    def _complain_of_certificate(self, problem: str) -> None:
        self.nodes.complain(self._resources.node, problem, "CertificateRefused")


async def connected(runtime: Runtime, endpoint: str) -> cri.VersionResponse:
    """Return the name and version of the runtime.

    Raises:
        EndpointError: no runtime that this agent can use serves there; the text has advice.
    """
    socket = socket_of(endpoint)
    if not socket.exists():
        raise EndpointError(f"{socket} does not exist: is the container runtime running?")
    try:
        version = await runtime.version()
        driver = await runtime.driver()
    except RuntimeCallError as error:
        raise EndpointError(f"{socket}: no container runtime answers: {error}") from error
    if driver != cri.CGROUPFS:
        raise EndpointError(
            f"{socket}: the runtime uses systemd for cgroups; this agent needs cgroupfs "
            "(containerd: SystemdCgroup = false)"
        )
    return version


def _runtime_problem(status: cri.RuntimeStatus) -> str:
    """Return which of the conditions that a kubelet reads does not hold; others are warnings."""
    for one in status.conditions:
        if not one.status and one.type in _CONDITIONS:
            text = f"{one.type}=false reason:{one.reason} message:{one.message}"
            return f"{_CONDITIONS[one.type]} not ready: {text}"
    return ""


def _cgroups(resources: NodeResources) -> PodCgroupKeeper:
    files, version, _ = cgroups.of_machine()
    root = resources.node.machine.config.cgroup_root
    if not files.exists(root):
        return NoCgroupKeeper(f"there is no cgroup {root}")
    probe = f"{root.rstrip('/')}/bindery-probe"
    try:
        files.make(probe)
        files.remove(probe)
    except (CgroupError, OSError) as error:
        return NoCgroupKeeper(str(error))
    return PodCgroupKeeper(lambda: resources.manager, files, version)


def _surroundings(options: AgentOptions, node: ManagedNode) -> NodeSurroundings:
    resolver = "" if options.resolver is None else _text(options.resolver)
    config = node.machine.config
    pages = {pages.size_kib * 1024 for each in config.machine.nodes for pages in each.huge_pages}
    return NodeSurroundings(
        options.names,
        hostfiles.read_resolver(resolver),
        _text(Path("/etc/hosts")),
        NodeLimits(
            thismachine.memory_bytes(options.node.proc),
            tuple(sorted(pages)),
            config.subsystems.is_unified,
        ),
    )


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        log.warning("a file of the node cannot be read", file=str(file), error=error.strerror)
        return ""
