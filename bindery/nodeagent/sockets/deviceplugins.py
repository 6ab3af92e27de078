"""A device plugin's side of the device plugin API v1beta1 of the kubelet.

`run` serves a plugin on a socket of its own and registers it. It does so again after each start of
the kubelet, which removes the sockets of all plugins.
"""

import asyncio
from pathlib import Path
from typing import Final

import structlog

from bindery.nodeagent.sockets import services
from bindery.nodeagent.sockets.definitions import deviceplugin_pb2 as api
from bindery.nodeagent.sockets.services import Methods, Peer

VERSION: Final = "v1beta1"
KUBELET: Final = "kubelet.sock"
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
_PLUGIN: Final = api.DESCRIPTOR.services_by_name["DevicePlugin"]
_REGISTRATION: Final = api.DESCRIPTOR.services_by_name["Registration"]
_POLL_S: Final = 0.5
_REGISTER_S: Final = 10.0

log = structlog.get_logger(__name__)


async def run(
    directory: Path,
    socket: str,
    resource: str,
    methods: Methods,
    options: api.DevicePluginOptions | None = None,
) -> None:
    """Serve a device plugin until cancelled.

    Args:
        directory: the one with the kubelet's socket, such as /var/lib/kubelet/device-plugins.
        socket: the name of the plugin's socket in it.
        resource: the extended resource.
        methods: `ListAndWatch`, `Allocate`, and the methods that `options` announce.
        options: which further methods the kubelet calls.
    """
    given = options or api.DevicePluginOptions()

    async def answer_options(_request: api.Empty) -> api.DevicePluginOptions:
        return given

    every = {"GetDevicePluginOptions": answer_options, **methods}
    while True:
        made = await _wait_until_changed(directory, None)
        server = services.serve(directory / socket, (_PLUGIN, every))
        await server.start()
        try:
            await _register(directory, socket, resource, given)
            log.info("registered with the kubelet", resource=resource)
            await _wait_until_changed(directory, made)
        except services.CallError as error:
            log.warning("the kubelet does not register the plugin", resource=resource,
                        error=str(error))  # fmt: skip
            await asyncio.sleep(_POLL_S)
        finally:
            await server.stop(None)


async def _register(
    directory: Path, socket: str, resource: str, options: api.DevicePluginOptions
) -> None:
    async with Peer(directory / KUBELET, _REGISTRATION) as kubelet:
        request = api.RegisterRequest(
            version=VERSION, endpoint=socket, resource_name=resource, options=options
        )
        await kubelet.call("Register", request, api.Empty, _REGISTER_S)


async def _wait_until_changed(directory: Path, known: tuple[int, int] | None) -> tuple[int, int]:
    """Wait until the kubelet's socket is there, and another one than `known`; return its mark."""
    while True:
        try:
            found = (directory / KUBELET).stat()
        except FileNotFoundError:
            known = None
        else:
            mark = found.st_ino, found.st_ctime_ns
            if mark != known:
                return mark
        await asyncio.sleep(_POLL_S)
