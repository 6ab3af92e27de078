"""The format of `dra_manager_state`: the resource claims that are prepared on the node."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.checkpoints import gotext
from bindery.nodecore.checkpoints.gotext import Json
from bindery.nodecore.errors import CorruptCheckpointError

FILE: Final = "dra_manager_state"

_KIND: Final = "DRACheckpoint"
_API_VERSION: Final = "checkpoint.dra.kubelet.k8s.io/v1"


@dataclass(frozen=True)
class ClaimDevice:
    """A device of a claim, as its driver prepared it."""

    pool: str
    device: str
    share_id: str | None = None
    requests: tuple[str, ...] | None = None
    cdi_ids: tuple[str, ...] | None = None


@dataclass(frozen=True)
class PreparedClaim:
    """A resource claim on the node.

    Attributes:
        pod_uids: the pods that use it here.
        drivers: driver -> the devices that it prepared.
    """

    uid: str
    name: str
    namespace: str
    pod_uids: frozenset[str]
    drivers: Mapping[str, tuple[ClaimDevice, ...]]


Claims = tuple[PreparedClaim, ...]


def encode(claims: Claims | None) -> bytes:
    """Return the file of `claims` with its checksum (CRC-32 over the inner JSON)."""
    data = gotext.to_json(
        {
            "kind": _KIND,
            "apiVersion": _API_VERSION,
            "ClaimInfoStateList": None if claims is None else [_claim_json(one) for one in claims],
        }
    ).decode()
    return gotext.to_json({"Data": data, "Checksum": zlib.crc32(data.encode())})


def decode(blob: bytes) -> Claims | None:
    """Return the claims in `blob`; None is Go's nil list.

    Raises:
        DecodeError: the blob has another form.
        CorruptCheckpointError: the checksum is wrong.
    """
    content = gotext.from_json(blob)
    data = gotext.field(content, "Data", str, "Checkpoint", "")
    stored = gotext.field(content, "Checksum", int, "Checkpoint", 0)
    actual = zlib.crc32(data.encode())
    if stored != actual:
        raise CorruptCheckpointError(stored, actual)
    claims = gotext.from_json(data).get("ClaimInfoStateList")
    if claims is None:
        return None
    return tuple(_claim(claim) for claim in gotext.items(claims, dict, "ClaimInfoStateList"))


def _claim_json(claim: PreparedClaim) -> Json:
    return {
        "ClaimUID": claim.uid,
        "ClaimName": claim.name,
        "Namespace": claim.namespace,
        "PodUIDs": {uid: {} for uid in sorted(claim.pod_uids)},
        "DriverState": {
            driver: {"Devices": [_device_json(device) for device in devices] or None}
            for driver, devices in sorted(claim.drivers.items())
        },
    }


def _device_json(device: ClaimDevice) -> Json:
    return {
        "PoolName": device.pool,
        "DeviceName": device.device,
        "ShareID": device.share_id,
        "RequestNames": _list_or_null(device.requests),
        "CDIDeviceIDs": _list_or_null(device.cdi_ids),
    }


def _list_or_null(values: tuple[str, ...] | None) -> list[str] | None:
    return None if values is None else list(values)


def _claim(claim: Json) -> PreparedClaim:
    place = "ClaimInfoState"
    drivers = gotext.field(claim, "DriverState", dict, place, {}) or {}
    return PreparedClaim(
        uid=gotext.field(claim, "ClaimUID", str, place, ""),
        name=gotext.field(claim, "ClaimName", str, place, ""),
        namespace=gotext.field(claim, "Namespace", str, place, ""),
        pod_uids=frozenset(gotext.field(claim, "PodUIDs", dict, place, {}) or {}),
        drivers={
            driver: tuple(
                _device(device)
                for device in gotext.items(
                    gotext.field(state, "Devices", list, "DriverState", []), dict, "Devices"
                )
            )
            for driver, state in drivers.items()
        },
    )


def _device(device: Json) -> ClaimDevice:
    return ClaimDevice(
        pool=gotext.field(device, "PoolName", str, "Device", ""),
        device=gotext.field(device, "DeviceName", str, "Device", ""),
        share_id=gotext.field(device, "ShareID", str, "Device", None),
        requests=_tuple_or_none(device, "RequestNames"),
        cdi_ids=_tuple_or_none(device, "CDIDeviceIDs"),
    )


def _tuple_or_none(device: Json, name: str) -> tuple[str, ...] | None:
    values = gotext.field(device, name, list, "Device", None)
    return None if values is None else gotext.items(values, str, f"Device.{name}")
