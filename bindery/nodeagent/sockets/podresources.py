"""Calls to the kubelet's service PodResources (`k8s.io/kubelet`, v1)."""

from pathlib import Path
from typing import Final

from bindery.nodeagent.sockets.definitions import podresources_pb2 as api
from bindery.nodeagent.sockets.services import Peer

SOCKET: Final = Path("pod-resources/kubelet.sock")
"""Below the kubelet's directory."""
_LISTER: Final = api.DESCRIPTOR.services_by_name["PodResourcesLister"]
_CALL_S: Final = 10.0


async def allocatable(socket: Path) -> api.AllocatableResourcesResponse:
    """Return what pods of the node can get; raises CallError."""
    async with Peer(socket, _LISTER) as kubelet:
        return await kubelet.call(
            "GetAllocatableResources",
            api.AllocatableResourcesRequest(),
            api.AllocatableResourcesResponse,
            _CALL_S,
        )


async def listed(socket: Path) -> api.ListPodResourcesResponse:
    """Return what the containers of the node hold; raises CallError."""
    async with Peer(socket, _LISTER) as kubelet:
        return await kubelet.call(
            "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse, _CALL_S
        )
