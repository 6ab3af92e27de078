"""The driver on its sockets, as a kubelet finds it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bindery.nodeagent.gpuclaims.driver import DriverPaths, GpuClaimsDriver
from bindery.nodeagent.sockets.definitions import (
    dra_pb2,
    drahealth_pb2,
    pluginregistration_pb2,
)
from bindery.nodeagent.sockets.services import Peer
from tests.nodeagent.gpuclaims.claimedgpus import FIRST, NODE, NOW_S, SECOND, Arena, result, until

CLAIMS = dra_pb2.DESCRIPTOR.services_by_name["DRAPlugin"]
HEALTH = drahealth_pb2.DESCRIPTOR.services_by_name["DRAResourceHealth"]
REGISTRATION = pluginregistration_pb2.DESCRIPTOR.services_by_name["Registration"]


@dataclass(frozen=True)
class Ground:
    """The directories of a node with the driver."""

    arena: Arena
    paths: DriverPaths

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        driver = GpuClaimsDriver(
            self.arena.client, NODE, self.arena.watched(), self.paths, self.arena.core
        )
        work = asyncio.create_task(driver.run())
        try:
            await until(self.paths.registration.is_socket)
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def prepare(self, claim: dra_pb2.Claim) -> dra_pb2.NodePrepareResourceResponse:
        request = dra_pb2.NodePrepareResourcesRequest(claims=[claim])
        async with Peer(self.paths.service, CLAIMS) as peer:
            answer = await peer.call(
                "NodePrepareResources", request, dra_pb2.NodePrepareResourcesResponse, 5.0
            )
        found: dra_pb2.NodePrepareResourceResponse = answer.claims[claim.uid]
        return found


@pytest.fixture
def ground() -> Iterator[Ground]:
    # The path of a socket has at most 107 characters.
    with TemporaryDirectory() as directory:
        arena = Arena(Path(directory) / "cdi")
        arena.server.add("nodes", {"metadata": {"name": NODE}})
        yield Ground(arena, DriverPaths(Path(directory) / "kubelet", arena.directory))


async def test_the_driver_registers_the_services_that_kubelets_call(ground: Ground) -> None:
    api = pluginregistration_pb2
    async with ground.running(), Peer(ground.paths.registration, REGISTRATION) as kubelet:
        found = await kubelet.call("GetInfo", api.InfoRequest(), api.PluginInfo, 5.0)

    assert (found.type, found.name) == ("DRAPlugin", "gpu.bindery.dev")
    assert found.endpoint == str(ground.paths.service)
    assert list(found.supported_versions) == ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]


async def test_its_sockets_go_with_it_and_the_slice_stays(ground: Ground) -> None:
    async with ground.running():
        await until(lambda: bool(ground.arena.server.objects("resourceslices")))
        assert ground.paths.service.exists()

    assert not ground.paths.registration.exists()
    assert not ground.paths.service.exists()
    assert len(ground.arena.server.objects("resourceslices")) == 1


async def test_the_answer_after_a_restart_is_that_of_before(ground: Ground) -> None:
    claim = await ground.arena.add_claim("a", result())
    async with ground.running():
        before = await ground.prepare(claim)
    files = ground.arena.files()

    async with ground.running():
        after = await ground.prepare(claim)

    assert before == after
    assert before.error == ""
    assert ground.arena.files() == files


async def test_sockets_of_a_driver_that_was_killed_are_replaced(ground: Ground) -> None:
    for socket in (ground.paths.service, ground.paths.registration):
        socket.parent.mkdir(parents=True)
        socket.touch()
    claim = await ground.arena.add_claim("a", result())

    async with ground.running():
        answer = await ground.prepare(claim)

    assert answer.error == ""


async def test_the_health_of_all_gpus_is_reported_at_once_and_at_a_change(ground: Ground) -> None:
    api = drahealth_pb2
    async with ground.running(), Peer(ground.paths.service, HEALTH) as kubelet:
        stream = kubelet.stream(
            "NodeWatchResources", api.NodeWatchResourcesRequest(), api.NodeWatchResourcesResponse
        )
        first = await asyncio.wait_for(anext(stream), 60)
        ground.arena.given.append((replace(FIRST, problem="fell off the bus"), SECOND))
        second = await asyncio.wait_for(anext(stream), 60)

    health = [
        [(one.device.device_name, one.health, one.message) for one in report.devices]
        for report in (first, second)
    ]
    assert health == [
        [(FIRST.name, api.HEALTHY, ""), (SECOND.name, api.HEALTHY, "")],
        [(FIRST.name, api.UNHEALTHY, "fell off the bus"), (SECOND.name, api.HEALTHY, "")],
    ]
    assert {one.device.pool_name for one in first.devices} == {NODE}
    assert {one.last_updated_time for one in first.devices} == {int(NOW_S)}
    assert {one.health_check_timeout_seconds for one in first.devices} == {30}
