"""The door to a node's resources: pods are admitted, claims prepared, plugins and readers served.

Used by the node agent, whose pod workers call it. Each call waits only for the plugins of its own
pod; a plan of another pod never waits for it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

import grpc
import structlog

from bindery.nodeagent.admission import PodAdmission
from bindery.nodeagent.kubeletside import deviceplugins, plugins
from bindery.nodeagent.kubeletside.claims import ClaimApi, PodClaims
from bindery.nodeagent.kubeletside.deviceplugins import DevicePlugins, run_options
from bindery.nodeagent.kubeletside.drivers import DraDrivers
from bindery.nodeagent.kubeletside.plugins import PluginManager
from bindery.nodeagent.kubeletside.podresources import PodResourcesServer
from bindery.nodecore.admission.facts import Candidate
from bindery.nodecore.admission.result import Admission, refused
from bindery.nodecore.checkpoints.store import CheckpointManager, DirectoryStore
from bindery.nodecore.claims import health
from bindery.nodecore.claims.calls import CALL_TIMEOUT_S
from bindery.nodecore.claims.drivers import Drivers
from bindery.nodecore.claims.facts import ClaimingPod
from bindery.nodecore.claims.health import DeviceHealth, HealthState
from bindery.nodecore.claims.manager import RECONCILE_PERIOD_S, ClaimManager
from bindery.nodecore.container_manager import ContainerManager, NodeConfig
from bindery.nodecore.containers import ContainerIds
from bindery.nodecore.devices.manager import Capacity
from bindery.nodecore.devices.options import RunOptions
from bindery.nodecore.errors import AllocationError
from bindery.nodecore.plugins import PluginHandler, PluginType, Registered
from bindery.nodecore.pods import Container, Pod

_UUID_BITS: Final = 128
_GONE: Final = "the pod has ended"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class NodeClocks:
    """Clock and chance of the node, and the deadlines of calls.

    Attributes:
        now_s: seconds since the epoch.
        allocate_timeout_s: the deadline of `Allocate` and `GetPreferredAllocation`.
        claim_timeout_s: the deadline of `NodePrepareResources` and `NodeUnprepareResources`.
        stale_claims_s: seconds between two looks for claims of pods that are gone.
    """

    now_s: Callable[[], float]
    random: Random
    allocate_timeout_s: float = deviceplugins.ALLOCATE_TIMEOUT_S
    claim_timeout_s: float = CALL_TIMEOUT_S
    stale_claims_s: float = RECONCILE_PERIOD_S

    def new_uuid(self) -> str:
        """Draw a UUID."""
        return str(UUID(int=self.random.getrandbits(_UUID_BITS), version=4))


@dataclass(frozen=True)
class SocketStatus:
    """What the node reports.

    Attributes:
        devices: the amounts of extended resources.
        plugins: the plugins that the plugin manager has registered.
        health: the last reports about devices of claims.
        planned: pods that wait for their plugins.
    """

    devices: Capacity
    plugins: Sequence[Registered]
    health: HealthState
    planned: Sequence[str]


class NodeSockets:
    """The resources of the node `name`, and its sockets below the kubelet's `directory`.

    `evict`: stops pods in favour of a critical one, and returns when they have ended.
    """

    def __init__(
        self,
        name: str,
        config: NodeConfig,
        directory: Path,
        api: ClaimApi,
        clocks: NodeClocks,
        evict: Callable[[Sequence[str]], Coroutine[None, None, None]],
        declared_features: Sequence[str] | None = None,
    ) -> None:
        self._pods = PodAdmission(name, declared_features)
        self._evict, self._stale_claims_s = evict, clocks.stale_claims_s
        self._claiming: dict[str, ClaimingPod] = {}
        self._calls: dict[str, asyncio.Task[Admission]] = {}
        self._evictions: set[asyncio.Task[None]] = set()
        self._now_s = now_s = clocks.now_s
        drivers = Drivers(now_s)
        devices = directory / deviceplugins.DIRECTORY
        self._stores = DirectoryStore(directory), DirectoryStore(devices)
        files, device_files = map(CheckpointManager, self._stores)
        claims = ClaimManager(files, self._pods, drivers.find)
        self.manager = ContainerManager(config, self._pods, files, device_files, now_s, claims)
        self._pods.use(self.manager)
        self._device_plugins = DevicePlugins(
            devices, self.manager.devices, clocks.allocate_timeout_s
        )
        self._drivers = DraDrivers(
            drivers,
            api.wipe_slices,
            now_s,
            clocks.random,
            self._health_changed,
            clocks.claim_timeout_s,
        )
        self._pod_claims = PodClaims(claims, self._drivers, api)
        self._handlers: dict[str, PluginHandler] = {
            PluginType.DEVICE: self._device_plugins,
            PluginType.DRA: self._drivers,
        }
        self.plugins = PluginManager(
            directory / plugins.DIRECTORY, self._handlers, now_s, clocks.new_uuid
        )
        self._pod_resources = PodResourcesServer(directory, self.manager, self)
        self._is_stopping = False
        self._server: grpc.aio.Server | None = None
        self._running: asyncio.Task[None] | None = None

    def use_csi(self, csi: PluginHandler) -> None:
        """Let `csi` take the CSI drivers that register; without it they are refused."""
        self._handlers[PluginType.CSI] = csi

    def start(self, containers: ContainerIds | None = None) -> str | None:
        """Restore what containers hold; return a sentence if the state of devices is lost.

        `containers`: the containers that run already.

        Raises:
            NodeCoreError: a checkpoint cannot be used, or the settings contradict the machine.
            OSError: a file that a killed agent has left cannot be removed.
        """
        for store in self._stores:
            store.remove_unfinished()
        lost = self.manager.start(containers)
        return None if lost is None else f"the state of devices is lost: {lost}"

    async def serve(self) -> None:
        """Open all sockets and serve until `stop`; returns when they are open.

        Raises:
            OSError: a directory cannot be used.
        """
        await self._device_plugins.serve()
        self._server = self._pod_resources.server()
        await self._server.start()
        self._running = asyncio.create_task(self._run())

    async def wait(self) -> None:
        """Wait for the end of serving: `stop`, or an error, which is raised."""
        if self._running is not None:
            await asyncio.shield(self._running)

    async def stop(self) -> None:
        """Close all sockets and connections; the state stays in the checkpoints.

        Calls of `admit` that wait are cancelled: the pods are not refused.
        """
        self._is_stopping = True
        tasks: list[asyncio.Task[Admission] | asyncio.Task[None]] = [*self._calls.values()]
        if self._running is not None:
            tasks.append(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._drivers.stop()
        await self._device_plugins.stop()
        if self._server is not None:
            await self._server.stop(None)

    def ready(self) -> None:
        """Release the resources of pods that have not been admitted since the start."""
        self._pods.ready()

    def is_recorded(self, uid: str) -> bool:
        """Return whether containers of the pod `uid` already hold resources."""
        return self._pods.is_recorded(uid)

    def begin(
        self,
        candidate: Candidate,
        allocatable: Mapping[str, int],
        claiming: ClaimingPod | None = None,
    ) -> Admission | None:
        """Plan a pod and begin to call its plugins; return the answer, None while they are asked.

        `claiming`: the claims of the pod, if it has any.
        """
        uid = candidate.pod.uid
        known = self._pods.answer(uid)
        if known is not None or uid in self._calls:
            return known
        planned = self._pods.plan(candidate, allocatable)
        if not planned.admit:
            return planned
        if claiming is not None:
            self._claiming[uid] = claiming
        calls = asyncio.create_task(self._call_plugins(uid, self._evicted()))
        self._calls[uid] = calls
        calls.add_done_callback(lambda done: self._end(uid, done))
        return None

    async def admit(
        self,
        candidate: Candidate,
        allocatable: Mapping[str, int],
        claiming: ClaimingPod | None = None,
    ) -> Admission:
        """Return whether a pod may run, once its plugins have answered; the answer is final.

        As `begin`, and waits. A second call for a pod waits for the same answer.
        """
        uid = candidate.pod.uid
        known = self.begin(candidate, allocatable, claiming)
        if known is not None:
            return known
        try:
            return await asyncio.shield(self._calls[uid])
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling() or self._is_stopping:
                raise  # an agent that stops refuses no pod
            return refused(AllocationError(_GONE))

    async def prepare(self, pod: ClaimingPod) -> None:
        """Prepare the claims of a pod before its containers start; call again after a failure.

        Raises:
            ClaimError: a claim may not be used, or a driver fails or does not answer in time.
        """
        self._claiming[pod.uid] = pod
        await self._pod_claims.prepare(pod)

    async def unprepare(self, pod: ClaimingPod) -> None:
        """Unprepare the claims of a pod whose containers have ended; call again after a failure.

        Raises:
            ClaimError: a driver fails or does not answer in time.
        """
        await self._pod_claims.unprepare(pod)

    async def options(self, pod: Pod, container: Container) -> RunOptions:
        """Return what devices and claims add to a container that is about to start.

        Devices that are lost are allocated once more, and plugins are called that ask for it.

        Raises:
            AllocationError: a plugin fails, or the devices are not there.
            ClaimError: a claim is not prepared.
        """
        devices = self.manager.devices
        for call in devices.pre_start_calls(pod, container):
            await self._device_plugins.pre_start(call)
        if devices.lacks(pod, container) and self._pods.candidate(pod.uid) is not None:
            await self._allocate_again(pod, container)
        return self.manager.resources(pod, container, run_options, self._claiming.get(pod.uid))

    def release(self, uid: str) -> bool:
        """Release the resources of the ended pod `uid`; return whether the pod was known.

        Calls that wait for its plugins end; their answers change nothing.

        Raises:
            OSError: a checkpoint cannot be written.
        """
        calls = self._calls.pop(uid, None)
        if calls is not None:
            calls.cancel()
        self._claiming.pop(uid, None)
        return self._pods.release(uid)

    def status(self) -> SocketStatus:
        """Return what the node reports; resources whose plugin is gone for long are left out."""
        return SocketStatus(
            self.manager.devices.capacity(),
            self.plugins.registered(),
            self._drivers.health,
            sorted(self._calls),
        )

    def health_of_claims(self, pod: ClaimingPod, container: str) -> dict[str, dict[str, str]]:
        """Return the health of the devices of each claim that a container uses, for its status."""
        claims = self.manager.claims
        uses = claims.devices_by_use(pod, container) if claims is not None else {}
        return {
            use: health.shown(self._drivers.health, devices, self._now_s())
            for use, devices in uses.items()
        }

    def pods(self) -> Iterable[Pod]:
        """Return the pods that have not ended, also pods that wait for their plugins.

        A plugin that is called for the next container of a pod finds the earlier ones.
        """
        return self._pods.active_pods()

    def claiming(self, uid: str) -> ClaimingPod | None:
        """Return what is known of the claims of a pod."""
        return self._claiming.get(uid)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.plugins.run())
            group.create_task(self._drivers.run())
            group.create_task(self._pod_claims.run(self._stale_claims_s))

    def _evicted(self) -> asyncio.Task[None] | None:
        """Stop the pods that the last plan replaces; what they held is given away already."""
        victims = self._pods.stopped()
        if not victims:
            return None
        task = asyncio.create_task(self._evict(victims))
        self._evictions.add(task)
        task.add_done_callback(self._evictions.discard)
        return task

    def _end(self, uid: str, calls: asyncio.Task[Admission]) -> None:
        if self._calls.get(uid) is calls:
            del self._calls[uid]

    async def _call_plugins(self, uid: str, evicted: asyncio.Task[None] | None) -> Admission:
        try:
            await self._ask(uid)
            if evicted is not None:
                await asyncio.shield(evicted)
            self._pods.confirm(uid)
        except (AllocationError, OSError) as error:
            failure = error if isinstance(error, AllocationError) else AllocationError(str(error))
            self._pods.refuse(uid, refused(failure))
        # A critical pod can have replaced it meanwhile.
        return self._pods.answer(uid) or refused(AllocationError(_GONE))

    async def _ask(self, uid: str) -> None:
        """Ask the plugins of a planned pod; raises AllocationError if one of them fails."""
        while (question := self.manager.devices.question(uid)) is not None:
            self.manager.devices.prefer(question, await self._device_plugins.preferred(question))
            if not self._pods.plan_again(uid).admit:
                return
        await self._allocate(uid)

    async def _allocate_again(self, pod: Pod, container: Container) -> None:
        devices = self.manager.devices
        devices.allocate(pod, container)
        while (question := devices.question(pod.uid)) is not None:
            devices.prefer(question, await self._device_plugins.preferred(question))
            devices.give_back(pod.uid)
            devices.allocate(pod, container)
        await self._allocate(pod.uid)

    async def _allocate(self, uid: str) -> None:
        devices = self.manager.devices
        try:
            for call in devices.calls(uid):
                devices.record({call: await self._device_plugins.allocate(call)})
        except BaseException:
            devices.give_back(uid)
            raise

    def _health_changed(self, driver: str, changed: Sequence[DeviceHealth]) -> None:
        log.info("health of devices", driver=driver, devices=len(changed))
