"""PodResources of the node agent, read by clients: exclusive CPUs, memory, devices, claims."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from bindery.nodeagent.beside import podresources as beside
from bindery.nodeagent.beside.podresources import PodName
from bindery.nodeagent.sockets import podresources as calls
from bindery.nodeagent.sockets.definitions import deviceplugin_pb2 as device_api
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api
from bindery.nodeagent.sockets.services import Peer
from bindery.nodecore.pods import Container
from tests.nodeagent.kubeletside.socketworld import (
    ALLOCATABLE,
    CONFIG,
    DRIVER,
    GPU,
    MIB,
    DevicePlugin,
    DraDriver,
    SocketWorld,
    device,
    given,
    using,
    wanting,
)

LISTER = api.DESCRIPTOR.services_by_name["PodResourcesLister"]


def socket(world: SocketWorld) -> Path:
    return world.directory / calls.SOCKET


async def got(world: SocketWorld, name: str) -> api.PodResources:
    request = api.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
    async with Peer(socket(world), LISTER) as kubelet:
        found = await kubelet.call("Get", request, api.GetPodResourcesResponse, 10.0)
    return found.pod_resources


async def test_a_pod_is_shown_with_all_that_it_holds() -> None:
    config = replace(
        CONFIG,
        memory_policy="Static",
        kube_reserved={"cpu": 1000, "memory": 1 << 30},
        reserved_memory=[(0, {"memory": 1 << 30})],
    )
    with TemporaryDirectory() as directory:
        world = SocketWorld(Path(directory), config)
        await world.start()
        world.claims.add("claim", "one")
        await world.plugged(DevicePlugin())
        assert await world.admit("one", 2, cpu=3) == ("", "")
        async with world.driving(DraDriver()):
            await world.node.prepare(using("one"))

            (container,) = (await got(world, "one")).containers

        everything = await calls.allocatable(socket(world))
        await world.stop()

    assert len(container.cpu_ids) == 3
    assert [block.size for block in container.memory] == [MIB]
    assert [(entry.resource_name, entry.device_ids[0]) for entry in container.devices] == [
        (GPU, "gpu-0"),
        (GPU, "gpu-1"),
    ]
    (claim,) = container.dynamic_resources
    assert (claim.claim_name, claim.claim_namespace) == ("claim", "default")
    (shown,) = claim.claim_resources
    assert (shown.driver_name, shown.cdi_devices[0].name) == (DRIVER, f"{DRIVER}/gpu=0")
    assert len(everything.cpu_ids) == 63
    assert sum(block.size for block in everything.memory) == 63 << 30


async def test_the_agent_beside_reads_what_the_node_agent_shows(world: SocketWorld) -> None:
    both = device("gpu-9", 0)
    both.topology.nodes.add(ID=1)
    await world.plugged(DevicePlugin(devices=[device("gpu-0", 0), both]))
    assert await world.admit("one") == ("", "")

    found = beside.read(await calls.allocatable(socket(world)), await calls.listed(socket(world)))

    assert found.held == {PodName("default", "one"): {"app": {GPU: frozenset({"gpu-0"})}}}
    zones = {one.id: one.numa_nodes for one in found.devices[GPU]}
    assert zones == {"gpu-0": (0,), "gpu-9": (0, 1)}


async def test_a_pod_that_is_not_there_is_an_error(world: SocketWorld) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="pod one in namespace default not found"):
        await got(world, "one")


async def test_a_plugin_sees_the_containers_before_the_one_that_it_is_called_for(
    world: SocketWorld,
) -> None:
    """HAMi's handshake finds the next container of a pod in this way."""
    seen = []

    async def look(ids: list[str]) -> device_api.AllocateResponse:
        seen.append((ids, await world.listed()))
        return given(ids)

    await world.plugged(DevicePlugin(answer=look))
    amounts = {"cpu": 1, GPU: 1}
    plain = wanting("one")
    pod = replace(plain.pod, containers=[Container(name, amounts, amounts) for name in "ab"])

    answer = await world.node.admit(replace(plain, pod=pod), ALLOCATABLE)

    assert answer.admit
    assert seen == [(["gpu-0"], {"one": []}), (["gpu-1"], {"one": ["gpu-0"]})]
