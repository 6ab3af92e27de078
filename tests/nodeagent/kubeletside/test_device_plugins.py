"""Device plugins at the kubelet's socket: they register, allocate, hang, break and come back."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import grpc
import pytest

from bindery.nodeagent.sockets import services
from bindery.nodeagent.sockets.definitions import deviceplugin_pb2 as api
from bindery.nodeagent.sockets.services import Peer
from bindery.nodecore.checkpoints import devices as files
from bindery.nodecore.errors import AllocationError
from tests.nodeagent.kubeletside.socketworld import (
    ALLOCATABLE,
    GPU,
    DevicePlugin,
    SocketWorld,
    device,
    given,
    never,
    until,
    wanting,
)

UNEXPECTED = "UnexpectedAdmissionError"
REGISTRATION = api.DESCRIPTOR.services_by_name["Registration"]


async def test_a_pod_gets_the_devices_of_a_plugin(world: SocketWorld) -> None:
    await world.plugged(DevicePlugin())

    assert await world.admit("one", 2) == ("", "")
    candidate = wanting("one", 2)
    options = await world.node.options(candidate.pod, candidate.pod.containers[0])

    assert options.envs == {"GPUS": "gpu-0,gpu-1"}
    assert await world.listed() == {"one": ["gpu-0", "gpu-1"]}
    assert world.node.status().devices.capacity == {GPU: 8}
    assert world.node.release("one")
    assert await world.listed() == {}


async def test_a_plugin_that_does_not_answer_holds_only_its_own_pod(world: SocketWorld) -> None:
    plugin = DevicePlugin()

    async def silent(ids: list[str]) -> api.AllocateResponse:
        if ids == ["gpu-0"]:
            await never()
        return given(ids)

    plugin.answer = silent
    await world.plugged(plugin)
    waiting = asyncio.create_task(world.admit("silent"))
    await until(lambda: plugin.allocated == [["gpu-0"]])

    answers = [await world.admit(f"pod-{one}", gpus=one < 7, cpu=1) for one in range(50)]

    assert answers == [("", "")] * 50
    assert not waiting.done()
    assert world.node.status().planned == ["silent"]
    assert (await world.listed())["silent"] == []
    assert (await world.admit("late"))[0] == UNEXPECTED  # its device is reserved
    world.node.release("silent")
    assert (await waiting)[0] == UNEXPECTED
    plugin.answer = None
    assert await world.admit("next") == ("", "")
    assert world.held("next") == ["gpu-0"]


async def test_a_call_without_an_answer_in_time_gives_the_devices_back(world: SocketWorld) -> None:
    await world.stop()
    world.allocate_timeout_s = 0.2
    await world.start()
    plugin = DevicePlugin()

    async def silent(_ids: list[str]) -> api.AllocateResponse:
        await never()
        raise AssertionError

    plugin.answer = silent
    await world.plugged(plugin)

    reason, message = await world.admit("one", 8, cpu=8)
    assert reason == UNEXPECTED
    assert message == (
        "Allocate failed due to rpc error: code = DeadlineExceeded desc = Deadline Exceeded, "
        "which is unexpected"
    )
    plugin.answer = None
    assert await world.admit("two", 8, cpu=60) == ("", "")


async def refusing(_ids: list[str]) -> api.AllocateResponse:
    raise services.Refusal("no such share", grpc.StatusCode.NOT_FOUND)


async def empty(_ids: list[str]) -> api.AllocateResponse:
    return api.AllocateResponse()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (refusing, "rpc error: code = NotFound desc = no such share"),
        (empty, "no containers return in allocation response"),
    ],
)
async def test_a_pod_is_refused_with_the_failure_of_its_plugin(
    world: SocketWorld,
    answer: Callable[[list[str]], Awaitable[api.AllocateResponse]],
    message: str,
) -> None:
    plugin = DevicePlugin(answer=answer)
    await world.plugged(plugin)

    assert await world.admit("one", 8) == (
        UNEXPECTED,
        f"Allocate failed due to {message}, which is unexpected",
    )
    plugin.answer = None
    assert await world.admit("one", 8) == (
        UNEXPECTED,
        f"Allocate failed due to {message}, which is unexpected",
    )
    assert await world.admit("two", 8) == ("", "")


async def test_a_plugin_is_asked_which_devices_it_prefers(world: SocketWorld) -> None:
    plugin = DevicePlugin(options=api.DevicePluginOptions(get_preferred_allocation_available=True))
    asked = []

    def prefer(request: api.ContainerPreferredAllocationRequest) -> list[str]:
        asked.append(sorted(request.available_deviceIDs)[-request.allocation_size :])
        return asked[-1]

    plugin.preferred = prefer
    await world.plugged(plugin)

    assert await world.admit("one", 2) == ("", "")

    assert len(asked) == 1
    assert plugin.allocated == [world.held("one")] == asked


async def test_a_plugin_is_called_before_a_container_starts(world: SocketWorld) -> None:
    plugin = DevicePlugin(options=api.DevicePluginOptions(pre_start_required=True))
    started = []

    async def note() -> None:
        started.append(True)

    plugin.pre_start = note
    await world.plugged(plugin)
    pod = wanting("one").pod
    assert await world.admit("one") == ("", "")
    await world.node.options(pod, pod.containers[0])
    assert started == [True]

    async def fail() -> None:
        raise services.Refusal("the device is hot")

    plugin.pre_start = fail
    with pytest.raises(
        AllocationError, match=r"PreStartContainer rpc failed with err: .* the device is hot"
    ):
        await world.node.options(pod, pod.containers[0])


async def test_devices_of_a_plugin_that_dies_are_unhealthy_until_it_returns(
    world: SocketWorld,
) -> None:
    plugin = DevicePlugin()
    running = await world.plugged(plugin)
    assert await world.admit("one") == ("", "")

    running.cancel()
    await world.offered(0)

    assert world.node.status().devices.capacity == {GPU: 8}
    assert world.held("one") == ["gpu-0"]
    assert (await world.admit("two"))[1].startswith("Allocate failed due to no healthy devices")
    await world.plugged(plugin)
    assert await world.admit("three") == ("", "")
    assert world.held("three") == ["gpu-1"]


async def test_a_resource_goes_five_minutes_after_its_plugin(world: SocketWorld) -> None:
    running = await world.plugged(DevicePlugin())
    running.cancel()
    await world.offered(0)

    world.now_s += 301

    assert world.node.status().devices.deleted == (GPU,)
    assert world.node.status().devices.capacity == {}


async def test_a_stream_that_breaks_ends_the_plugin(world: SocketWorld) -> None:
    plugin = DevicePlugin()
    await world.plugged(plugin)

    plugin.breaks = True
    plugin.changed.set()

    await world.offered(0)


async def test_changes_of_health_are_taken(world: SocketWorld) -> None:
    plugin = DevicePlugin()
    await world.plugged(plugin)

    plugin.devices = [device("gpu-0", 0, "Unhealthy"), device("gpu-9", 1)]
    plugin.changed.set()

    await world.offered(1)
    assert world.node.status().devices.capacity == {GPU: 2}
    assert await world.admit("one") == ("", "")
    assert world.held("one") == ["gpu-9"]


async def test_a_plugin_that_registers_twice_counts_once(world: SocketWorld) -> None:
    first, second = DevicePlugin(), DevicePlugin(devices=[device("gpu-0", 0)])
    running = await world.plugged(first)
    world.begin(second.run(world.device_plugins, "second.sock"))
    await world.offered(1)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert await world.admit("one") == ("", "")
    assert (first.allocated, second.allocated) == ([], [["gpu-0"]])


async def test_plugins_register_again_after_a_restart_and_pods_keep_their_devices(
    world: SocketWorld,
) -> None:
    plugin = DevicePlugin()
    world.begin(plugin.run(world.device_plugins))
    await world.offered(8)
    assert await world.admit("one", 3) == ("", "")
    left_behind = world.device_plugins / "gpu.sock"
    made_ns = left_behind.stat().st_ctime_ns
    await world.node.stop()

    assert await world.start(is_ready=False) is None
    assert world.node.status().devices.allocatable == {GPU: 0}
    await world.offered(8)

    assert left_behind.stat().st_ctime_ns != made_ns
    assert await world.admit("one", 3) == ("", "")
    world.node.ready()
    assert world.held("one") == ["gpu-0", "gpu-1", "gpu-2"]
    assert len(plugin.allocated) == 1
    assert await world.admit("two", 5) == ("", "")


async def test_a_checkpoint_with_a_wrong_checksum_is_reported(world: SocketWorld) -> None:
    await world.plugged(DevicePlugin())
    await world.node.stop()
    file = world.device_plugins / files.FILE
    file.write_bytes(file.read_bytes().replace(b'"Checksum":', b'"Checksum":1'))

    assert await world.start() == "the state of devices is lost: checkpoint is corrupted"
    await world.offered(8)
    assert await world.admit("one", 8) == ("", "")


async def test_devices_that_were_lost_are_allocated_before_the_container_starts(
    world: SocketWorld,
) -> None:
    """The pod is there again before its plugin, and runs without a check of its devices."""
    plugin = DevicePlugin(options=api.DevicePluginOptions(get_preferred_allocation_available=True))
    candidate = wanting("one", 2)
    assert (await world.node.admit(candidate, ALLOCATABLE)).admit  # no plugin has registered yet
    await world.plugged(plugin)
    app = candidate.pod.containers[0]

    options = await world.node.options(candidate.pod, app)

    assert options.envs == {"GPUS": ",".join(world.held("one"))}
    assert len(plugin.allocated) == 1
    assert len(world.held("one")) == 2


@pytest.mark.parametrize(
    ("version", "resource", "endpoint", "text"),
    [
        ("v1alpha", GPU, "gpu.sock", 'requested API version "v1alpha" is not supported by kubelet'),
        ("v1beta1", "", "gpu.sock", 'the ResourceName "" is invalid'),
        ("v1beta1", "vendor.com/../gpu", "gpu.sock", 'the ResourceName "vendor.com/../gpu" is'),
        ("v1beta1", "cpu", "gpu.sock", 'the ResourceName "cpu" is invalid'),
        ("v1beta1", GPU, "../gpu.sock", "failed to dial device plugin: '../gpu.sock' is no file"),
        ("v1beta1", GPU, "..", "failed to dial device plugin: '..' is no file"),
        ("v1beta1", GPU, "", "failed to dial device plugin: '' is no file"),
    ],
)
async def test_bad_registrations_are_refused_and_harm_no_other_plugin(
    world: SocketWorld, version: str, resource: str, endpoint: str, text: str
) -> None:
    await world.plugged(DevicePlugin())
    request = api.RegisterRequest(version=version, resource_name=resource, endpoint=endpoint)

    async with Peer(world.device_plugins / "kubelet.sock", REGISTRATION) as kubelet:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await kubelet.call("Register", request, api.Empty, 5.0)

    assert text in (error.value.details() or "")
    assert await world.admit("one", 8) == ("", "")


async def test_a_plugin_that_dies_while_it_registers_is_refused(world: SocketWorld) -> None:
    service = api.DESCRIPTOR.services_by_name["DevicePlugin"]

    async def fail(_request: api.Empty) -> api.DevicePluginOptions:
        raise services.Refusal("dying")

    server = services.serve(
        world.device_plugins / "bad.sock", (service, {"GetDevicePluginOptions": fail})
    )
    await server.start()
    request = api.RegisterRequest(version="v1beta1", resource_name=GPU, endpoint="bad.sock")
    async with Peer(world.device_plugins / "kubelet.sock", REGISTRATION) as kubelet:
        with pytest.raises(grpc.aio.AioRpcError, match="failed to get device plugin options"):
            await kubelet.call("Register", request, api.Empty, 5.0)
    await server.stop(None)

    assert world.node.status().devices.capacity == {}


async def test_a_plugin_that_dies_in_a_call_refuses_only_this_pod(world: SocketWorld) -> None:
    plugin = DevicePlugin()

    async def silent(_ids: list[str]) -> api.AllocateResponse:
        await never()
        raise AssertionError

    plugin.answer = silent
    running = await world.plugged(plugin)
    waiting = asyncio.create_task(world.admit("one"))
    await until(lambda: bool(plugin.allocated))

    running.cancel()

    assert (await waiting)[0] == UNEXPECTED
    await world.offered(0)
    plugin.answer = None
    await world.plugged(plugin)
    assert await world.admit("two", 8) == ("", "")


async def test_an_agent_that_dies_in_a_call_has_given_nothing_away(world: SocketWorld) -> None:
    plugin = DevicePlugin()

    async def silent(_ids: list[str]) -> api.AllocateResponse:
        await never()
        raise AssertionError

    plugin.answer = silent
    world.begin(plugin.run(world.device_plugins))
    await world.offered(8)
    waiting = asyncio.create_task(world.admit("one", 8))
    await until(lambda: bool(plugin.allocated))
    await world.node.stop()
    with pytest.raises(asyncio.CancelledError):
        await waiting  # its pod is not refused

    plugin.answer = None
    await world.start()
    await world.offered(8)
    assert await world.admit("two", 8) == ("", "")


async def test_a_critical_pod_replaces_others(world: SocketWorld) -> None:
    await world.plugged(DevicePlugin())
    assert await world.admit("small", 1, cpu=40) == ("", "")
    critical = wanting("critical", 1, cpu=0)
    amounts = {**critical.pod.containers[0].requests, "cpu": 40_500}
    app = replace(critical.pod.containers[0], requests=amounts, limits=amounts)
    critical = replace(
        critical, pod=replace(critical.pod, containers=[app], priority=2_000_001_000)
    )

    answer = await world.node.admit(critical, ALLOCATABLE)

    assert answer.admit
    assert world.evicted == ["small"]
    assert world.held("small") == []
