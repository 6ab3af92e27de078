"""Claims, volumes, CSI drivers and attachments, read and written for the volumes of pods."""

from collections.abc import Awaitable
from typing import Final, TypeVar

from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from bindery.kube.http.requests import PatchKind
from bindery.kube.objects.storage import CLAIMS, CSI_DRIVERS, VOLUME_ATTACHMENTS, VOLUMES
from bindery.nodeagent.volumes.sources import (
    AttachmentObject,
    DriverObject,
    StoredClaim,
    StoredVolume,
)
from bindery.nodecore.volumes.populator import VolumeError

T = TypeVar("T")

_CLAIMS: Final = CLAIMS.decoded_as(StoredClaim)
_VOLUMES: Final = VOLUMES.decoded_as(StoredVolume)
_DRIVERS: Final = CSI_DRIVERS.decoded_as(DriverObject)
_ATTACHMENTS: Final = VOLUME_ATTACHMENTS.decoded_as(AttachmentObject)
_GROWING: Final = (
    "Resizing",
    "FileSystemResizePending",
    "ControllerResizeError",
    "NodeResizeError",
)
"""Conditions of a claim that grows."""


class ApiVolumeObjects:
    """Implements `VolumeObjects` for the node called `node`."""

    def __init__(self, client: Client, node: str) -> None:
        self._client, self._node = client, node

    async def claim(self, namespace: str, name: str) -> StoredClaim:
        """Return a claim."""
        return await _answer(
            "failed to fetch PVC from API server", self._client.get(_CLAIMS, name, namespace)
        )

    async def volume(self, name: str) -> StoredVolume:
        """Return a volume."""
        return await _answer("failed to fetch PV from API server", self._client.get(_VOLUMES, name))

    async def driver(self, name: str) -> DriverObject | None:
        """Return the CSIDriver, None without one."""
        try:
            return await self._client.get(_DRIVERS, name)
        except NotFoundError:
            return None
        except KubeError as error:
            raise VolumeError(f"failed to fetch CSIDriver {name}: {error}") from error

    async def attachment(self, name: str) -> AttachmentObject | None:
        """Return the VolumeAttachment, None if there is none."""
        try:
            return await self._client.get(_ATTACHMENTS, name)
        except NotFoundError:
            return None
        except KubeError as error:
            raise VolumeError(f"failed to fetch VolumeAttachment {name}: {error}") from error

    async def attach(self, name: str, driver: str, volume: str) -> None:
        """Create the VolumeAttachment of the volume to this node, unless it exists."""
        body = {
            "apiVersion": VOLUME_ATTACHMENTS.api_version,
            "kind": VOLUME_ATTACHMENTS.kind,
            "metadata": {"name": name},
            "spec": {
                "attacher": driver,
                "nodeName": self._node,
                "source": {"persistentVolumeName": volume},
            },
        }
        try:
            await self._client.create(_ATTACHMENTS, body)
        except AlreadyExistsError:
            return
        except KubeError as error:
            raise VolumeError(str(error)) from error

    async def detach(self, name: str) -> None:
        """Delete the VolumeAttachment."""
        try:
            await self._client.delete(_ATTACHMENTS, name)
        except NotFoundError:
            return
        except KubeError as error:
            raise VolumeError(str(error)) from error

    async def has_grown(self, claim: StoredClaim, volume: StoredVolume) -> None:
        """Write the size of its volume into the status of the claim, which no longer grows."""
        status = {
            "capacity": volume.spec.capacity,
            "allocatedResourceStatuses": {"storage": None},
            "conditions": [{"$patch": "delete", "type": kind} for kind in _GROWING],
        }
        meta = claim.metadata
        await _answer(
            "failed to write the size of the PVC",
            self._client.patch(
                _CLAIMS,
                meta.name,
                {"status": status},
                namespace=meta.namespace,
                subresource="status",
                kind=PatchKind.STRATEGIC,
            ),
        )


async def _answer(complaint: str, call: Awaitable[T]) -> T:
    try:
        return await call
    except KubeError as error:
        raise VolumeError(f"{complaint}: {error}") from error
