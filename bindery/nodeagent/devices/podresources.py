"""Which containers have which devices, by the kubelet's PodResources API (`k8s.io/kubelet`, v1).

It knows only identifiers: no models, no memory, and not the order of the GPUs, so it is no source
of devices. A share has the identifier UUID-NUMBER.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from bindery.nodeagent.devices.inventory import DevicesUnreadableError, PodKey
from bindery.nodeagent.sockets import podresources as calls
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api
from bindery.nodeagent.sockets.services import CallError


@dataclass(frozen=True)
class DeviceHolders:
    """The kubelet's view of who has the devices of one resource."""

    socket: Path
    resource: str

    async def holders(self) -> Mapping[PodKey, Mapping[str, tuple[str, ...]]]:
        """Return for each pod of the node: its containers with devices -> the identifiers.

        Raises:
            DevicesUnreadableError: the kubelet does not answer.
        """
        try:
            found = await calls.listed(self.socket)
        except CallError as error:
            raise DevicesUnreadableError(f"PodResources: {error}") from error
        return {
            (pod.namespace, pod.name): dict(self._containers(pod)) for pod in found.pod_resources
        }

    def _containers(self, pod: api.PodResources) -> dict[str, tuple[str, ...]]:
        held: dict[str, tuple[str, ...]] = {}
        for container in pod.containers:
            identifiers = [
                each
                for devices in container.devices
                if devices.resource_name == self.resource
                for each in devices.device_ids
            ]
            if identifiers:
                held[container.name] = tuple(sorted(identifiers))
        return held


def uuid_of(identifier: str, known: Container[str]) -> str:
    """Return the device of `known` that the kubelet's identifier of a device or share means.

    An identifier that means none of them is returned as it is.
    """
    stem = identifier.rpartition("-")[0]
    return stem if identifier not in known and stem in known else identifier
