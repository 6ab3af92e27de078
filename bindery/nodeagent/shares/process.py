"""The parts of a node's GPU sharing, started together: `run` is one coroutine of a node's agent.

`NodeShares` is for nodes whose GPUs this plugin shares. `NodeGpuIndexes` is for nodes with another
device plugin, such as NVIDIA's: it only writes which GPUs pods have got.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from bindery.api.hami.vendortable import NVIDIA
from bindery.kube.client import Client
from bindery.nodeagent.devices.hamiregister import Sharing
from bindery.nodeagent.devices.inventory import DeviceSource
from bindery.nodeagent.devices.podresources import SOCKET, PodResourcesSource
from bindery.nodeagent.devices.reporter import DeviceReporter
from bindery.nodeagent.shares.containers import DeviceList
from bindery.nodeagent.shares.corefiles import CoreFiles
from bindery.nodeagent.shares.handshake import Handshake, Means
from bindery.nodeagent.shares.indexes import IndexWriter
from bindery.nodeagent.shares.nodelock import NodeLockReader
from bindery.nodeagent.shares.plugin import SharesPlugin
from bindery.nodeagent.shares.settler import Settler
from bindery.nodeagent.shares.view import NodeView

COMPONENT: Final = "bindery-shares"
DEVICE_PLUGINS: Final = Path("/var/lib/kubelet/device-plugins")
HAMI_CORE: Final = PurePosixPath("/usr/local")


@dataclass(frozen=True)
class SharesOptions:
    """How the GPUs of a node are shared."""

    node: str
    source: DeviceSource
    sharing: Sharing
    device_list: DeviceList = DeviceList.ENVVAR
    hami_core: PurePosixPath = HAMI_CORE
    """The parent of HAMi-core's directory `vgpu`, on the node and in containers."""
    root: Path = Path("/")
    """The root directory of the node, as this process sees it."""
    device_plugins: Path = DEVICE_PLUGINS
    """The directory with the kubelet's socket."""
    pod_resources: Path = SOCKET
    every_s: float = 30.0
    """Seconds between two reads of the devices."""


class NodeShares:
    """GPU sharing on one node."""

    def __init__(self, options: SharesOptions, client: Client) -> None:
        self._options = options
        turn = asyncio.Lock()
        self._view = view = NodeView(client, options.node)
        self._reporter = DeviceReporter(
            client,
            options.node,
            options.source,
            options.sharing,
            lambda: view.node,
            options.every_s,
        )
        lock = NodeLockReader(client, options.node)
        kubelet = PodResourcesSource(options.pod_resources, NVIDIA.count_resource)
        core = CoreFiles(options.root, options.hami_core)
        means = Means(client, view, lock, kubelet, core, options.sharing, options.device_list)
        self._plugin = SharesPlugin(Handshake(means), self._reporter, options.sharing, turn)
        self._settler = Settler(client, view, lock, core, turn)
        self._indexes = IndexWriter(client, view, self._reporter, kubelet)

    async def run(self) -> None:
        """Share the GPUs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._view.run())
            await self._view.wait_filled()
            group.create_task(self._reporter.run())
            group.create_task(self._settler.run())
            group.create_task(self._indexes.run())
            # The kubelet forgets devices that are not in the first answer, and pods lose them.
            await self._reporter.wait_known()
            group.create_task(self._plugin.run(self._options.device_plugins))

    def checks(self) -> dict[str, Callable[[], bool]]:
        """Return the conditions of readiness: name -> whether it holds."""
        return {
            "watches up to date": self._view.is_healthy,
            "devices read": lambda: bool(self._reporter.gpus),
        }


class NodeGpuIndexes:
    """Observes the GPUs of a node that another device plugin serves."""

    def __init__(self, options: SharesOptions, client: Client) -> None:
        self._view = view = NodeView(client, options.node)
        self._reporter = DeviceReporter(
            client, options.node, options.source, None, lambda: view.node, options.every_s
        )
        kubelet = PodResourcesSource(options.pod_resources, NVIDIA.count_resource)
        self._indexes = IndexWriter(client, view, self._reporter, kubelet)

    async def run(self) -> None:
        """Observe until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._view.run())
            group.create_task(self._reporter.run())
            group.create_task(self._indexes.run())

    def checks(self) -> dict[str, Callable[[], bool]]:
        """Return the conditions of readiness: name -> whether it holds."""
        return {
            "watches up to date": self._view.is_healthy,
            "devices read": lambda: bool(self._reporter.gpus),
        }
