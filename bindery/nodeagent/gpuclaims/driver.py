"""Runs the driver on one node until it is stopped.

Registered with the kubelet by `sockets.pluginregistry`. One instance may run on a node: a second
one would take the sockets of the first.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import structlog

from bindery.kube.client import Client
from bindery.nodeagent.gpuclaims.health import HealthReporter
from bindery.nodeagent.gpuclaims.offers import WatchedGpus
from bindery.nodeagent.gpuclaims.preparing import ClaimPreparer
from bindery.nodeagent.gpuclaims.publishing import SlicePublisher
from bindery.nodeagent.gpuclaims.slices import DRIVER
from bindery.nodeagent.gpuclaims.specfiles import SpecFiles
from bindery.nodeagent.hamicore import CoreFiles
from bindery.nodeagent.sockets import pluginregistry, services
from bindery.nodeagent.sockets.definitions import dra_pb2, drahealth_pb2
from bindery.nodeagent.sockets.pluginregistry import RegisteredPlugin

VERSIONS: Final = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
"""Kubelets with consumable capacity (1.34 and later) call v1, so v1beta1 is not served."""
_CLAIMS: Final = dra_pb2.DESCRIPTOR.services_by_name["DRAPlugin"]
_HEALTH: Final = drahealth_pb2.DESCRIPTOR.services_by_name["DRAResourceHealth"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class DriverPaths:
    """Directories of the node.

    Attributes:
        kubelet: the kubelet's own, such as /var/lib/kubelet; it has the same path in a container.
        cdi: that of CDI files, which the container runtime reads.
    """

    kubelet: Path
    cdi: Path

    @property
    def service(self) -> Path:
        """The socket of the service."""
        return self.kubelet / "plugins" / DRIVER / "dra.sock"

    @property
    def registration(self) -> Path:
        """The socket that the kubelet looks for."""
        return self.kubelet / "plugins_registry" / f"{DRIVER}-reg.sock"


class GpuClaimsDriver:
    """The driver of the node `node`. `core`: the files of HAMi-core there."""

    def __init__(
        self, client: Client, node: str, gpus: WatchedGpus, paths: DriverPaths, core: CoreFiles
    ) -> None:
        self._gpus, self._paths = gpus, paths
        self._publisher = SlicePublisher(client, node, gpus)
        self._preparer = ClaimPreparer(client, node, gpus, SpecFiles(paths.cdi), core)
        self._health = HealthReporter(node, gpus, client.environment.now_s)

    def checks(self) -> dict[str, Callable[[], bool]]:
        """Return the conditions of readiness: name -> whether it holds."""
        return {"slices": self._publisher.healthy}

    async def run(self) -> None:
        """Serve until cancelled; the GPUs have been read before.

        The slice stays: the kubelet deletes it if the driver does not come back in time.
        """
        self._gpus.look()
        async with AsyncExitStack() as stack:
            for server in self._servers():
                await server.start()
                # Its socket goes with it, and the kubelet deregisters the driver.
                stack.push_async_callback(server.stop, None)
            log.info("serving claims", driver=DRIVER, gpus=len(self._gpus.now))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._gpus.run())
                group.create_task(self._publisher.run())
                group.create_task(self._preparer.sweep())

    def _servers(self) -> list[grpc.aio.Server]:
        """Return the servers, with that of the registration last: the kubelet calls at once."""
        service, registration = self._paths.service, self._paths.registration
        service.parent.mkdir(parents=True, exist_ok=True)
        registration.parent.mkdir(parents=True, exist_ok=True)
        methods = (_CLAIMS, self._preparer.methods()), (_HEALTH, self._health.methods())
        plugin = RegisteredPlugin(pluginregistry.DRA, DRIVER, str(service), VERSIONS)
        return [
            services.serve(service, *methods),
            pluginregistry.server(registration, plugin),
        ]
