"""The format of `kubelet_internal_checkpoint`: devices by pod, and the devices that registered."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.checkpoints import gotext
from bindery.nodecore.checkpoints.gotext import DecodeError, Json
from bindery.nodecore.errors import CorruptCheckpointError

FILE: Final = "kubelet_internal_checkpoint"

NO_NUMA_NODE: Final = -1
"""The key of devices that belong to no NUMA node."""


@dataclass(frozen=True)
class DeviceEntry:
    """The devices of one resource that a container has.

    Attributes:
        devices: NUMA node, or `NO_NUMA_NODE` -> device ids.
        response: the plugin's ContainerAllocateResponse, as protobuf bytes; None is Go's nil.
    """

    pod_uid: str
    container: str
    resource: str
    devices: Mapping[int, tuple[str, ...]]
    response: bytes | None


@dataclass(frozen=True)
class DeviceCheckpoint:
    """The content of the file; `registered`: resource -> the ids of its healthy devices."""

    entries: tuple[DeviceEntry, ...] | None
    registered: Mapping[str, tuple[str, ...]] | None

    def checksum(self) -> int:
        """Return the checksum of the content."""
        registered = self.registered
        printed = gotext.struct(
            (
                "PodDeviceEntries",
                "[]checkpoint.PodDevicesEntry",
                gotext.sequence(None if self.entries is None else map(_printed, self.entries)),
            ),
            (
                "RegisteredDevices",
                "map[string][]string",
                gotext.mapping(
                    None
                    if registered is None
                    else {name: gotext.sequence(ids) for name, ids in registered.items()}
                ),
            ),
        )
        return gotext.fnv1a(f"(checkpoint.checkpointData){printed}")

    def encode(self) -> bytes:
        """Return the file with its checksum."""
        entries = None if self.entries is None else [_entry_json(entry) for entry in self.entries]
        registered = (
            None
            if self.registered is None
            else {name: list(ids) for name, ids in sorted(self.registered.items())}
        )
        data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
        return gotext.to_json({"Data": data, "Checksum": self.checksum()})


def decode(blob: bytes) -> DeviceCheckpoint:
    """Return the checkpoint in `blob`.

    Raises:
        DecodeError: the blob has another form.
        CorruptCheckpointError: the checksum is wrong.
    """
    content = gotext.from_json(blob)
    data = gotext.field(content, "Data", dict, "Data", {}) or {}
    entries = data.get("PodDeviceEntries", [])
    path = "Data.checkpointData"
    registered = gotext.field(data, "RegisteredDevices", dict, "checkpointData", {})
    checkpoint = DeviceCheckpoint(
        entries=None
        if entries is None
        else tuple(
            _entry(entry) for entry in gotext.items(entries, dict, f"{path}.PodDeviceEntries")
        ),
        registered=None
        if registered is None
        else {
            name: gotext.items(ids, str, f"{path}.RegisteredDevices")
            for name, ids in registered.items()
        },
    )
    stored = gotext.field(content, "Checksum", int, "Data", 0)
    if stored != checkpoint.checksum():
        raise CorruptCheckpointError(stored, checkpoint.checksum())
    return checkpoint


def _entry(entry: Json) -> DeviceEntry:
    place = "PodDevicesEntry"
    devices = gotext.field(entry, "DeviceIDs", dict, place, {}) or {}
    response = entry.get("AllocResp")
    try:
        return DeviceEntry(
            pod_uid=gotext.field(entry, "PodUID", str, place, ""),
            container=gotext.field(entry, "ContainerName", str, place, ""),
            resource=gotext.field(entry, "ResourceName", str, place, ""),
            devices={
                int(node): gotext.items(ids, str, f"{place}.DeviceIDs")
                for node, ids in devices.items()
            },
            response=None if response is None else base64.b64decode(response, validate=True),
        )
    except (binascii.Error, ValueError, TypeError) as error:
        raise DecodeError(f"json: {error}") from error


def _entry_json(entry: DeviceEntry) -> Json:
    nodes = sorted(entry.devices, key=str)
    return {
        "PodUID": entry.pod_uid,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": {str(node): list(entry.devices[node]) for node in nodes},
        "AllocResp": None if entry.response is None else base64.b64encode(entry.response).decode(),
    }


def _printed(entry: DeviceEntry) -> str:
    devices = {node: gotext.sequence(ids) for node, ids in entry.devices.items()}
    return gotext.struct(
        ("PodUID", "string", entry.pod_uid),
        ("ContainerName", "string", entry.container),
        ("ResourceName", "string", entry.resource),
        ("DeviceIDs", "checkpoint.DevicesPerNUMA", gotext.mapping(devices)),
        ("AllocResp", "[]uint8", gotext.sequence(entry.response)),
    )
