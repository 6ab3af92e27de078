"""The use of GPUs, from a file and a kubelet's socket into the annotation of pods."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from bindery.api import times
from bindery.api.names import GPUS_IDLE_SINCE_ANNOTATION
from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.objects.resources import PODS
from bindery.nodeagent.devices.filesource import FileSource
from bindery.nodeagent.devices.inventory import UseReading, UseSource
from bindery.nodeagent.devices.reporter import DeviceReporter
from bindery.nodeagent.gpuuse.reporter import UseOptions, UseReporter
from bindery.nodeagent.gpuuse.tracker import UseRules
from bindery.nodeagent.shares.view import NodeView
from bindery.nodeagent.sockets import services
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api
from tests.histories.apiserver.carrier import ModelCarrier
from tests.histories.apiserver.server import ModelApiServer

NODE = "gpu-1"
START_S = 1_800_000_000.0
LISTER = api.DESCRIPTOR.services_by_name["PodResourcesLister"]


@dataclass
class UsedNode:
    """A node with a pod that has its two GPUs, and a clock that is turned by hand."""

    root: Path
    now_s: float = START_S
    server: ModelApiServer = field(init=False)

    def __post_init__(self) -> None:
        self.server = ModelApiServer(lambda: self.now_s, Random(1))
        self.server.add("nodes", {"metadata": {"name": NODE}})
        body = {
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "c"}]},
        }
        self.server.add("pods", body)

    def use(self, *percents: int | None) -> None:
        gpus = [
            {"uuid": f"GPU-{n}", "index": n, "utilizationPercent": percent}
            for n, percent in enumerate(percents)
        ]
        (self.root / "gpus.json").write_text(json.dumps({"gpus": gpus}))

    @asynccontextmanager
    async def kubelet(self, *held: str) -> AsyncIterator[None]:
        """Run a kubelet. `held`: the devices of the pod; default: both GPUs."""

        async def listed(_request: object) -> api.ListPodResourcesResponse:
            identifiers = held or ("GPU-0", "GPU-1")
            devices = api.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=identifiers)
            container = api.ContainerResources(name="c", devices=[devices])
            pod = api.PodResources(namespace="default", name="p", containers=[container])
            return api.ListPodResourcesResponse(pod_resources=[pod])

        server = services.serve(self.root / "k.sock", (LISTER, {"List": listed}))
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)

    @asynccontextmanager
    async def agent(self, use: UseSource | None = None) -> AsyncIterator["RunningAgent"]:
        """Run the reporter. `use`: default: the file."""
        environment = Environment(lambda: self.now_s, Random(2))
        client = Client(ModelCarrier(self.server, "agent"), 1.0, environment)
        status = {"status": {"phase": "Running"}}
        await client.patch(PODS, "p", status, namespace="default", subresource="status")
        view = NodeView(client, NODE)
        source = FileSource(self.root / "gpus.json")
        devices = DeviceReporter(client, NODE, source, None, lambda: view.node, 30.0)
        options = UseOptions(UseRules(1, 60.0))
        reporter = UseReporter(client, view, devices, use or source, self.root / "k.sock", options)
        tasks = [asyncio.create_task(each) for each in (view.run(), devices.run())]
        try:
            await view.wait_filled()
            await devices.known.wait()
            yield RunningAgent(self, client, view, reporter)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class RunningAgent:
    """The reporter, and what it looks at."""

    node: UsedNode
    client: Client
    view: NodeView
    reporter: UseReporter

    async def look(self, at_s: float) -> str | None:
        """Look at a time from the start; return the annotation in seconds from it, as text."""
        self.node.now_s = START_S + at_s
        await self.reporter.look()
        await self.view.catch_up()
        pod = await self.client.get(PODS, "p", "default")
        return pod.metadata.annotations.get(GPUS_IDLE_SINCE_ANNOTATION)

    async def looks(self, *at_s: float) -> Sequence[str | None]:
        return [await self.look(each) for each in at_s]


@pytest.fixture
def node() -> Iterator[UsedNode]:
    # The path of a socket has at most 107 characters.
    with TemporaryDirectory() as name:
        yield UsedNode(Path(name))


def stamp(at_s: float) -> str:
    return times.timestamp(START_S + at_s)


async def test_unused_gpus_are_written_after_a_minute_and_removed_at_the_next_use(
    node: UsedNode,
) -> None:
    node.use(0, 30)
    async with node.kubelet(), node.agent() as agent:
        assert await agent.looks(0, 10) == [None, None]
        node.use(0, 0)
        assert await agent.looks(20, 60, 70, 80) == [None, None, stamp(10), stamp(10)]
        node.use(5, 0)
        assert await agent.look(90) is None


async def test_a_restarted_agent_goes_on_with_the_written_time(node: UsedNode) -> None:
    node.use(0, 0)
    async with node.kubelet():
        async with node.agent() as agent:
            assert await agent.looks(0, 60) == [None, stamp(0)]
        async with node.agent() as agent:
            assert await agent.looks(500, 510) == [stamp(0), stamp(0)]


async def test_a_time_that_nothing_confirms_for_a_minute_is_removed(node: UsedNode) -> None:
    node.use(0, 0)
    async with node.agent() as agent:
        async with node.kubelet():
            assert await agent.looks(0, 60) == [None, stamp(0)]
        (node.root / "gpus.json").unlink()
        assert await agent.looks(70, 110) == [stamp(0), stamp(0)]
        assert await agent.look(120) is None


@dataclass
class MeasuredInstance:
    """A source that knows the MIG instance of the pod."""

    percent: int = 0

    async def use(self) -> UseReading:
        return UseReading({"GPU-2/7": self.percent}, {("default", "p"): frozenset({"GPU-2/7"})})


async def test_a_mig_instance_is_judged_by_the_source_that_measures_it(node: UsedNode) -> None:
    node.use(90, 90)
    source = MeasuredInstance()
    async with node.kubelet("MIG-a"), node.agent(source) as agent:
        assert await agent.looks(0, 60) == [None, stamp(0)]
        source.percent = 3
        assert await agent.look(70) is None


async def test_while_the_kubelet_is_away_for_short_nothing_changes(node: UsedNode) -> None:
    node.use(0, 0)
    async with node.agent() as agent:
        async with node.kubelet():
            assert await agent.looks(0, 60) == [None, stamp(0)]
        assert await agent.look(80) == stamp(0)
        async with node.kubelet():
            assert await agent.look(90) == stamp(0)
