"""The devices of which the kubelet's PodResources API reports the pods (`k8s.io/kubelet`, v1).

It knows identifiers and NUMA nodes, but no models and no memory. A share has the identifier
UUID-NUMBER. Used as a source of devices, and to see which containers have theirs.
"""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bindery.nodeagent.devices.inventory import NO_NUMA_NODE, DevicesUnreadableError, NodeGpu
from bindery.nodeagent.sockets import podresources as calls
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api
from bindery.nodeagent.sockets.services import CallError

_SHARE: Final = re.compile(r"(.*-[0-9a-f]{12})-[0-9]+")
"""The identifier of a share: the UUID of a device, which ends with twelve digits, and a number."""

PodKey = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class PodResourcesSource:
    """The kubelet's view of the devices of one resource."""

    socket: Path
    resource: str

    async def read(self) -> tuple[NodeGpu, ...]:
        """Return the devices that pods can get, numbered in the order of their UUIDs."""
        zones: dict[str, int] = {}
        try:
            found = await calls.allocatable(self.socket)
        except CallError as error:
            raise DevicesUnreadableError(f"PodResources: {error}") from error
        for devices in found.devices:
            if devices.resource_name == self.resource:
                nodes = devices.topology.nodes
                zone = nodes[0].ID if nodes else NO_NUMA_NODE
                zones.update((_SHARE.sub(r"\1", each), zone) for each in devices.device_ids)
        return tuple(
            NodeGpu(uuid=uuid, index=index, numa_node=zones[uuid])
            for index, uuid in enumerate(sorted(zones))
        )

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
