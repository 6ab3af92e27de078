"""Kubernetes' sample device plugin, found by the plugin manager: a program of others, in Go."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from devcluster import build
from tests.nodeagent.kubeletside.socketworld import ALLOCATABLE, SocketWorld, until, wanting
from tests.required import lacking

RESOURCE = "example.com/resource"


@asynccontextmanager
async def sample_plugin(world: SocketWorld) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the plugin with its socket in the directory that the plugin manager watches."""
    if not build.are_built(["sample-device-plugin"]):
        lacking("Kubernetes' sample device plugin is not built")
    program = build.binaries(["sample-device-plugin"], print)["sample-device-plugin"]
    settings = {
        "PLUGIN_SOCK_DIR": str(world.registry),
        # Without it, the plugin registers at a socket of the machine's own kubelet.
        "REGISTER_CONTROL_FILE": str(world.directory / "control" / "register"),
        "CDI_ENABLED": "",
    }
    (world.directory / "control").mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        program, env={**os.environ, **settings}, stdout=sys.stderr, stderr=sys.stderr
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_the_sample_device_plugin_gives_its_devices_and_comes_back(
    world: SocketWorld,
) -> None:
    plain = wanting("one", gpus=0)
    amounts = {**plain.pod.containers[0].requests, RESOURCE: 1}
    app = replace(plain.pod.containers[0], requests=amounts, limits=amounts)
    asking = replace(plain, pod=replace(plain.pod, containers=[app]))

    def offered() -> int:
        return world.node.status().devices.allocatable.get(RESOURCE, 0)

    async with sample_plugin(world) as plugin:
        await until(lambda: offered() == 2)
        answer = await world.node.admit(asking, {**ALLOCATABLE, RESOURCE: 2})
        options = await world.node.options(asking.pod, app)
        (device,) = world.node.manager.devices.devices_of("one", "app")[RESOURCE].ids
        plugin.send_signal(signal.SIGKILL)
        await until(lambda: offered() == 0)

    assert answer.admit
    assert [mount.host_path for mount in options.mounts] == [f"/tmp/{device}"]
    assert await world.listed() == {"one": [device]}
    async with sample_plugin(world):
        await until(lambda: offered() == 2)
