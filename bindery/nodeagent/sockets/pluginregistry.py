"""A plugin's side of the kubelet's plugin registration API, as DRA and CSI drivers use it.

The kubelet finds sockets in a watched directory, asks for the plugin's kind, name and endpoint, and
reports whether it has registered the plugin.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import structlog

from bindery.nodeagent.sockets import services
from bindery.nodeagent.sockets.definitions import pluginregistration_pb2 as api

DRA: Final = "DRAPlugin"
CSI: Final = "CSIPlugin"
_SERVICE: Final = api.DESCRIPTOR.services_by_name["Registration"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RegisteredPlugin:
    """The plugin's answer to the kubelet's question.

    Attributes:
        kind: `DRA`, `CSI` or `DEVICES`.
        name: the driver or the resource.
        endpoint: the socket of its service, as a path on the node.
        versions: the services that it supports, such as "v1.DRAPlugin".
    """

    kind: str
    name: str
    endpoint: str
    versions: Sequence[str]


def server(socket: Path, plugin: RegisteredPlugin) -> grpc.aio.Server:
    """Return the server that registers `plugin`, for `start` and `stop`.

    `socket`: in the kubelet's directory of plugins, such as
    /var/lib/kubelet/plugins_registry/NAME-reg.sock.
    """

    async def tell(_request: api.InfoRequest) -> api.PluginInfo:
        return api.PluginInfo(
            type=plugin.kind,
            name=plugin.name,
            endpoint=plugin.endpoint,
            supported_versions=plugin.versions,
        )

    async def note(request: api.RegistrationStatus) -> api.RegistrationStatusResponse:
        if request.plugin_registered:
            log.info("registered with the kubelet", plugin=plugin.name)
        else:
            log.warning("the kubelet does not register the plugin", plugin=plugin.name,
                        error=request.error)  # fmt: skip
        return api.RegistrationStatusResponse()

    return services.serve(socket, (_SERVICE, {"GetInfo": tell, "NotifyRegistrationStatus": note}))
