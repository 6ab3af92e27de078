"""The devices of a node, and the containers that hold them, from the kubelet's PodResources. Pure.

The answers have one entry for each device and NUMA node, so a device of two nodes has two entries.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bindery.nodeagent.sockets.definitions import podresources_pb2 as api
from bindery.nodecore.devices.state import Device


class PodName(NamedTuple):
    """Namespace and name: the socket does not have the UIDs of pods."""

    namespace: str
    name: str


ContainerDevices = Mapping[str, Mapping[str, frozenset[str]]]
"""Container name -> resource -> ids of its devices."""


@dataclass(frozen=True)
class PodResources:
    """The answers of the socket.

    Attributes:
        devices: resource -> its healthy devices, and the others that containers hold.
        held: the pods whose containers hold devices.
    """

    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    held: Mapping[PodName, ContainerDevices] = field(default_factory=dict)


def read(
    allocatable: api.AllocatableResourcesResponse, listed: api.ListPodResourcesResponse
) -> PodResources:
    """Return the devices of both answers."""
    zones: dict[tuple[str, str], set[int]] = {}
    healthy = _enter(zones, allocatable.devices)
    held: dict[PodName, ContainerDevices] = {}
    for pod in listed.pod_resources:
        containers = {one.name: _by_resource(one.devices) for one in pod.containers if one.devices}
        if containers:
            held[PodName(pod.namespace, pod.name)] = containers
        for container in pod.containers:
            _enter(zones, container.devices)
    devices: dict[str, list[Device]] = {}
    for key, nodes in sorted(zones.items()):
        device = Device(key[1], tuple(sorted(nodes)) or None, healthy=key in healthy)
        devices.setdefault(key[0], []).append(device)
    return PodResources({name: tuple(each) for name, each in devices.items()}, held)


def _enter(
    zones: dict[tuple[str, str], set[int]], entries: Iterable[api.ContainerDevices]
) -> set[tuple[str, str]]:
    """Enter the NUMA nodes of devices; return the devices."""
    found = set()
    for entry in entries:
        for one in entry.device_ids:
            key = entry.resource_name, one
            found.add(key)
            zones.setdefault(key, set()).update(node.ID for node in entry.topology.nodes)
    return found


def _by_resource(entries: Iterable[api.ContainerDevices]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for entry in entries:
        ids = found.get(entry.resource_name, frozenset())
        found[entry.resource_name] = ids | frozenset(entry.device_ids)
    return found
