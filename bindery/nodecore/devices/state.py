"""What the device manager knows: the devices of plugins, and what containers hold."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from bindery.nodecore.checkpoints.devices import NO_NUMA_NODE, DeviceCheckpoint, DeviceEntry

Ids = frozenset[str]
"""Device ids."""

NONE: Ids = frozenset()


@dataclass(frozen=True)
class Device:
    """A device as its plugin reports it.

    Attributes:
        numa_nodes: the NUMA nodes that it is near to; None if the plugin reports none.
        healthy: whether it can be given.
    """

    id: str
    numa_nodes: tuple[int, ...] | None = None
    healthy: bool = True


Devices = Mapping[str, Device]
"""Device id -> device, of one resource."""


@dataclass(frozen=True)
class Held:
    """The devices of one resource that a container holds.

    Attributes:
        by_node: NUMA node, or -1 for none -> device ids; a device of two nodes is at both.
        response: the plugin's answer to the allocation, as protobuf bytes; None while the devices
            are only reserved.
    """

    by_node: Mapping[int, tuple[str, ...]]
    response: bytes | None = None

    @property
    def ids(self) -> Ids:
        """The ids of the devices."""
        return frozenset(one for ids in self.by_node.values() for one in ids)


@dataclass(frozen=True)
class DeviceState:
    """Devices by resource, and what containers hold.

    Attributes:
        devices: resource -> its devices by id.
        healthy: resource -> the ids that can be given; a resource that is registered has a key.
        held: pod UID -> container name -> resource -> its devices.
    """

    devices: Mapping[str, Devices] = field(default_factory=dict)
    healthy: Mapping[str, Ids] = field(default_factory=dict)
    held: Mapping[str, Mapping[str, Mapping[str, Held]]] = field(default_factory=dict)

    def is_known(self, resource: str) -> bool:
        """Return whether a plugin has registered the resource or a container holds some of it."""
        return resource in self.healthy or bool(self.in_use(resource))

    def in_use(self, resource: str) -> Ids:
        """Return the devices of a resource that containers hold."""
        return NONE.union(
            *(
                inner[resource].ids
                for containers in self.held.values()
                for inner in containers.values()
                if resource in inner
            )
        )

    def available(self, resource: str) -> Ids:
        """Return the healthy devices of a resource that no container holds."""
        return self.healthy.get(resource, NONE) - self.in_use(resource)

    def of_container(self, pod_uid: str, container: str, resource: str) -> Ids | None:
        """Return the devices that a container holds, None if the resource is not recorded."""
        held = self.held.get(pod_uid, {}).get(container, {}).get(resource)
        return None if held is None else held.ids

    def of_pod(self, pod_uid: str, resource: str) -> Ids:
        """Return the devices that the containers of a pod hold."""
        containers = self.held.get(pod_uid, {})
        return NONE.union(
            *(self.of_container(pod_uid, one, resource) or NONE for one in containers)
        )

    def with_plugin(self, resource: str, devices: Iterable[Device]) -> "DeviceState":
        """Return the state after a plugin has listed all its devices."""
        listed = {one.id: one for one in devices}
        healthy = frozenset(one.id for one in listed.values() if one.healthy)
        return replace(
            self,
            devices={**self.devices, resource: listed},
            healthy={**self.healthy, resource: healthy},
        )

    def with_held(self, pod_uid: str, container: str, resource: str, held: Held) -> "DeviceState":
        """Return the state in which a container holds devices of a resource."""
        containers = self.held.get(pod_uid, {})
        inner = {**containers.get(container, {}), resource: held}
        return replace(self, held={**self.held, pod_uid: {**containers, container: inner}})

    def only_pods(self, pod_uids: Iterable[str]) -> "DeviceState":
        """Return the state in which only these pods hold devices."""
        kept = set(pod_uids)
        held = {uid: found for uid, found in self.held.items() if uid in kept}
        return replace(self, held=held)

    def without_reservations(self, pod_uid: str) -> "DeviceState":
        """Return the state in which a pod holds only devices for which plugins have answered."""
        found: dict[str, dict[str, Held]] = {}
        for name, inner in self.held.get(pod_uid, {}).items():
            kept = {resource: one for resource, one in inner.items() if one.response is not None}
            if kept:
                found[name] = kept
        held = {uid: containers for uid, containers in self.held.items() if uid != pod_uid}
        return replace(self, held={**held, pod_uid: found} if found else held)

    def without_resource(self, resource: str) -> "DeviceState":
        """Return the state in which no plugin has registered the resource."""
        healthy = {name: ids for name, ids in self.healthy.items() if name != resource}
        return replace(self, healthy=healthy)


def by_node(devices: Devices, ids: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Return `ids` by NUMA node; those without one under -1."""
    found: dict[int, list[str]] = {}
    for one in sorted(ids):
        device = devices.get(one)
        for node in (device.numa_nodes if device else None) or (NO_NUMA_NODE,):
            found.setdefault(node, []).append(one)
    return {node: tuple(names) for node, names in sorted(found.items())}


def to_checkpoint(state: DeviceState) -> DeviceCheckpoint:
    """Return what is written: containers whose plugin has answered, and registered resources."""
    entries = tuple(
        DeviceEntry(uid, name, resource, held.by_node, held.response)
        for uid, containers in sorted(state.held.items())
        for name, inner in sorted(containers.items())
        for resource, held in sorted(inner.items())
        if held.response is not None
    )
    return DeviceCheckpoint(
        entries or None, {name: tuple(sorted(ids)) for name, ids in state.healthy.items()}
    )


def from_checkpoint(checkpoint: DeviceCheckpoint) -> DeviceState:
    """Return the state after a restart: containers hold their devices, no device is healthy yet."""
    state = DeviceState(healthy=dict.fromkeys(checkpoint.registered or {}, NONE))
    for entry in checkpoint.entries or ():
        held = Held(entry.devices, entry.response or b"")
        state = state.with_held(entry.pod_uid, entry.container, entry.resource, held)
    return state
