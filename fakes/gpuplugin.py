"""`python -m fakes.gpuplugin`: a fake of NVIDIA's device plugin, for a real kubelet.

It registers with the kubelet as the plugin does (device plugin API v1beta1 of Kubernetes 1.36), and
its containers see NVIDIA_VISIBLE_DEVICES. The GPUs are invented: there is no hardware, and nothing
isolates anybody from them.
"""

import argparse
import asyncio
import signal
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from bindery.nodeagent.sockets import deviceplugins
from bindery.nodeagent.sockets.definitions import deviceplugin_pb2 as api
from bindery.nodeagent.sockets.services import Methods

RESOURCE: Final = "nvidia.com/gpu"
_SOCKET: Final = "fake-gpus.sock"


def devices(node: str, count: int) -> list[str]:
    """Return the identifiers of the GPUs of a node, the same each time."""
    return [f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{i}')}" for i in range(count)]


class GpuPlugin:
    """The plugin of one node."""

    def __init__(self, directory: Path, identifiers: Sequence[str]) -> None:
        """Prepare; `directory` is the one with the socket of the kubelet."""
        self._directory, self._identifiers = directory, identifiers

    async def run(self) -> None:
        """Serve; register again after each start of the kubelet."""
        methods: Methods = {"ListAndWatch": self._list, "Allocate": self._allocate}
        await deviceplugins.run(self._directory, _SOCKET, RESOURCE, methods)

    async def _list(self, _request: api.Empty) -> AsyncIterator[api.ListAndWatchResponse]:
        listed = [api.Device(ID=each, health=deviceplugins.HEALTHY) for each in self._identifiers]
        yield api.ListAndWatchResponse(devices=listed)
        await asyncio.Event().wait()

    async def _allocate(self, request: api.AllocateRequest) -> api.AllocateResponse:
        given = [",".join(sorted(one.devices_ids)) for one in request.container_requests]
        answers = [
            api.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": each}) for each in given
        ]
        return api.AllocateResponse(container_responses=answers)


async def _main(given: argparse.Namespace) -> None:
    work = asyncio.current_task()
    assert work is not None, "asyncio.run makes a task"
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, work.cancel)
    try:
        await GpuPlugin(given.directory, devices(given.node, given.count)).run()
    except asyncio.CancelledError:
        return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m fakes.gpuplugin", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="of the kubelet's socket")
    parser.add_argument("--node", required=True, help="its name; the identifiers follow from it")
    parser.add_argument("--count", type=int, default=8, help="how many GPUs")
    asyncio.run(_main(parser.parse_args()))
