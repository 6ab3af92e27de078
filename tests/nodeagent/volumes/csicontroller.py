"""The identity and controller services of the tests' CSI driver: volumes made and deleted."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BoolValue

from bindery.nodeagent.sockets.services import Methods, Refusal
from bindery.nodeagent.volumes.definitions import csi_pb2 as api

IDENTITY: Final = api.DESCRIPTOR.services_by_name["Identity"]
CONTROLLER: Final = api.DESCRIPTOR.services_by_name["Controller"]
DEFAULT_BYTES: Final = 8 << 20
_CAN: Final = api.ControllerServiceCapability.RPC.CREATE_DELETE_VOLUME


def check(request: Message, *names: str) -> None:
    """Refuse a request without one of these fields."""
    for name in names:
        given = getattr(request, name)
        if not (given.ByteSize() if isinstance(given, Message) else given):
            raise Refusal(f"{name} is missing", grpc.StatusCode.INVALID_ARGUMENT)


@dataclass
class Volumes:
    """The volumes below `state`: a directory, or the image of a disk.

    A volume is named by its handle. One that no controller has made is made when it is first used.
    """

    state: Path
    sizes: dict[str, int] = field(default_factory=dict)
    """The size with which a controller has made each."""

    def directory(self, handle: str) -> Path:
        """Return the directory of a volume, made first if it is not there."""
        place = self.state / handle
        place.mkdir(parents=True, exist_ok=True)
        return place

    def image(self, handle: str) -> Path:
        """Return the image of a disk, made first if it is not there."""
        image = self.state / f"{handle}.img"
        if not image.exists():
            self.state.mkdir(parents=True, exist_ok=True)
            with image.open("wb") as file:
                file.truncate(self.sizes.get(handle, DEFAULT_BYTES))
        return image

    def must_exist(self, handle: str) -> None:
        """Refuse a volume that is neither made nor used."""
        places = (self.state / handle, self.state / f"{handle}.img")
        if handle not in self.sizes and not any(place.exists() for place in places):
            raise Refusal(f"there is no volume {handle}", grpc.StatusCode.NOT_FOUND)

    def remove(self, handle: str) -> None:
        """Remove a volume; one with files is refused."""
        self.sizes.pop(handle, None)
        (self.state / f"{handle}.img").unlink(missing_ok=True)
        if (self.state / handle).exists():
            try:
                (self.state / handle).rmdir()
            except OSError as error:
                raise Refusal(str(error), grpc.StatusCode.FAILED_PRECONDITION) from error


class Controller:
    """Answers for a driver's name and volumes. Volumes are on each node: there is no attaching."""

    def __init__(self, name: str, volumes: Volumes) -> None:
        self._name = name
        self._volumes = volumes

    def services(self) -> list[tuple[Any, Methods]]:
        """Return the two services, to be served."""
        identity = ("GetPluginInfo", "GetPluginCapabilities", "Probe")
        controller = (
            "ControllerGetCapabilities",
            "CreateVolume",
            "DeleteVolume",
            "ValidateVolumeCapabilities",
        )
        return [
            (IDENTITY, {name: getattr(self, name) for name in identity}),
            (CONTROLLER, {name: getattr(self, name) for name in controller}),
        ]

    async def GetPluginInfo(self, _: object) -> api.GetPluginInfoResponse:  # noqa: N802
        return api.GetPluginInfoResponse(name=self._name, vendor_version="1.0.0")

    async def GetPluginCapabilities(  # noqa: N802
        self, _: object
    ) -> api.GetPluginCapabilitiesResponse:
        service = api.PluginCapability.Service(type=api.PluginCapability.Service.CONTROLLER_SERVICE)
        return api.GetPluginCapabilitiesResponse(
            capabilities=[api.PluginCapability(service=service)]
        )

    async def Probe(self, _: object) -> api.ProbeResponse:  # noqa: N802
        return api.ProbeResponse(ready=BoolValue(value=True))

    async def ControllerGetCapabilities(  # noqa: N802
        self, _: object
    ) -> api.ControllerGetCapabilitiesResponse:
        can = api.ControllerServiceCapability(rpc=api.ControllerServiceCapability.RPC(type=_CAN))
        return api.ControllerGetCapabilitiesResponse(capabilities=[can])

    async def CreateVolume(  # noqa: N802
        self, asked: api.CreateVolumeRequest
    ) -> api.CreateVolumeResponse:
        check(asked, "name", "volume_capabilities")
        sizes = self._volumes.sizes
        size = asked.capacity_range.required_bytes or DEFAULT_BYTES
        if sizes.setdefault(asked.name, size) != size:
            raise Refusal(f"{asked.name} has another size", grpc.StatusCode.ALREADY_EXISTS)
        return api.CreateVolumeResponse(
            volume=api.Volume(volume_id=asked.name, capacity_bytes=size)
        )

    async def DeleteVolume(  # noqa: N802
        self, asked: api.DeleteVolumeRequest
    ) -> api.DeleteVolumeResponse:
        check(asked, "volume_id")
        self._volumes.remove(asked.volume_id)
        return api.DeleteVolumeResponse()

    async def ValidateVolumeCapabilities(  # noqa: N802
        self, asked: api.ValidateVolumeCapabilitiesRequest
    ) -> api.ValidateVolumeCapabilitiesResponse:
        check(asked, "volume_id", "volume_capabilities")
        self._volumes.must_exist(asked.volume_id)
        return api.ValidateVolumeCapabilitiesResponse(
            confirmed=api.ValidateVolumeCapabilitiesResponse.Confirmed(
                volume_capabilities=asked.volume_capabilities
            )
        )
