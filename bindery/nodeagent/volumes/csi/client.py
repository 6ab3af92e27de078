"""Calls to the node service of CSI drivers (Container Storage Interface v1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import grpc
from google.protobuf.message import Message

from bindery.nodeagent.sockets.services import CallError, Peer
from bindery.nodeagent.volumes.definitions import csi_pb2 as api
from bindery.nodeagent.volumes.interface import InUseError, MountError
from bindery.nodeagent.volumes.sources import BLOCK
from bindery.nodecore.volumes.actual import Failure

CALL_S: Final = 120.0
"""The kubelet's time for a call of a driver."""
A = TypeVar("A", bound=Message)

_NODE: Final = api.DESCRIPTOR.services_by_name["Node"]
_RPC: Final = api.NodeServiceCapability.RPC
_MODE: Final = api.VolumeCapability.AccessMode
_MODES: Final = {
    "ReadWriteOnce": _MODE.SINGLE_NODE_WRITER,
    "ReadOnlyMany": _MODE.MULTI_NODE_READER_ONLY,
    "ReadWriteMany": _MODE.MULTI_NODE_MULTI_WRITER,
    "ReadWriteOncePod": _MODE.SINGLE_NODE_WRITER,
}
_MODES_OF_ONE_NODE: Final = {
    "ReadWriteOnce": _MODE.SINGLE_NODE_MULTI_WRITER,
    "ReadWriteOncePod": _MODE.SINGLE_NODE_SINGLE_WRITER,
}
_PERHAPS_RUNNING: Final = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
    }
)
"""After these codes the driver may still work on the call."""


@dataclass(frozen=True)
class VolumeUse:
    """How a volume is used.

    Attributes:
        kind: `Block` or `Filesystem`.
        access_mode: of Kubernetes.
        group: the group of its files, None if the driver does not set it.
    """

    handle: str
    kind: str = "Filesystem"
    access_mode: str = "ReadWriteOnce"
    fs_type: str = ""
    mount_options: Sequence[str] = ()
    group: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    publish_context: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Capabilities:
    """What the node service of a driver can do."""

    stages: bool = False
    grows: bool = False
    sets_group: bool = False
    has_modes_of_one_node: bool = False


class CsiDriver:
    """A driver at its socket. Its errors are MountErrors with the driver's code and words."""

    def __init__(self, socket: Path, timeout_s: float = CALL_S) -> None:
        self._socket = socket
        self._timeout_s = timeout_s

    async def info(self) -> api.NodeGetInfoResponse:
        """Return what the driver knows of the node."""
        return await self._call("NodeGetInfo", api.NodeGetInfoRequest(), api.NodeGetInfoResponse)

    async def capabilities(self) -> Capabilities:
        """Return what the driver can do."""
        answer = await self._call(
            "NodeGetCapabilities",
            api.NodeGetCapabilitiesRequest(),
            api.NodeGetCapabilitiesResponse,
        )
        found = {one.rpc.type for one in answer.capabilities}
        return Capabilities(
            _RPC.STAGE_UNSTAGE_VOLUME in found,
            _RPC.EXPAND_VOLUME in found,
            _RPC.VOLUME_MOUNT_GROUP in found,
            _RPC.SINGLE_NODE_MULTI_WRITER in found,
        )

    async def stage(self, use: VolumeUse, place: Path, can: Capabilities) -> None:
        """Mount the volume for the node at `place`."""
        request = api.NodeStageVolumeRequest(
            volume_id=use.handle,
            staging_target_path=str(place),
            volume_capability=_capability(use, can),
            publish_context=use.publish_context,
            volume_context=use.attributes,
            secrets=use.secrets,
        )
        await self._call("NodeStageVolume", request, api.NodeStageVolumeResponse)

    async def publish(
        self,
        use: VolumeUse,
        place: Path,
        staged: Path | None,
        can: Capabilities,
        *,
        is_read_only: bool,
    ) -> None:
        """Mount the volume for a pod at `place`."""
        request = api.NodePublishVolumeRequest(
            volume_id=use.handle,
            target_path=str(place),
            staging_target_path=str(staged or ""),
            readonly=is_read_only,
            volume_capability=_capability(use, can),
            publish_context=use.publish_context,
            volume_context=use.attributes,
            secrets=use.secrets,
        )
        await self._call("NodePublishVolume", request, api.NodePublishVolumeResponse)

    async def unpublish(self, handle: str, place: Path) -> None:
        """Unmount the volume from a pod."""
        request = api.NodeUnpublishVolumeRequest(volume_id=handle, target_path=str(place))
        await self._call("NodeUnpublishVolume", request, api.NodeUnpublishVolumeResponse)

    async def unstage(self, handle: str, place: Path) -> None:
        """Unmount the volume from the node."""
        request = api.NodeUnstageVolumeRequest(volume_id=handle, staging_target_path=str(place))
        await self._call("NodeUnstageVolume", request, api.NodeUnstageVolumeResponse)

    async def expand(
        self,
        use: VolumeUse,
        place: str,
        staged: Path | None,
        size_bytes: int,
        can: Capabilities,
    ) -> int:
        """Let the volume have the size; return the size that it has.

        Raises:
            InUseError: the driver cannot do it while the volume is in use.
        """
        request = api.NodeExpandVolumeRequest(
            volume_id=use.handle,
            volume_path=place,
            staging_target_path=str(staged or ""),
            capacity_range=api.CapacityRange(required_bytes=size_bytes),
            volume_capability=_capability(use, can),
            secrets=use.secrets,
        )
        answer = await self._call("NodeExpandVolume", request, api.NodeExpandVolumeResponse)
        return int(answer.capacity_bytes)

    async def _call(self, method: str, request: Message, answer: type[A]) -> A:
        try:
            async with Peer(self._socket, _NODE) as peer:
                return await peer.call(method, request, answer, self._timeout_s)
        except CallError as error:
            raise _failure(method, error) from error


def _failure(method: str, error: grpc.RpcError) -> MountError:
    code: grpc.StatusCode = error.code()
    words = f"rpc error: code = {_camel(code)} desc = {error.details()}"
    failure = Failure.UNCERTAIN if code in _PERHAPS_RUNNING else Failure.FINAL
    if method == "NodeExpandVolume" and code == grpc.StatusCode.FAILED_PRECONDITION:
        return InUseError(words)
    return MountError(words, failure)


def _camel(code: grpc.StatusCode) -> str:
    """Return the name of a code as Go prints it: DeadlineExceeded."""
    name = "".join(part.capitalize() for part in code.name.split("_"))
    return "Canceled" if name == "Cancelled" else name


def _capability(use: VolumeUse, can: Capabilities) -> api.VolumeCapability:
    modes = {**_MODES, **(_MODES_OF_ONE_NODE if can.has_modes_of_one_node else {})}
    mode = _MODE(mode=modes.get(use.access_mode, _MODE.UNKNOWN))
    if use.kind == BLOCK:
        block = api.VolumeCapability.BlockVolume()
        return api.VolumeCapability(access_mode=mode, block=block)
    mount = api.VolumeCapability.MountVolume(
        fs_type=use.fs_type,
        mount_flags=use.mount_options,
        volume_mount_group="" if use.group is None else str(use.group),
    )
    return api.VolumeCapability(access_mode=mode, mount=mount)
