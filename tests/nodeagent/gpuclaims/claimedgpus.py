"""GPUs, claims that hold shares of them, and a driver's parts without a kubelet."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.nodeagent.gpuclaims.offers import Gpus, OfferedGpu, WatchedGpus
from bindery.nodeagent.gpuclaims.preparing import ClaimPreparer
from bindery.nodeagent.gpuclaims.slices import DRIVER
from bindery.nodeagent.gpuclaims.specfiles import SpecFiles
from bindery.nodeagent.hamicore import CoreFiles
from bindery.nodeagent.sockets.definitions import dra_pb2 as api
from tests.histories.apiserver.carrier import ModelCarrier
from tests.histories.apiserver.server import ModelApiServer

NODE = "gpu-1"
NOW_S = 1_800_000_000.0
FIRST = OfferedGpu(0, "GPU-aaaaaaaa-0000", "NVIDIA H100", 81920, numa_node=0)
SECOND = OfferedGpu(1, "GPU-bbbbbbbb-0000", "NVIDIA A100", 40960, numa_node=1)
INSTANCE = OfferedGpu(
    2, "MIG-cccccccc-0000", "NVIDIA A100", 4864, profile="1g.5gb", parent_uuid="GPU-cccccccc"
)
GPUS: Gpus = (FIRST, SECOND)


def result(
    gpu: OfferedGpu = FIRST,
    request: str = "gpu",
    memory: str = "10Gi",
    cores: str = "30",
    **further: Any,
) -> dict[str, Any]:
    """Return a result of an allocation, as schedulers write it."""
    return {
        "request": request,
        "driver": DRIVER,
        "pool": NODE,
        "device": gpu.name,
        "shareID": "5d7e0c1c-1111-4222-8333-944455556666",
        "consumedCapacity": {"memory": memory, "cores": cores},
        **further,
    }


@dataclass(frozen=True)
class Arena:
    """An API server in memory, and a preparer of claims with its files below `directory`."""

    directory: Path
    server: ModelApiServer = field(default_factory=lambda: ModelApiServer(lambda: NOW_S, Random(1)))
    node: Path = Path("/nowhere")
    """The root directory of the node, with HAMi-core if a test puts it there."""
    given: list[Gpus] = field(default_factory=lambda: [GPUS])
    """What is read next; the last stays."""

    @property
    def client(self) -> Client:
        environment = Environment(lambda: NOW_S, Random(2))
        return Client(ModelCarrier(self.server, "driver"), 1.0, environment)

    @property
    def core(self) -> CoreFiles:
        return CoreFiles(self.node, PurePosixPath("/usr/local"))

    def watched(self) -> WatchedGpus:
        def read() -> Gpus:
            return self.given[-1]

        return WatchedGpus(self.given[-1], read, soon)

    def preparer(self) -> ClaimPreparer:
        """Return a preparer as after a start."""
        return ClaimPreparer(
            self.client, NODE, self.watched(), SpecFiles(self.directory), self.core
        )

    async def add_claim(self, name: str, *results: Mapping[str, Any]) -> api.Claim:
        """Add a claim, allocated if it has results, and return it as the kubelet names it."""
        meta = {"name": name, "namespace": "default"}
        found = self.server.add("resourceclaims", {"metadata": meta, "spec": {}})
        if results:
            await self.allocate(name, *results)
        return api.Claim(namespace="default", name=name, uid=found["metadata"]["uid"])

    async def allocate(self, name: str, *results: Mapping[str, Any]) -> None:
        """Write the allocation of a claim, as schedulers do."""
        # An allocation does not change, but for its end.
        for allocation in (None, {"devices": {"results": list(results)}}):
            patch = {"status": {"allocation": allocation}}
            await self.client.patch(
                RESOURCE_CLAIMS, name, patch, namespace="default", subresource="status"
            )

    async def reserve(self, name: str, *consumers: Mapping[str, str]) -> None:
        """Write the consumers of a claim."""
        patch = {"status": {"reservedFor": list(consumers)}}
        await self.client.patch(
            RESOURCE_CLAIMS, name, patch, namespace="default", subresource="status"
        )

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.directory.iterdir()}


async def soon() -> None:
    """Wait a moment, until the GPUs are looked at again."""
    await asyncio.sleep(0.01)


async def prepare(preparer: ClaimPreparer, *claims: api.Claim) -> dict[str, Any]:
    """Return the answers by UID."""
    found = await preparer.prepare(api.NodePrepareResourcesRequest(claims=claims))
    return dict(found.claims)


async def unprepare(preparer: ClaimPreparer, *claims: api.Claim) -> dict[str, str]:
    """Return the errors by UID."""
    found = await preparer.unprepare(api.NodeUnprepareResourcesRequest(claims=claims))
    return {uid: answer.error for uid, answer in found.claims.items()}


async def until(holds: Callable[[], bool]) -> None:
    """Wait until `holds`, for at most five seconds."""
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within 5 s")
