"""The parts of a node's GPU sharing, started together by `beside.gpuparts`."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bindery.kube.client import Client
from bindery.nodeagent.devices.hamiregister import Sharing
from bindery.nodeagent.devices.podresources import DeviceHolders
from bindery.nodeagent.devices.reporter import DeviceReporter
from bindery.nodeagent.hamicore import CoreFiles
from bindery.nodeagent.shares.devicelist import DeviceList
from bindery.nodeagent.shares.handshake import Handshake, Means
from bindery.nodeagent.shares.nodelock import NodeLockReader
from bindery.nodeagent.shares.plugin import SharesPlugin
from bindery.nodeagent.shares.settler import Settler
from bindery.nodeagent.shares.view import NodeView

DEVICE_PLUGINS: Final = Path("device-plugins")
"""Below the kubelet's directory: the directory with its socket."""


@dataclass(frozen=True)
class SharesOptions:
    """How the GPUs of a node are shared."""

    sharing: Sharing = field(default_factory=Sharing)
    device_list: DeviceList = DeviceList.ENVVAR


class NodeShares:
    """GPU sharing on the node of `view`, whose GPUs `devices` reads.

    `directory`: the kubelet's.
    """

    def __init__(
        self,
        client: Client,
        view: NodeView,
        devices: DeviceReporter,
        kubelet: DeviceHolders,
        core: CoreFiles,
        directory: Path,
        options: SharesOptions,
    ) -> None:
        self._devices, self._directory = devices, directory / DEVICE_PLUGINS
        turn = asyncio.Lock()
        lock = NodeLockReader(client, view.name)
        means = Means(client, view, lock, kubelet, core, options.sharing, options.device_list)
        self._plugin = SharesPlugin(Handshake(means), devices, options.sharing, turn)
        self._settler = Settler(client, view, lock, core, turn)

    async def run(self) -> None:
        """Share the GPUs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._settler.run())
            # The kubelet forgets devices that are not in the first answer, and pods lose them.
            await self._devices.wait_known()
            group.create_task(self._plugin.run(self._directory))
