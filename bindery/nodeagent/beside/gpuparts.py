"""What the agent does with the GPUs of its node: one reader of them, and the parts that are on.

Run by `agent`. Without the share plugin, the GPUs of pods are observed only.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from bindery.api.hami.vendortable import NVIDIA
from bindery.kube.client import Client
from bindery.nodeagent.devices.inventory import DeviceSource, NodeGpu, UseSource
from bindery.nodeagent.devices.podresources import DeviceHolders
from bindery.nodeagent.devices.reporter import DeviceReporter
from bindery.nodeagent.gpuclaims import offers
from bindery.nodeagent.gpuclaims.driver import DriverPaths, GpuClaimsDriver
from bindery.nodeagent.gpuclaims.offers import Gpus, WatchedGpus
from bindery.nodeagent.gpuuse.reporter import UseOptions, UseReporter
from bindery.nodeagent.hamicore import CoreFiles
from bindery.nodeagent.shares.indexes import IndexWriter
from bindery.nodeagent.shares.process import NodeShares, SharesOptions
from bindery.nodeagent.shares.view import NodeView
from bindery.nodeagent.sockets.podresources import SOCKET

CDI: Final = Path("/var/run/cdi")
HAMI_CORE: Final = PurePosixPath("/usr/local")


@dataclass(frozen=True)
class GpuOptions:
    """Which parts run.

    Attributes:
        source: reads the GPUs.
        kubelet: its directory; for claims with the same path as on the node.
        shares: None without the device plugin.
        has_claims: whether the DRA driver runs.
        use: how the use of the GPUs is judged.
        use_source: reads their use; None: `source` does.
        cdi: the directory of CDI files.
        hami_core: the parent of HAMi-core's directory `vgpu`, on the node and in containers.
        root: the root directory of the node, as this process sees it.
        every_s: seconds between two reads of the GPUs.
    """

    source: DeviceSource
    kubelet: Path
    shares: SharesOptions | None = None
    has_claims: bool = False
    use: UseOptions = field(default_factory=UseOptions)
    use_source: UseSource | None = None
    cdi: Path = CDI
    hami_core: PurePosixPath = HAMI_CORE
    root: Path = Path("/")
    every_s: float = 30.0


class GpuParts:
    """The parts of the node `node`. `on_pod` is called after each change of a pod in `view`."""

    def __init__(
        self,
        client: Client,
        node: str,
        options: GpuOptions,
        on_pod: Callable[[], None] = lambda: None,
    ) -> None:
        shares, socket = options.shares, options.kubelet / SOCKET
        self.view = view = NodeView(client, node, on_pod)
        self._devices = devices = DeviceReporter(
            client,
            node,
            options.source,
            shares.sharing if shares is not None else None,
            lambda: view.node,
            options.every_s,
        )
        kubelet = DeviceHolders(socket, NVIDIA.count_resource)
        core = CoreFiles(options.root, options.hami_core)
        self._indexes = IndexWriter(client, view, devices, kubelet)
        use_source = options.use_source or options.source
        self._use = UseReporter(client, view, devices, use_source, socket, options.use)
        self._shares = (
            NodeShares(client, view, devices, kubelet, core, options.kubelet, shares)
            if shares is not None
            else None
        )
        self._claims = self._driver(client, node, options, core) if options.has_claims else None

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.view.run())
            await self.view.wait_filled()
            group.create_task(self._devices.run())
            group.create_task(self._indexes.run())
            group.create_task(self._use.run())
            if self._shares is not None:
                group.create_task(self._shares.run())
            if self._claims is not None:
                # Without GPUs, the slice of before would be deleted.
                await self._devices.known.wait()
                group.create_task(self._claims.run())

    def checks(self) -> dict[str, Callable[[], bool]]:
        """Return the conditions of readiness: name -> whether it holds."""
        return {
            "watches up to date": self.view.is_healthy,
            "devices read": self._devices.known.is_set,
            **(self._claims.checks() if self._claims is not None else {}),
        }

    def _driver(
        self, client: Client, node: str, options: GpuOptions, core: CoreFiles
    ) -> GpuClaimsDriver:
        def offered() -> Gpus:
            return offers.offered(self._devices.gpus)

        known: tuple[NodeGpu, ...] = ()

        async def wait() -> None:
            nonlocal known
            known = await self._devices.wait_changed(known)

        paths = DriverPaths(options.kubelet, options.cdi)
        return GpuClaimsDriver(client, node, WatchedGpus((), offered, wait), paths, core)
