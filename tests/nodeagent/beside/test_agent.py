"""The agent as a whole, beside a kubelet that is a stand-in."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.http.carrier import Answer
from bindery.kube.http.requests import ApiRequest
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from bindery.nodeagent.beside.agent import BesideAgent
from bindery.nodeagent.beside.gpuparts import GpuOptions
from bindery.nodeagent.devices.filesource import FileSource
from tests.histories.apiserver.carrier import ModelCarrier
from tests.histories.apiserver.server import ModelApiServer
from tests.nodeagent.beside.besideworld import CAPACITY, KubeletStandIn

NODE = "n"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  the agent wakes no one
            await asyncio.sleep(0.01)


class CountingCarrier(ModelCarrier):
    """Counts the watches of each kind, and accepts every report, whose kind the model lacks."""

    watches: Counter[str]

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        if request.resource == NODE_RESOURCE_TOPOLOGIES.plural:
            return Answer(200, b"{}", None)
        return await super().send(request, timeout_s)

    async def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        self.watches[request.resource] += 1
        async for line in super().stream(request, idle_s):
            yield line


@dataclass
class Ground:
    """A node with a kubelet; with GPUs if `root` has their file."""

    root: Path
    kubelet: KubeletStandIn = field(default_factory=KubeletStandIn)
    watches: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.server = ModelApiServer(lambda: 1_800_000_000.0, Random(1))
        self.server.add("nodes", {"metadata": {"name": NODE}, "status": {"capacity": CAPACITY}})

    @asynccontextmanager
    async def running(self, *, has_gpus: bool) -> AsyncIterator[None]:
        carrier = CountingCarrier(self.server, "beside")
        carrier.watches = self.watches
        client = Client(carrier, 1.0, Environment(lambda: 1_800_000_000.0, Random(2)))
        gpus = GpuOptions(FileSource(self.root / "gpus.json"), self.root) if has_gpus else None
        work = asyncio.create_task(BesideAgent(client, NODE, self.kubelet, gpus).run())
        try:
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


@pytest.mark.parametrize("has_gpus", [False, True])
async def test_the_pods_of_the_node_are_watched_once_and_each_change_is_looked_at(
    tmp_path: Path, has_gpus: bool
) -> None:
    (tmp_path / "gpus.json").write_text('{"gpus": [{"uuid": "GPU-a"}]}')
    ground = Ground(tmp_path)
    async with ground.running(has_gpus=has_gpus):
        await until(lambda: ground.kubelet.readings > 0 and ground.watches["pods"] > 0)
        before = ground.kubelet.readings
        body = {
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "c"}]},
        }
        ground.server.add("pods", body)

        await until(lambda: ground.kubelet.readings > before)

        assert ground.watches["pods"] == 1
        assert ground.watches["nodes"] == has_gpus
