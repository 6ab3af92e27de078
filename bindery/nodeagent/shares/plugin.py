"""The device plugin: the kubelet's calls, answered with the shares of this node's GPUs.

`sockets.deviceplugins` registers it. Handshakes run one after the other, as the kubelet admits
pods. A handshake goes on if the kubelet hangs up, so that its writes are never left half done.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from bindery.api.hami.vendortable import NVIDIA
from bindery.kube.errors import KubeError
from bindery.nodeagent.devices.hamiregister import Sharing
from bindery.nodeagent.devices.inventory import NO_NUMA_NODE, NodeGpu
from bindery.nodeagent.devices.reporter import DeviceReporter, shared
from bindery.nodeagent.shares import matching
from bindery.nodeagent.shares.containers import Grant
from bindery.nodeagent.shares.handshake import Handshake, HandshakeError
from bindery.nodeagent.shares.metrics import GPUS
from bindery.nodeagent.sockets import deviceplugins
from bindery.nodeagent.sockets.definitions import deviceplugin_pb2 as api
from bindery.nodeagent.sockets.services import Methods, Refusal

_log: Final = structlog.get_logger(__name__)

SOCKET: Final = "bindery-shares.sock"
_ALLOCATE_S: Final = 25.0
"""The kubelet waits without a limit and admits no other pod meanwhile."""
_PREFER_S: Final = 3.0

T = TypeVar("T")


class SharesPlugin:
    """The plugin of one node. `turn`: held during a handshake."""

    def __init__(
        self, handshake: Handshake, reporter: DeviceReporter, sharing: Sharing, turn: asyncio.Lock
    ) -> None:
        self._handshake, self._reporter = handshake, reporter
        self._sharing, self._turn = sharing, turn
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, directory: Path) -> None:
        """Serve the kubelet whose socket is in `directory`, until cancelled."""
        methods: Methods = {
            "ListAndWatch": self._list,
            "GetPreferredAllocation": self._prefer,
            "Allocate": self._allocate,
        }
        options = api.DevicePluginOptions(get_preferred_allocation_available=True)
        await deviceplugins.run(directory, SOCKET, NVIDIA.count_resource, methods, options)

    async def _list(self, _request: api.Empty) -> AsyncIterator[api.ListAndWatchResponse]:
        gpus = self._reporter.gpus
        while True:
            offered = shared(gpus)
            healthy = sum(gpu.is_healthy for gpu in offered)
            GPUS.labels("healthy").set(healthy)
            GPUS.labels("unhealthy").set(len(offered) - healthy)
            yield api.ListAndWatchResponse(
                devices=[
                    each for gpu in offered for each in devices(gpu, self._sharing.split_count)
                ]
            )
            gpus = await self._reporter.wait_changed(gpus)

    async def _prefer(
        self, request: api.PreferredAllocationRequest
    ) -> api.PreferredAllocationResponse:
        answers = []
        for one in request.container_requests:
            turn = None
            try:
                async with self._turn, asyncio.timeout(_PREFER_S):
                    turn = await self._handshake.expected(one.allocation_size)
            except (KubeError, TimeoutError) as error:
                _log.debug("shares are chosen without their pod", error=str(error))
            chosen = matching.preferred(
                turn, one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size
            )
            answers.append(api.ContainerPreferredAllocationResponse(deviceIDs=chosen))
        return api.PreferredAllocationResponse(container_responses=answers)

    async def _allocate(self, request: api.AllocateRequest) -> api.AllocateResponse:
        grants = [
            await self._to_the_end(self._grant([*one.devices_ids]))
            for one in request.container_requests
        ]
        return api.AllocateResponse(container_responses=[answer(each) for each in grants])

    async def _grant(self, identifiers: list[str]) -> Grant:
        uuids = [matching.uuid_of(each) for each in identifiers]
        try:
            async with self._turn, asyncio.timeout(_ALLOCATE_S):
                return await self._handshake.allocate(uuids, shared(self._reporter.gpus))
        except (HandshakeError, KubeError, TimeoutError) as error:
            reason = str(error) or f"the API server does not answer within {_ALLOCATE_S:g} s"
            _log.warning("a container gets no shares", error=reason)
            raise Refusal(reason) from error

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in a task that goes on when this call is cancelled."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)


def devices(gpu: NodeGpu, split_count: int) -> list[api.Device]:
    """Return the shares of a GPU as the kubelet lists devices."""
    health = deviceplugins.HEALTHY if gpu.is_healthy else deviceplugins.UNHEALTHY
    is_known = gpu.numa_node != NO_NUMA_NODE
    topology = api.TopologyInfo(nodes=[api.NUMANode(ID=gpu.numa_node)]) if is_known else None
    return [
        api.Device(ID=share, health=health, topology=topology)
        for share in matching.shares(gpu.uuid, split_count)
    ]


def answer(grant: Grant) -> api.ContainerAllocateResponse:
    """Return a grant in the form of the kubelet's API."""
    return api.ContainerAllocateResponse(
        envs=grant.variables,
        mounts=[
            api.Mount(container_path=each.inside, host_path=each.on_node, read_only=each.read_only)
            for each in grant.mounts
        ],
        cdi_devices=[api.CDIDevice(name=each) for each in grant.cdi_devices],
    )
