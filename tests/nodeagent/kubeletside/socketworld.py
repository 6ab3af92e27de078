"""A node with a kubelet's sockets, and plugins whose answers a test decides."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import grpc

from bindery.nodeagent.kubeletside.claims import ClaimApi
from bindery.nodeagent.kubeletside.node import NodeClocks, NodeSockets
from bindery.nodeagent.sockets import deviceplugins, services
from bindery.nodeagent.sockets.definitions import deviceplugin_pb2 as device_api
from bindery.nodeagent.sockets.definitions import dra_pb2
from bindery.nodeagent.sockets.definitions import pluginregistration_pb2 as registration_api
from bindery.nodeagent.sockets.definitions import podresources_pb2 as resources_api
from bindery.nodeagent.sockets.services import Methods, Peer
from bindery.nodecore.admission.facts import Candidate
from bindery.nodecore.claims.facts import ClaimError, ClaimingPod, PodClaim, ResourceClaim
from bindery.nodecore.container_manager import NodeConfig
from bindery.nodecore.machine import uniform
from bindery.nodecore.plugins import Registered
from bindery.nodecore.pods import Container, Pod

GPU = "vendor.com/gpu"
DRIVER = "gpu.vendor.com"
MIB = 1 << 20
_REGISTRATION = registration_api.DESCRIPTOR.services_by_name["Registration"]
ALLOCATABLE = {"cpu": 64_000, "memory": 64 << 30, "pods": 110, GPU: 8}
CONFIG = NodeConfig(
    uniform(sockets=2, cores_per_numa=32, memory_bytes_per_numa=32 << 30),
    {"cpu": 64_000, "memory": 64 << 30},
    kube_reserved={"cpu": 1000},
    cpu_policy="static",
    topology_policy="best-effort",
)

Answer = Callable[[list[str]], Awaitable[device_api.AllocateResponse]]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until `holds`."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  files and servers have no event
            await asyncio.sleep(0.02)


async def never() -> None:
    """Wait for ever."""
    await asyncio.Event().wait()


def wanting(uid: str, gpus: int = 1, cpu: int = 0) -> Candidate:
    """Return a pod with a container that asks for devices and whole CPUs."""
    amounts = {"memory": MIB, "cpu": 1000 * cpu or 1, **({GPU: gpus} if gpus else {})}
    return Candidate(Pod(uid, [Container("app", amounts, amounts)], name=uid), node_name="node")


def using(uid: str, claim: str = "claim", namespace: str = "default") -> ClaimingPod:
    """Return a pod whose container uses a claim."""
    claims = (PodClaim("gpu", claim),)
    return ClaimingPod(uid, uid, namespace, claims, uses={"app": (("gpu", ""),)})


@dataclass
class DevicePlugin:
    """A device plugin. `answer`: what Allocate does with the ids."""

    devices: list[device_api.Device] = field(
        default_factory=lambda: [device(f"gpu-{one}", one // 4) for one in range(8)]
    )
    options: device_api.DevicePluginOptions = field(default_factory=device_api.DevicePluginOptions)
    answer: Answer | None = None
    preferred: Callable[[device_api.ContainerPreferredAllocationRequest], list[str]] = (
        lambda request: list(request.available_deviceIDs)
    )
    pre_start: Callable[[], Awaitable[None]] | None = None
    allocated: list[list[str]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    breaks: bool = False

    async def run(self, directory: Path, socket: str = "gpu.sock") -> None:
        """Serve and register until cancelled, again after each start of the kubelet."""
        await deviceplugins.run(directory, socket, GPU, self.methods(), self.options)

    def methods(self) -> Methods:
        return {
            "ListAndWatch": self._list,
            "Allocate": self._allocate,
            "GetPreferredAllocation": self._prefer,
            "PreStartContainer": self._pre_start,
        }

    async def _list(self, _request: object) -> AsyncIterator[device_api.ListAndWatchResponse]:
        while True:
            self.changed.clear()
            yield device_api.ListAndWatchResponse(devices=self.devices)
            await self.changed.wait()
            if self.breaks:
                raise services.Refusal("out of order")

    async def _allocate(self, request: device_api.AllocateRequest) -> device_api.AllocateResponse:
        (wanted,) = request.container_requests
        ids = list(wanted.devices_ids)
        self.allocated.append(ids)
        return await self.answer(ids) if self.answer is not None else given(ids)

    async def _prefer(
        self, request: device_api.PreferredAllocationRequest
    ) -> device_api.PreferredAllocationResponse:
        (wanted,) = request.container_requests
        answer = device_api.ContainerPreferredAllocationResponse(deviceIDs=self.preferred(wanted))
        return device_api.PreferredAllocationResponse(container_responses=[answer])

    async def _pre_start(self, _request: object) -> device_api.PreStartContainerResponse:
        if self.pre_start is not None:
            await self.pre_start()
        return device_api.PreStartContainerResponse()


def device(name: str, node: int, health: str = "Healthy") -> device_api.Device:
    topology = device_api.TopologyInfo(nodes=[device_api.NUMANode(ID=node)])
    return device_api.Device(ID=name, health=health, topology=topology)


def given(ids: Sequence[str]) -> device_api.AllocateResponse:
    answer = device_api.ContainerAllocateResponse(envs={"GPUS": ",".join(ids)})
    return device_api.AllocateResponse(container_responses=[answer])


@dataclass
class DraDriver:
    """A DRA driver; `hold` runs in each call."""

    hold: Callable[[list[str]], Awaitable[None]] | None = None
    error: str = ""
    prepared: list[str] = field(default_factory=list)
    unprepared: list[str] = field(default_factory=list)
    skips: bool = False

    def methods(self) -> Methods:
        return {"NodePrepareResources": self._prepare, "NodeUnprepareResources": self._unprepare}

    async def _prepare(
        self, request: dra_pb2.NodePrepareResourcesRequest
    ) -> dra_pb2.NodePrepareResourcesResponse:
        uids = [one.uid for one in request.claims]
        self.prepared += uids
        if self.hold is not None:
            await self.hold(uids)
        found = dra_pb2.Device(
            pool_name="node", device_name="gpu-0", cdi_device_ids=[f"{DRIVER}/gpu=0"]
        )
        answer = dra_pb2.NodePrepareResourceResponse(devices=[found], error=self.error)
        answers = {} if self.skips else dict.fromkeys(uids, answer)
        return dra_pb2.NodePrepareResourcesResponse(claims=answers)

    async def _unprepare(
        self, request: dra_pb2.NodeUnprepareResourcesRequest
    ) -> dra_pb2.NodeUnprepareResourcesResponse:
        uids = [one.uid for one in request.claims]
        self.unprepared += uids
        if self.hold is not None:
            await self.hold(uids)
        answer = dra_pb2.NodeUnprepareResourceResponse(error=self.error)
        return dra_pb2.NodeUnprepareResourcesResponse(claims=dict.fromkeys(uids, answer))


@dataclass
class Plugin:
    """The registration socket of a plugin; what the kubelet reports is in `statuses`.

    `silent` names the call that gets no answer.
    """

    name: str = "csi.vendor.com"
    kind: str = "CSIPlugin"
    endpoint: str = ""
    versions: Sequence[str] = ("1.0.0",)
    silent: str = ""
    failing: str = ""
    statuses: list[tuple[bool, str]] = field(default_factory=list)

    @asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        server = services.serve(
            socket, (_REGISTRATION, {"GetInfo": self._info, "NotifyRegistrationStatus": self._note})
        )
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)

    async def _info(self, _request: registration_api.InfoRequest) -> registration_api.PluginInfo:
        await self._fail("GetInfo")
        return registration_api.PluginInfo(
            type=self.kind,
            name=self.name,
            endpoint=self.endpoint,
            supported_versions=self.versions,
        )

    async def _note(
        self, status: registration_api.RegistrationStatus
    ) -> registration_api.RegistrationStatusResponse:
        self.statuses.append((status.plugin_registered, status.error))
        await self._fail("NotifyRegistrationStatus")
        return registration_api.RegistrationStatusResponse()

    async def _fail(self, call: str) -> None:
        if self.silent == call:
            await never()
        if self.failing == call:
            raise services.Refusal("dying")


@dataclass
class Claims:
    """The API server's claims and the drivers whose slices were deleted."""

    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    wiped: list[str | None] = field(default_factory=list)

    def add(self, name: str, *pods: str) -> None:
        self.claims[name] = ResourceClaim(
            f"uid-{name}", name, "default", None, frozenset(pods), (DRIVER,)
        )

    async def claim(self, namespace: str, name: str) -> ResourceClaim:
        del namespace
        if name not in self.claims:
            raise ClaimError(f'resourceclaims.resource.k8s.io "{name}" not found')
        return self.claims[name]

    async def wipe_slices(self, driver: str | None) -> None:
        self.wiped.append(driver)


class SocketWorld:
    """A node whose agent can be started and stopped."""

    def __init__(self, directory: Path, config: NodeConfig = CONFIG) -> None:
        self.directory, self.config = directory, config
        self.claims = Claims()
        self.api: ClaimApi = self.claims
        self.now_s = 1000.0
        self.evicted: list[str] = []
        self.allocate_timeout_s = 30.0
        self.claim_timeout_s = 30.0
        self._stack: list[asyncio.Task[None]] = []
        self.node = self._new()

    @property
    def device_plugins(self) -> Path:
        return self.directory / "device-plugins"

    @property
    def registry(self) -> Path:
        return self.directory / "plugins_registry"

    def _new(self) -> NodeSockets:
        clocks = NodeClocks(
            lambda: self.now_s, Random(1), self.allocate_timeout_s, self.claim_timeout_s, 0.2
        )

        async def evict(uids: Sequence[str]) -> None:
            self.evicted += uids

        return NodeSockets("node", self.config, self.directory, self.api, clocks, evict)

    async def start(self, *, is_ready: bool = True) -> str | None:
        """Start the agent; return what was lost. `is_ready`: whether all pods are known."""
        self.node = self._new()
        lost = self.node.start()
        if is_ready:
            self.node.ready()
        await self.node.serve()
        return lost

    async def stop(self) -> None:
        for task in self._stack:
            task.cancel()
        await asyncio.gather(*self._stack, return_exceptions=True)
        await self.node.stop()

    def begin(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Run a plugin until the end of the test."""
        task = asyncio.ensure_future(work)
        self._stack.append(task)
        return task

    async def plugged(self, plugin: DevicePlugin) -> asyncio.Task[None]:
        """Start a device plugin and wait for its devices."""
        task = self.begin(plugin.run(self.device_plugins))
        await self.offered(sum(one.health == "Healthy" for one in plugin.devices))
        return task

    async def offered(self, count: int) -> None:
        """Wait until the node offers this many devices."""
        await until(lambda: self.node.status().devices.allocatable.get(GPU, 0) == count)

    @asynccontextmanager
    async def driving(
        self, driver: DraDriver, version: str = "v1", name: str = "a"
    ) -> AsyncIterator[None]:
        """Run a DRA driver and wait until it is registered."""
        service = self.directory / f"{name}.sock"
        full_name = f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
        server = served(service, full_name, driver.methods())
        await server.start()
        plugin = Plugin(DRIVER, "DRAPlugin", str(service), [f"{version}.DRAPlugin"])
        try:
            async with plugin.serving(self.registry / f"{name}-reg.sock"):
                await until(lambda: (True, "") in plugin.statuses)
                yield
        finally:
            await server.stop(None)

    def registered(self) -> list[Registered]:
        return list(self.node.status().plugins)

    async def admit(self, uid: str, gpus: int = 1, cpu: int = 0) -> tuple[str, str]:
        """Return the reason and the message of a refusal, both empty if the pod may run."""
        found = await self.node.admit(wanting(uid, gpus, cpu), ALLOCATABLE)
        return found.reason, found.message

    def held(self, uid: str) -> list[str]:
        found = self.node.manager.devices.devices_of(uid, "app")
        return sorted(found[GPU].ids) if GPU in found else []

    async def listed(self) -> dict[str, list[str]]:
        """Return the devices of each pod, as the socket PodResources shows them."""
        lister = resources_api.DESCRIPTOR.services_by_name["PodResourcesLister"]
        async with Peer(self.directory / "pod-resources/kubelet.sock", lister) as kubelet:
            found = await kubelet.call(
                "List",
                resources_api.ListPodResourcesRequest(),
                resources_api.ListPodResourcesResponse,
                10.0,
            )
        return {
            pod.name: sorted(
                one for each in pod.containers for entry in each.devices for one in entry.device_ids
            )
            for pod in found.pod_resources
        }


def served(socket: Path, full_name: str, methods: Methods) -> grpc.aio.Server:
    """Return a server of a DRA service under another version's name: the messages are the same."""
    service = dra_pb2.DESCRIPTOR.services_by_name["DRAPlugin"]
    with suppress(FileNotFoundError):
        socket.unlink()
    server = grpc.aio.server()
    handlers = {
        name: services._handler(service.methods_by_name[name], answer)
        for name, answer in methods.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(full_name, handlers),))
    server.add_insecure_port(f"unix:{socket}")
    return server
