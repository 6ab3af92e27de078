"""The product's own DRA driver and device plugin at a kubelet's side."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bindery.api.hami import names
from bindery.api.hami.lock import NodeLock
from bindery.api.hami.vendortable import NVIDIA
from bindery.kube.objects.devices import RESOURCE_SLICES
from bindery.nodeagent.beside.gpuparts import GpuOptions, GpuParts
from bindery.nodeagent.devices.filesource import FileSource
from bindery.nodeagent.gpuclaims.driver import DriverPaths, GpuClaimsDriver
from bindery.nodeagent.gpuclaims.slices import DRIVER
from bindery.nodeagent.kubeletside.claimapi import ServerClaims
from bindery.nodeagent.shares.process import SharesOptions
from bindery.nodecore.admission.facts import Candidate
from bindery.nodecore.claims.facts import ClaimError
from bindery.nodecore.claims.health import Health
from bindery.nodecore.pods import Container
from tests.nodeagent import sharingpods
from tests.nodeagent.gpuclaims.claimedgpus import FIRST, NODE, NOW_S, SECOND, Arena, result
from tests.nodeagent.kubeletside.socketworld import ALLOCATABLE, SocketWorld, until, using, wanting


class OneByOne(ServerClaims):
    """Claims of an API server that deletes no collections, as the one in memory."""

    async def wipe_slices(self, driver: str | None) -> None:
        selector = f"spec.nodeName={NODE}"
        if driver is not None:
            selector += f",spec.driver={driver}"
        for one in await self._client.list(RESOURCE_SLICES, field_selector=selector):
            await self._client.delete(RESOURCE_SLICES, one.metadata.name)


@dataclass(frozen=True)
class Ground:
    """A node with a kubelet's sockets and an API server in memory."""

    arena: Arena
    world: SocketWorld

    @asynccontextmanager
    async def driving(self) -> AsyncIterator[None]:
        paths = DriverPaths(self.world.directory, self.arena.directory)
        driver = GpuClaimsDriver(
            self.arena.client, NODE, self.arena.watched(), paths, self.arena.core
        )
        work = asyncio.create_task(driver.run())
        try:
            await until(lambda: bool(self.world.registered()))
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await until(lambda: not self.world.registered())

    def slices(self) -> list[str]:
        found = self.arena.server.objects("resourceslices")
        return [one["spec"]["driver"] for one in found]


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    with TemporaryDirectory() as directory:
        arena = Arena(Path(directory) / "cdi")
        arena.server.add("nodes", {"metadata": {"name": NODE}})
        world = SocketWorld(Path(directory) / "k")
        world.api = OneByOne(arena.client, NODE)
        await world.start()
        yield Ground(arena, world)
        await world.stop()


def sharing(world: SocketWorld, arena: Arena, core: Path) -> GpuParts:
    """Return the device plugin for shares of a GPU of 80 GB."""
    (world.directory / "gpus.json").write_text(
        json.dumps({"gpus": [{"uuid": "GPU-a", "memoryMib": 80_000}]})
    )
    options = GpuOptions(
        source=FileSource(world.directory / "gpus.json"),
        kubelet=world.directory,
        shares=SharesOptions(),
        root=core,
        every_s=0.05,
    )
    return GpuParts(arena.client, sharingpods.NODE, options)


async def test_a_share_goes_to_the_pod_that_its_scheduler_has_planned(ground: Ground) -> None:
    server, world, resource = ground.arena.server, ground.world, NVIDIA.count_resource
    lock = NodeLock(int(NOW_S), "n", "planned").encode()
    annotations = {names.NODE_LOCK: lock}
    server.add("namespaces", {"metadata": {"name": "n"}})
    server.add("nodes", {"metadata": {"name": sharingpods.NODE, "annotations": annotations}})
    planned = sharingpods.pod(
        "planned", ((sharingpods.device(),),), annotations={names.DEVICES_RECORD: None}
    )
    server.add(
        "pods",
        {
            "metadata": {
                "name": "planned",
                "namespace": "n",
                "annotations": planned.metadata.annotations,
            },
            "spec": {
                "nodeName": sharingpods.NODE,
                "containers": [
                    {"name": "c0", "image": "i", "resources": {"limits": {resource: "1"}}}
                ],
            },
        },
    )
    world.begin(sharing(world, ground.arena, world.directory / "root").run())
    await until(lambda: world.node.status().devices.allocatable.get(resource) == 10)

    asking = [with_share("planned", resource), with_share("unplanned", resource)]
    first, second = [await world.node.admit(one, {**ALLOCATABLE, resource: 10}) for one in asking]
    options = await world.node.options(asking[0].pod, asking[0].pod.containers[0])

    assert first.admit
    assert options.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-a"
    (written,) = server.objects("pods")
    assert written["metadata"]["annotations"][names.BIND_PHASE] == "success"
    assert second.reason == "UnexpectedAdmissionError"
    assert second.message.startswith("Allocate failed due to rpc error: code = Unknown desc = ")


def with_share(uid: str, resource: str) -> Candidate:
    plain = wanting(uid, gpus=0)
    amounts = {**plain.pod.containers[0].requests, resource: 1}
    app = Container("c0", amounts, amounts)
    return replace(plain, pod=replace(plain.pod, containers=[app], namespace="n"))


def reserved(uid: str) -> dict[str, str]:
    return {"resource": "pods", "name": uid, "uid": uid}


async def test_a_pod_gets_its_share_of_a_gpu_and_gives_it_back(ground: Ground) -> None:
    claim = await ground.arena.add_claim("claim", result())
    await ground.arena.reserve("claim", reserved("one"))
    node, pod = ground.world.node, wanting("one").pod
    async with ground.driving():
        await node.prepare(using("one"))
        options = await node.options(pod, pod.containers[0])
        (file,) = ground.arena.files()

        assert len(options.cdi_devices) == 1
        assert claim.uid in file
        await node.unprepare(using("one"))
        assert ground.arena.files() == {}


async def test_a_pod_without_a_reservation_is_refused(ground: Ground) -> None:
    claim = await ground.arena.add_claim("claim", result())
    async with ground.driving():
        with pytest.raises(ClaimError) as error:
            await ground.world.node.prepare(using("one"))

    assert str(error.value) == (
        "prepare dynamic resources: pod one (one) is not allowed to use ResourceClaim claim "
        f"({claim.uid})"
    )


async def test_the_health_of_gpus_is_reported(ground: Ground) -> None:
    ground.arena.given.append((replace(FIRST, problem="fell off the bus"), SECOND))
    async with ground.driving():

        def of(name: str) -> Health:
            found = ground.world.node.status().health
            return found.of(DRIVER, NODE, name, ground.world.now_s).health

        await until(lambda: of(SECOND.name) == Health.HEALTHY)
        assert of(FIRST.name) == Health.UNHEALTHY


async def test_its_slices_are_deleted_when_it_stays_away_and_written_again(ground: Ground) -> None:
    async with ground.driving():
        await until(lambda: ground.slices() == [DRIVER])
    assert ground.slices() == [DRIVER]

    ground.world.now_s += 31
    await until(lambda: ground.slices() == [])

    async with ground.driving():
        await until(lambda: ground.slices() == [DRIVER])


async def test_a_claim_outlives_a_kill_of_either_side(ground: Ground) -> None:
    await ground.arena.add_claim("claim", result())
    await ground.arena.reserve("claim", reserved("one"))
    pod = wanting("one").pod
    assert await ground.world.admit("one", gpus=0) == ("", "")
    async with ground.driving():
        await ground.world.node.prepare(using("one"))
        before = await ground.world.node.options(pod, pod.containers[0])
        await ground.world.node.stop()
        await ground.world.start(is_ready=False)
        assert await ground.world.admit("one", gpus=0) == ("", "")
        ground.world.node.ready()
        await until(lambda: bool(ground.world.registered()))
        await ground.world.node.prepare(using("one"))
        assert await ground.world.node.options(pod, pod.containers[0]) == before
    async with ground.driving():
        await ground.world.node.prepare(using("one"))
        assert await ground.world.node.options(pod, pod.containers[0]) == before
        await ground.world.node.unprepare(using("one"))
        assert ground.arena.files() == {}
