"""Pods with devices of plugins and with claims, from the plugin's answer to the container."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bindery.nodeagent.containers import thismachine
from bindery.nodeagent.containers.resources import NodeResources
from bindery.nodeagent.containers.thismachine import MachineError
from bindery.nodeagent.sockets.definitions import deviceplugin_pb2 as api
from bindery.nodecore.containers import Ref
from tests.nodeagent.containers.fakeruntime import FakeRuntime
from tests.nodeagent.containers.harness import (
    container,
    decoded,
    manifest,
    running,
    sockets_in,
    started,
)
from tests.nodeagent.kubeletside.socketworld import (
    DRIVER,
    GPU,
    DevicePlugin,
    DraDriver,
    SocketWorld,
    given,
    never,
    until,
)

CDI = f"{DRIVER}/gpu=0"


@pytest.fixture
async def world() -> AsyncIterator[SocketWorld]:
    # The path of a socket has at most 107 characters.
    with TemporaryDirectory() as directory:
        made = SocketWorld(Path(directory))
        yield made
        await made.stop()


async def begun(
    world: SocketWorld, pods: Iterable[dict[str, Any]] = (), containers: Iterable[Ref] = ()
) -> NodeResources:
    """Start the resources of an agent; `pods` and `containers` are there from an earlier one."""
    world.node = sockets_in(world.directory, lambda: world.now_s, world.claims)
    resources = started(world.node, containers)
    resources.open(map(decoded, pods))
    await world.node.serve()
    return resources


def wanting(uid: str, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    """Return a pod whose container `app-UID` has devices."""
    amounts = {GPU: str(gpus)}
    resources = {"requests": amounts, "limits": amounts} if gpus else {}
    return named(uid, manifest(container(f"app-{uid}", resources=resources), **spec))


def claiming(uid: str, **spec: Any) -> dict[str, Any]:
    """Return a pod whose container `app-UID` uses a claim that was made from a template."""
    app = container(f"app-{uid}", resources={"claims": [{"name": "gpu"}]})
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    pod = named(uid, manifest(app, resourceClaims=claims, **spec))
    made = [{"name": "gpu", "resourceClaimName": "claim"}]
    return {**pod, "status": {**pod["status"], "resourceClaimStatuses": made}}


def allocate(world: SocketWorld, uid: str) -> None:
    """Make the claim of a pod from its template, allocated and reserved."""
    world.claims.add("claim", uid)
    world.claims.claims["claim"] = replace(world.claims.claims["claim"], owner_uid=uid)


def named(uid: str, pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "uid": uid, "name": uid}}


async def test_a_container_gets_what_its_plugin_answers(
    tmp_path: Path, runtime: FakeRuntime, world: SocketWorld
) -> None:
    resources = await begun(world)

    async def answer(ids: list[str]) -> api.AllocateResponse:
        found = api.ContainerAllocateResponse(
            envs={"GPUS": ",".join(ids)},
            mounts=[api.Mount(container_path="/lib/gpu", host_path="/opt/gpu", read_only=True)],
            devices=[
                api.DeviceSpec(
                    container_path="/dev/gpu", host_path=f"/dev/{ids[0]}", permissions="rw"
                )
            ],
            annotations={"vendor.com/gpu": ids[0]},
            cdi_devices=[api.CDIDevice(name="vendor.com/gpu=0")],
        )
        return api.AllocateResponse(container_responses=[found])

    await world.plugged(DevicePlugin(answer=answer))
    async with running(tmp_path, wanting("one"), runtime, plugins=resources) as pod:
        await pod.phase("Running")

        (app,) = runtime.named("app-one")
        config = app.config
        envs = {one.key: one.value for one in config.envs}
        mounts = {one.container_path: (one.host_path, one.readonly) for one in config.mounts}
        devices = [(one.container_path, one.host_path, one.permissions) for one in config.devices]
        assert envs["GPUS"] == b"gpu-0"
        assert mounts["/lib/gpu"] == ("/opt/gpu", True)
        assert devices == [("/dev/gpu", "/dev/gpu-0", "rw")]
        assert config.annotations["vendor.com/gpu"] == "gpu-0"
        assert [one.name for one in config.CDI_devices] == ["vendor.com/gpu=0"]
        assert (await world.listed()) == {"one": ["gpu-0"]}

        runtime.end("app-one", 0)
        await pod.phase("Succeeded")
        await pod.until(pod.worker.ended.is_set)
    assert await world.listed() == {}


async def test_a_plugin_that_does_not_answer_holds_only_its_own_pod(
    tmp_path: Path, runtime: FakeRuntime, world: SocketWorld
) -> None:
    resources = await begun(world)
    plugin = DevicePlugin()

    async def silent(ids: list[str]) -> api.AllocateResponse:
        if ids == ["gpu-0"]:
            await never()
        return given(ids)

    plugin.answer = silent
    await world.plugged(plugin)
    async with running(tmp_path, wanting("held"), runtime, plugins=resources) as held:
        await held.until(lambda: plugin.allocated == [["gpu-0"]])
        for uid, gpus in (("two", 1), ("three", 0)):
            pod = wanting(uid, gpus)
            async with running(tmp_path, pod, runtime, plugins=resources) as other:
                await other.phase("Running")

        assert runtime.named("app-held") == []
        assert held.status["phase"] == "Pending"
        held.delete()
        await held.until(lambda: held.server.is_deleted)
    assert sorted(await world.listed()) == ["three", "two"]


async def test_a_pod_is_refused_if_its_plugin_fails(
    tmp_path: Path, runtime: FakeRuntime, world: SocketWorld
) -> None:
    resources = await begun(world)

    async def empty(_ids: list[str]) -> api.AllocateResponse:
        return api.AllocateResponse()

    await world.plugged(DevicePlugin(answer=empty))
    async with running(tmp_path, wanting("one"), runtime, plugins=resources) as pod:
        await pod.phase("Failed")

        assert pod.status["reason"] == "UnexpectedAdmissionError"
        assert "no containers return in allocation response" in pod.status["message"]


async def test_running_pods_keep_their_devices_when_the_agent_comes_before_the_plugin(
    tmp_path: Path, runtime: FakeRuntime, world: SocketWorld
) -> None:
    resources = await begun(world)
    plugin = DevicePlugin()
    plugged = await world.plugged(plugin)
    spec = wanting("one", 2, restartPolicy="Always")
    async with running(tmp_path, spec, runtime, plugins=resources) as pod:
        await pod.phase("Running")
        stored = pod.server.pod
    plugged.cancel()
    await asyncio.gather(plugged, return_exceptions=True)
    await world.node.stop()

    resources = await begun(world, [stored], [("one", "app-one")])

    async with running(tmp_path, stored, runtime, plugins=resources) as pod:
        assert (await world.listed()) == {"one": ["gpu-0", "gpu-1"]}
        await world.plugged(plugin)
        runtime.end("app-one", 1)
        await pod.until(lambda: pod.report("app-one").get("restartCount") == 1)
        (_, again) = runtime.named("app-one")
        assert {one.key: one.value for one in again.config.envs}["GPUS"] == b"gpu-0,gpu-1"
        assert plugin.allocated == [["gpu-0", "gpu-1"]]
        rest = wanting("two", 6)
        async with running(tmp_path, rest, runtime, plugins=resources) as other:
            await other.phase("Running")
        assert plugin.allocated[1] == [f"gpu-{one}" for one in range(2, 8)]


async def test_the_node_shows_the_devices_of_plugins(world: SocketWorld) -> None:
    resources = await begun(world)
    plugin = DevicePlugin()
    plugged = await world.plugged(plugin)

    def shown() -> tuple[str | None, str | None]:
        node = resources.described()
        return node.resources.get(GPU), node.allocatable.get(GPU)

    assert shown() == ("8", "8")
    plugin.devices[0].health = "Unhealthy"
    plugin.changed.set()
    await world.offered(7)
    assert shown() == ("8", "7")
    plugged.cancel()
    await world.offered(0)
    world.now_s += 301
    assert shown() == ("0", "0")
    assert resources.described().resources["cpu"] == resources.node.resources["cpu"]


async def test_the_status_has_the_health_of_a_containers_devices(
    tmp_path: Path, runtime: FakeRuntime, world: SocketWorld
) -> None:
    resources = await begun(world)
    plugin = DevicePlugin()
    await world.plugged(plugin)
    async with running(tmp_path, wanting("one"), runtime, plugins=resources) as pod:
        await pod.phase("Running")

        def shown() -> tuple[str, str, str]:
            (one,) = pod.report("app-one")["allocatedResourcesStatus"]
            (device,) = one["resources"]
            return one["name"], device["resourceID"], device["health"]

        assert shown() == (GPU, "gpu-0", "Healthy")
        plugin.devices[0].health = "Unhealthy"
        plugin.changed.set()
        await pod.until(lambda: shown() == (GPU, "gpu-0", "Unhealthy"))


async def test_claims_are_prepared_before_the_sandbox_and_unprepared_before_the_last_status(
    tmp_path: Path, runtime: FakeRuntime, world: SocketWorld
) -> None:
    resources = await begun(world)
    allocate(world, "one")
    driver = DraDriver()
    async with running(tmp_path, claiming("one"), runtime, plugins=resources) as pod:
        await asyncio.sleep(0)
        assert runtime.sandboxes == {}
        async with world.driving(driver):
            await pod.phase("Running")
            (app,) = runtime.named("app-one")
            assert [one.name for one in app.config.CDI_devices] == [CDI]
            assert driver.prepared == ["uid-claim"]
            (shown,) = pod.report("app-one")["allocatedResourcesStatus"]
            assert shown["name"] == "claim:gpu"
            assert [one["health"] for one in shown["resources"]] == ["Unknown"]

            driver.error = "the device is busy"
            runtime.end("app-one", 0)
            await pod.until(lambda: driver.unprepared)
            assert pod.status["phase"] == "Running"
            driver.error = ""
            await pod.phase("Succeeded")
    assert world.node.manager.claims is not None
    assert world.node.manager.claims.claims == {}


async def test_a_container_that_restarts_under_another_agent_keeps_its_claim(
    tmp_path: Path, runtime: FakeRuntime, world: SocketWorld
) -> None:
    resources = await begun(world)
    allocate(world, "one")
    async with world.driving(DraDriver()):
        spec = claiming("one", restartPolicy="Always")
        async with running(tmp_path, spec, runtime, plugins=resources) as pod:
            await pod.phase("Running")
            stored = pod.server.pod
    await world.node.stop()

    resources = await begun(world, [stored], [("one", "app-one")])

    async with running(tmp_path, stored, runtime, plugins=resources) as pod:
        runtime.end("app-one", 1)
        await pod.until(lambda: pod.report("app-one").get("restartCount") == 1)
        (_, again) = runtime.named("app-one")
        assert [one.name for one in again.config.CDI_devices] == [CDI]


async def test_a_pod_that_was_never_prepared_ends_without_its_claims(
    tmp_path: Path, runtime: FakeRuntime, world: SocketWorld
) -> None:
    resources = await begun(world)
    pod = claiming("one")
    early = {**pod, "status": {**pod["status"], "resourceClaimStatuses": []}}
    async with running(tmp_path, early, runtime, plugins=resources) as waiting:
        await waiting.until(lambda: "startTime" in waiting.status)
        waiting.delete()

        await waiting.until(lambda: waiting.server.is_deleted)


async def test_the_directory_of_a_kubelet_that_serves_is_left_alone(world: SocketWorld) -> None:
    thismachine.check_plugins(world.directory)
    await begun(world)

    with pytest.raises(MachineError, match="a kubelet, or another agent, serves plugins there"):
        thismachine.check_plugins(world.directory)

    await world.node.stop()
    await until(lambda: _is_free(world.directory))


def _is_free(directory: Path) -> bool:
    try:
        thismachine.check_plugins(directory)
    except MachineError:
        return False
    return True
