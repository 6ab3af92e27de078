"""The cluster under attack: nodes of every make, two schedulers, two binders, and hardware's fakes.

Scheduler and binder reach the API server through a proxy each, so that their connections can be cut
without those of the observers. Everything lives in one namespace and one node pool.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from bindery.api.configuration import (
    BinderConfiguration,
    PluginConfiguration,
    SchedulerConfiguration,
)
from bindery.api.hami import nodedevices
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.vendortable import NVIDIA
from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from bindery.kube.objects.resources import NODES
from devcluster.components import Component, Components
from devcluster.install import Installation
from fakes.hami import HamiDevicePlugin
from fakes.provisioner import ProvisionerStandIn
from fakes.reservations import GpuDevicePlugins
from tests.e2e.dracorner import Driver
from tests.e2e.storagecorner import Storage
from tests.e2e.support import SHORT_LEASES, Corner, wait_for
from tests.kube.faultproxy import FaultProxy

CPU_NODES: Final = 6
CORES: Final = 16
GPU_NODES: Final = 4
GPU_NODE_CORES: Final = 32
GPUS: Final = 4
HAMI_NODES: Final = 2
CARD: Final = NodeDevice(
    id="GPU-0", count=10, memory_mib=10_000, cores=100, type="NVIDIA-T4", healthy=True
)
CLAIMED_DEVICES: Final = 2
"""Devices that each CPU node offers to resource claims."""
LIMITED_CORES: Final = 24
TEMPLATE: Final = "device"
_BEAT_S: Final = 15.0


@dataclass
class Ground:
    """What stands while an attack goes on."""

    corner: Corner
    installation: Installation
    components: dict[str, Component] = field(default_factory=dict)
    """Name -> process of Bindery."""
    proxies: dict[str, FaultProxy] = field(default_factory=dict)
    """Which component's connections it carries -> proxy."""
    queues: dict[str, str] = field(default_factory=dict)
    """Short name -> the queue's name in the cluster."""
    storage_class: str = ""
    driver: Driver = field(init=False)
    devices: GpuDevicePlugins = field(init=False)
    hami: dict[str, HamiDevicePlugin] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the drivers, which do nothing yet."""
        self.driver = Driver(self.corner)
        self.devices = GpuDevicePlugins(self.corner.client, f"{self.corner.namespace}-g")

    @property
    def client(self) -> Client:
        """The observers' own way to the API server."""
        return self.corner.client

    def cores_of(self, node: str) -> int:
        """Return the millicores that `node` has."""
        kind = node.removeprefix(f"{self.corner.namespace}-")[:1]
        return 1000 * {"c": CORES, "g": GPU_NODE_CORES, "h": CORES}[kind]

    def gpus_of(self, node: str) -> int:
        """Return the GPUs that `node` has for whole use and for shares."""
        return GPUS if node.startswith(f"{self.corner.namespace}-g") else 0

    @asynccontextmanager
    async def stand(self) -> AsyncIterator["Ground"]:
        """Bring everything up, and take it down after the body."""
        async with AsyncExitStack() as stack:
            await self._start_processes(stack)
            await self._add_hami_nodes(stack)
            await self._add_queues()
            await self._add_storage(stack)
            await self._add_devices(stack)
            await stack.enter_async_context(self.devices.play())
            yield self

    async def _start_processes(self, stack: AsyncExitStack) -> None:
        kubeconfigs = dict(self.installation.kubeconfigs)
        for name in ("scheduler", "binder"):
            directory = self.installation.control_plane.state_dir / "chaos" / name
            directory.mkdir(parents=True, exist_ok=True)
            proxy = FaultProxy(kubeconfigs[name], directory)
            self.proxies[name] = await stack.enter_async_context(proxy.serve())
            kubeconfigs[name] = proxy.kubeconfig
        made = Components(replace(self.installation, kubeconfigs=kubeconfigs))
        stack.callback(made.stop)
        prefix, pool = self.corner.namespace, f"--node-pool={self.corner.pool}"
        for name, count, cores, gpus in (
            ("c", CPU_NODES, CORES, 0),
            ("g", GPU_NODES, GPU_NODE_CORES, GPUS),
        ):
            options = [pool, f"--name-prefix={prefix}-{name}", f"--cpu={cores}", f"--gpus={gpus}"]
            agent = made.start_hollow_nodes(count, options, name=f"agent-{name}")
            self.components[agent.name] = agent
        for number in range(2):
            for component in (
                made.start_scheduler(self._scheduler(), name=f"scheduler-{number}"),
                made.start_binder(_binder(), name=f"binder-{number}"),
            ):
                self.components[component.name] = component
        for component in self.components.values():
            await asyncio.to_thread(component.wait_ready)

    def _scheduler(self) -> SchedulerConfiguration:
        return SchedulerConfiguration(node_pool=self.corner.pool, leader_election=SHORT_LEASES)

    async def _add_hami_nodes(self, stack: AsyncExitStack) -> None:
        names = [f"h{number}" for number in range(HAMI_NODES)]
        register = {NVIDIA.register_key: nodedevices.encode_json([CARD])}
        room = {NVIDIA.count_resource: str(CARD.count)}
        for node in await self.corner.add_nodes(*names, cpu=str(CORES)):
            status = {"status": {"capacity": room, "allocatable": room}}
            await self.client.patch(NODES, node, {"metadata": {"annotations": register}})
            await self.client.patch(NODES, node, status, subresource="status")
            self.hami[node] = HamiDevicePlugin(self.client, node)
            _run(stack, surviving(self.hami[node].run))
        _run(stack, self._beat())

    async def _beat(self) -> None:
        """Keep the nodes without an agent alive."""
        while True:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            condition = {
                "type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastHeartbeatTime": now,
            }  # fmt: skip
            for node in self.hami:
                patch = {"status": {"conditions": [condition]}}
                await insist(partial(self.client.patch, NODES, node, patch, subresource="status"))
            await asyncio.sleep(_BEAT_S)

    async def _add_queues(self) -> None:
        share = {"quota": "20", "overQuotaWeight": 1}
        specs: dict[str, dict[str, Any]] = {
            "limited": {"resources": {"cpu": {"limit": str(LIMITED_CORES)}}},
            "org": {"resources": {"cpu": {"quota": "40"}}},
            "a": {"resources": {"cpu": share}},
            "b": {"resources": {"cpu": share}},
        }
        for name, spec in specs.items():
            parent = {"parent": self.queues["org"]} if name in ("a", "b") else {}
            self.queues[name] = await self.corner.add_queue(name, {**spec, **parent})

    async def _add_storage(self, stack: AsyncExitStack) -> None:
        storage = Storage(self.corner)
        stack.push_async_callback(storage.clean)
        name = storage.driver
        self.storage_class = await storage.add_class("late", "WaitForFirstConsumer", name)
        stand_in = ProvisionerStandIn(self.client, self.corner.namespace, name)
        await stack.enter_async_context(stand_in.serving())

    async def _add_devices(self, stack: AsyncExitStack) -> None:
        await self.driver.make_class()
        stack.push_async_callback(self.driver.clean)
        await self.driver.make_template(TEMPLATE)
        for number in range(CPU_NODES):
            node = f"{self.corner.namespace}-c{number}"
            devices = [{"name": f"device-{index}"} for index in range(CLAIMED_DEVICES)]
            await self.driver.publish(node, devices)


def _binder() -> BinderConfiguration:
    return BinderConfiguration(
        plugins=(
            PluginConfiguration(name="volumes"),
            PluginConfiguration(name="dra"),
            PluginConfiguration(name="gpusharing", arguments={"deadlineSeconds": 20}),
            # A fake that a restart of the API server cuts off leaves its lock until it expires.
            PluginConfiguration(name="hami", arguments={"expireSeconds": 30}),
        ),
        time_to_live_seconds=1.0,
        max_backoff_seconds=2.0,
        leader_election=SHORT_LEASES,
    )


def _run(stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until the stack is unwound."""
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


async def insist(call: Callable[[], Awaitable[object]], timeout_s: float = 60.0) -> None:
    """Repeat `call` while the API server is away; an object that is gone or there is fine."""

    async def done() -> bool:
        try:
            await call()
        except (NotFoundError, AlreadyExistsError):
            return True
        except KubeError:
            return False
        return True

    await wait_for(done, "a call of the attack itself", timeout_s)


async def surviving(work: Callable[[], Awaitable[None]]) -> None:
    """Start `work`, a fake that does not outlive an API server's restart, again and again."""
    while True:
        with suppress(KubeError):
            await work()
        await asyncio.sleep(0.5)
