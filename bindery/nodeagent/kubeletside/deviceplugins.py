"""The kubelet's side of the device plugin API v1beta1: registration, watching, and calls.

A plugin registers at the socket that `serve` opens, or is found by the plugin manager. It counts
until its stream of devices ends. Decisions and state are `nodecore.devices`'.
"""

import asyncio
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import structlog

from bindery.nodeagent.sockets import services
from bindery.nodeagent.sockets.definitions import deviceplugin_pb2 as api
from bindery.nodeagent.sockets.deviceplugins import HEALTHY, KUBELET
from bindery.nodeagent.sockets.services import CallError, Peer, Refusal, reason
from bindery.nodecore.devices import registration
from bindery.nodecore.devices.calls import (
    DIAL_TIMEOUT_S,
    PRE_START_TIMEOUT_S,
    AllocateCall,
    PluginOptions,
    PreferenceCall,
    PreStartCall,
)
from bindery.nodecore.devices.manager import DeviceManager
from bindery.nodecore.devices.options import DeviceNode, Mount, RunOptions
from bindery.nodecore.devices.state import Device
from bindery.nodecore.errors import AllocationError
from bindery.nodecore.plugins import PluginError

DIRECTORY: Final = Path("device-plugins")
"""Below the kubelet's directory."""
ALLOCATE_TIMEOUT_S: Final = 120.0
"""A kubelet waits for ever."""
_DIRECTORY_MODE: Final = 0o750
_OPTIONS_TIMEOUT_S: Final = 10.0
_PLUGIN: Final = api.DESCRIPTOR.services_by_name["DevicePlugin"]
_REGISTRATION: Final = api.DESCRIPTOR.services_by_name["Registration"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Endpoint:
    socket: Path
    peer: Peer
    watching: asyncio.Task[None]


class DevicePlugins:
    """The device plugins of a node; handler of the plugin manager for this type.

    `directory`: the one with the kubelet's socket and the checkpoint of devices.
    """

    def __init__(
        self, directory: Path, devices: DeviceManager, timeout_s: float = ALLOCATE_TIMEOUT_S
    ) -> None:
        self._directory, self._devices, self._timeout_s = directory, devices, timeout_s
        self._endpoints: dict[str, _Endpoint] = {}
        self._server: grpc.aio.Server | None = None

    async def serve(self) -> None:
        """Remove the sockets of an earlier run and open the kubelet's; plugins register there.

        Raises:
            OSError: the directory cannot be used.
        """
        self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        for path in self._directory.iterdir():
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink(missing_ok=True)
        methods: services.Methods = {"Register": self._register_request}
        self._server = services.serve(self._directory / KUBELET, (_REGISTRATION, methods))
        await self._server.start()

    async def stop(self) -> None:
        """Close the kubelet's socket and the connections to all plugins."""
        if self._server is not None:
            await self._server.stop(None)
        for endpoint in [*self._endpoints.values()]:
            endpoint.watching.cancel()
            await asyncio.gather(endpoint.watching, return_exceptions=True)
        self._endpoints.clear()

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raise PluginError if the plugin for the resource `name` cannot be registered."""
        del endpoint
        registration.check_plugin(name, versions)

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Connect to a plugin and watch its devices; raises PluginError."""
        del versions
        await self._connect(name, Path(endpoint))

    async def deregister(self, name: str, endpoint: str) -> None:
        """Mark the devices of a plugin as unhealthy, unless another serves them by now."""
        found = self._endpoints.get(name)
        if found is not None and found.socket == Path(endpoint):
            found.watching.cancel()
            await asyncio.gather(found.watching, return_exceptions=True)

    async def preferred(self, call: PreferenceCall) -> list[str]:
        """Return the devices that a plugin prefers; raises AllocationError."""
        request = api.PreferredAllocationRequest(
            container_requests=[
                api.ContainerPreferredAllocationRequest(
                    available_deviceIDs=sorted(call.available),
                    must_include_deviceIDs=sorted(call.included),
                    allocation_size=call.size,
                )
            ]
        )
        try:
            found = await self._peer(call.resource).call(
                "GetPreferredAllocation",
                request,
                api.PreferredAllocationResponse,
                self._timeout_s,
            )
        except CallError as error:
            raise AllocationError(
                f"device plugin GetPreferredAllocation rpc failed with err: {reason(error)}"
            ) from error
        return list(found.container_responses[0].deviceIDs) if found.container_responses else []

    async def allocate(self, call: AllocateCall) -> bytes | None:
        """Return a plugin's answer for a container, None without one; raises AllocationError."""
        wanted = api.ContainerAllocateRequest(devices_ids=sorted(call.ids))
        request = api.AllocateRequest(container_requests=[wanted])
        try:
            found = await self._peer(call.resource).call(
                "Allocate", request, api.AllocateResponse, self._timeout_s
            )
        except CallError as error:
            raise AllocationError(reason(error)) from error
        if not found.container_responses:
            return None
        return bytes(found.container_responses[0].SerializeToString(deterministic=True))

    async def pre_start(self, call: PreStartCall) -> None:
        """Call a plugin before a container starts; raises AllocationError."""
        request = api.PreStartContainerRequest(devices_ids=sorted(call.ids))
        try:
            await self._peer(call.resource).call(
                "PreStartContainer", request, api.PreStartContainerResponse, PRE_START_TIMEOUT_S
            )
        except CallError as error:
            raise AllocationError(
                f"device plugin PreStartContainer rpc failed with err: {reason(error)}"
            ) from error

    def _peer(self, resource: str) -> Peer:
        found = self._endpoints.get(resource)
        if found is None:
            raise AllocationError(f"endpoint {resource} has been stopped")
        return found.peer

    async def _register_request(self, request: api.RegisterRequest) -> api.Empty:
        try:
            registration.check_request(request.version, request.resource_name)
            await self._connect(request.resource_name, self._socket(request.endpoint))
        except PluginError as error:
            log.warning("a device plugin is not registered", resource=request.resource_name,
                        error=str(error))  # fmt: skip
            raise Refusal(str(error)) from error
        return api.Empty()

    def _socket(self, endpoint: str) -> Path:
        """Return the socket of a plugin; raises PluginError for one outside the directory."""
        if "/" in endpoint or endpoint in ("", ".", ".."):
            raise PluginError(
                f"failed to dial device plugin: {endpoint!r} is no file of {self._directory}"
            )
        return self._directory / endpoint

    async def _connect(self, resource: str, socket: Path) -> None:
        """Take a plugin in place of an older one for its resource."""
        peer = Peer(socket, _PLUGIN)
        try:
            await peer.connect(DIAL_TIMEOUT_S)
            given = await peer.call(
                "GetDevicePluginOptions", api.Empty(), api.DevicePluginOptions, _OPTIONS_TIMEOUT_S
            )
        except TimeoutError as error:
            await peer.close()
            raise PluginError("failed to dial device plugin: context deadline exceeded") from error
        except CallError as error:
            await peer.close()
            raise PluginError(f"failed to get device plugin options: {reason(error)}") from error
        older = self._endpoints.get(resource)
        options = PluginOptions(
            prefers=given.get_preferred_allocation_available, pre_start=given.pre_start_required
        )
        self._devices.register(resource, options)
        watching = asyncio.create_task(self._watch(resource, peer))
        self._endpoints[resource] = _Endpoint(socket, peer, watching)
        if older is not None:
            older.watching.cancel()
        log.info("device plugin registered", resource=resource)

    async def _watch(self, resource: str, peer: Peer) -> None:
        """Take the lists of a plugin until its stream ends."""
        try:
            stream = peer.stream("ListAndWatch", api.Empty(), api.ListAndWatchResponse)
            async for answer in stream:
                self._take(resource, answer)
        except CallError as error:
            log.warning("a device plugin is gone", resource=resource, error=reason(error))
        finally:
            found = self._endpoints.get(resource)
            if found is not None and found.peer is peer:
                del self._endpoints[resource]
                self._devices.stop(resource)
            await peer.close()

    def _take(self, resource: str, answer: api.ListAndWatchResponse) -> None:
        try:
            self._devices.update(resource, [_device(one) for one in answer.devices])
        except OSError as error:
            # The list counts; the next change writes the checkpoint.
            log.warning("the checkpoint of devices cannot be written", error=str(error))


def run_options(answer: bytes) -> RunOptions:
    """Return what a plugin's answer adds to a container.

    Raises:
        DecodeError: these are not the bytes of an answer.
    """
    found = api.ContainerAllocateResponse.FromString(answer)
    return RunOptions(
        envs=dict(found.envs),
        devices=tuple(
            DeviceNode(one.host_path, one.container_path, one.permissions) for one in found.devices
        ),
        mounts=tuple(
            Mount(one.host_path, one.container_path, one.read_only) for one in found.mounts
        ),
        annotations=dict(found.annotations),
        cdi_devices=tuple(one.name for one in found.cdi_devices),
    )


def _device(device: api.Device) -> Device:
    nodes = tuple(node.ID for node in device.topology.nodes) or None
    return Device(device.ID, nodes, healthy=device.health == HEALTHY)
