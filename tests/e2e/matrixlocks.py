"""The world of the kill matrix in which HAMi's device plugin serves pods under the node's lock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bindery.api.configuration import PluginConfiguration
from bindery.api.hami import names, nodedevices
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import (
    NODE_POOL_LABEL,
    POD_GROUP_ANNOTATION,
    VOID_BINDINGS_ANNOTATION,
)
from bindery.kube.objects.resources import NODES, PODS
from bindery.kube.objects.watched import Pod
from fakes.hami import HamiDevicePlugin
from tests.e2e.matrixworld import OTHER, REFUSED, Refuse, World
from tests.e2e.support import Corner, Gang

_LIMITS = {NVIDIA.count_resource: "1", NVIDIA.memory_resource: "4000"}
_CARD = NodeDevice(
    id="GPU-0", count=10, memory_mib=10_000, cores=100, type="NVIDIA-T4", healthy=True
)
_OWN = (POD_GROUP_ANNOTATION, NODE_POOL_LABEL, VOID_BINDINGS_ANNOTATION)
"""What pods are created with."""


@dataclass
class LockedNodes(World):
    """Each node has one card; the first refuses pods when they have its lock already."""

    plugin = PluginConfiguration(name="hami")
    refuse = Refuse.IN_TURN
    _device_plugins: dict[str, HamiDevicePlugin] = field(default_factory=dict)
    """Corner -> the device plugin of its other node."""

    def gang(self, corner: Corner) -> Gang:  # noqa: ARG002  # equal everywhere
        container = {"name": "worker", "image": "worker", "resources": {"limits": _LIMITS}}
        return Gang(self.name, size=2, pod={"containers": [container]})

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        register = {NVIDIA.register_key: nodedevices.encode_json([_CARD])}
        room = {NVIDIA.count_resource: str(_CARD.count)}
        for name in (REFUSED, OTHER):
            node = f"{corner.namespace}-{name}"
            status = {"status": {"capacity": room, "allocatable": room}}
            await corner.client.patch(NODES, node, {"metadata": {"annotations": register}})
            await corner.client.patch(NODES, node, status, subresource="status")
        plugin = HamiDevicePlugin(corner.client, f"{corner.namespace}-{OTHER}")
        self._device_plugins[corner.namespace] = plugin
        task = asyncio.create_task(plugin.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def renew(self, corner: Corner) -> None:
        self._device_plugins[corner.namespace].served.clear()

    async def held(self, corner: Corner) -> list[str]:
        left = [
            f"{pod.metadata.name} has {key}"
            for pod in await self._pods(corner)
            for key in (*pod.metadata.annotations, *pod.metadata.labels)
            if key not in _OWN
        ]
        return left + await _locks(corner)

    async def amiss(self, corner: Corner) -> list[str]:
        """Return deviations: each pod is served once, and no pod waits for the lock any more."""
        plugin = self._device_plugins[corner.namespace]
        wrong = [f"device plugin: {text}" for text in plugin.failed]
        served = sorted(plugin.served)
        names_of_pods = [f"{self.name}-{index}" for index in range(2)]
        if [each[:2] for each in served] != [(name, name) for name in names_of_pods]:
            wrong.append(f"served {served}")
        for pod in await self._pods(corner):
            annotations = pod.metadata.annotations
            wanted = {
                names.ASSIGNED_NODE: f"{corner.namespace}-{OTHER}",
                names.BIND_PHASE: names.BindPhase.SUCCESS.value,
                NVIDIA.allocated_key: "GPU-0,NVIDIA,4000,0:;",
            }
            wrong += [
                f"{pod.metadata.name} has {key}={annotations.get(key)}"
                for key, value in wanted.items()
                if annotations.get(key) != value
            ]
        return wrong + await _locks(corner)

    async def _pods(self, corner: Corner) -> list[Pod]:
        every = await corner.client.list(PODS, namespace=corner.namespace)
        return [pod for pod in every if pod.metadata.name.startswith(f"{self.name}-")]

    async def left_over(self, corner: Corner) -> list[str]:
        return await _locks(corner)


async def _locks(corner: Corner) -> list[str]:
    nodes = [
        await corner.client.get(NODES, f"{corner.namespace}-{name}") for name in (REFUSED, OTHER)
    ]
    values = [node.metadata.annotations.get(names.NODE_LOCK) for node in nodes]
    return [f"lock {value}" for value in values if value is not None]
