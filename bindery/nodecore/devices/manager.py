"""The device manager: registered plugins, allocation, capacity, and its checkpoint."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from bindery.nodecore.checkpoints import devices as files
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.devices import hints
from bindery.nodecore.devices.allocation import PluginDeviceRequest, Preferred, devices_to_allocate
from bindery.nodecore.devices.options import RunOptions, merged
from bindery.nodecore.devices.state import (
    NONE,
    Device,
    DeviceState,
    Held,
    Ids,
    by_node,
    from_checkpoint,
    to_checkpoint,
)
from bindery.nodecore.errors import AllocationError, CheckpointError
from bindery.nodecore.node import Node, NumaAffinity
from bindery.nodecore.pods import Container, Pod
from bindery.nodecore.topology.hints import ProviderHints

GRACE_PERIOD_S: Final = 300.0
"""How long a resource stays in the capacity after its plugin has gone."""


class Plugin(Protocol):
    """The calls to a device plugin. They raise AllocationError when the plugin fails."""

    prefers: bool
    """Whether the plugin answers `preferred`."""

    def preferred(self, available: Ids, included: Ids, size: int) -> Iterable[str]:
        """Return the ids that the plugin prefers: from `available`, with all of `included`."""

    def allocate(self, ids: Ids) -> bytes | None:
        """Return the plugin's answer for a container as protobuf bytes, None without one."""


@dataclass
class Endpoint:
    """A plugin that has registered; without a plugin, one that is known from the checkpoint."""

    plugin: Plugin | None
    stopped_at_s: float | None = None


@dataclass(frozen=True)
class Capacity:
    """What the node reports of the resources of plugins.

    Attributes:
        capacity: resource -> all devices.
        allocatable: resource -> healthy devices.
        deleted: resources whose plugin has been gone for too long.
    """

    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    deleted: Sequence[str] = ()


class DeviceManager:
    """The state of the device manager; a hint provider of the topology manager."""

    def __init__(
        self,
        numa_nodes: Sequence[int],
        node: Node,
        affinity: NumaAffinity,
        checkpoints: CheckpointManager,
        clock: Callable[[], float],
    ) -> None:
        self._numa_nodes = numa_nodes
        self._node = node
        self._affinity = affinity
        self._checkpoints = checkpoints
        self._clock = clock
        self._state = DeviceState()
        self._endpoints: dict[str, Endpoint] = {}
        self._reusable: tuple[str, dict[str, Ids]] = ("", {})
        self._running: frozenset[tuple[str, str]] = frozenset()

    @property
    def state(self) -> DeviceState:
        """The devices now."""
        return self._state

    def start(self, running: Iterable[tuple[str, str]] = ()) -> CheckpointError | None:
        """Restore what containers hold; return the error if the checkpoint is unusable.

        A bad checkpoint does not stop the start: the state is empty then. `running`: pod UID and
        name of the containers that run already.
        """
        self._running = frozenset(running)
        if files.FILE not in self._checkpoints.list():
            return None
        try:
            checkpoint = files.decode(self._checkpoints.get(files.FILE))
        except CheckpointError as error:
            return error
        self._state = from_checkpoint(checkpoint)
        now = self._clock()
        self._endpoints = {name: Endpoint(None, now) for name in self._state.healthy}
        return None

    def register(self, resource: str, plugin: Plugin) -> None:
        """Take a plugin for a resource, in place of an older one."""
        self._endpoints[resource] = Endpoint(plugin)

    def update(self, resource: str, devices: Iterable[Device]) -> None:
        """Take the list of all devices of a plugin."""
        self._state = self._state.with_plugin(resource, devices)
        self._write()

    def stop(self, resource: str) -> None:
        """Mark the devices of a plugin that has gone as unhealthy."""
        endpoint = self._endpoints.get(resource)
        if endpoint is not None and endpoint.stopped_at_s is None:
            endpoint.stopped_at_s = self._clock()
        listed = self._state.devices.get(resource, {}).values()
        gone = [Device(one.id, one.numa_nodes, healthy=False) for one in listed]
        self._state = self._state.with_plugin(resource, gone)

    def capacity(self) -> Capacity:
        """Return what the node reports; resources whose plugin is gone for long are removed."""
        now = self._clock()
        deleted = [name for name in sorted(self._state.healthy) if self._is_gone(name, now)]
        for resource in deleted:
            self._endpoints.pop(resource, None)
            self._state = self._state.without_resource(resource)
        if deleted:
            self._write()
        healthy = {name: len(ids) for name, ids in sorted(self._state.healthy.items())}
        known = {name: len(self._state.devices.get(name, {})) for name in healthy}
        return Capacity(known, healthy, tuple(deleted))

    def allocate(self, pod: Pod, container: Container) -> None:
        """Give the container its devices and write the checkpoint; raises AllocationError."""
        if self._reusable[0] != pod.uid:
            self._reusable = (pod.uid, {})
        reusable = self._reusable[1]
        before = self._state
        for resource, count in sorted(container.limits.items()):
            if resource not in container.claimed and self._state.is_known(resource):
                self._allocate_resource(pod, container, resource, count)
        if self._state.held != before.held:
            self._write()
        for resource, held in self._state.held.get(pod.uid, {}).get(container.name, {}).items():
            present = reusable.get(resource, NONE)
            is_init = pod.is_regular_init(container)
            reusable[resource] = present | held.ids if is_init else present - held.ids

    def run_options(
        self, pod: Pod, container: Container, parse: Callable[[bytes], RunOptions]
    ) -> RunOptions:
        """Return what the plugins' answers add to a container.

        Devices that are lost, as after a restart without a checkpoint, are allocated once more.
        `parse` reads a plugin's answer.

        Raises:
            AllocationError: the container cannot have its devices.
        """
        wanted = [
            resource
            for resource in container.limits
            if resource not in container.claimed and self._state.is_known(resource)
        ]
        held = self._state.held.get(pod.uid, {}).get(container.name, {})
        if any(resource not in held for resource in wanted):
            self.allocate(pod, container)
            held = self._state.held.get(pod.uid, {}).get(container.name, {})
        answers = [held[resource].response for resource in sorted(wanted) if resource in held]
        return merged(parse(answer) for answer in answers if answer is not None)

    def allocate_pod(self, pod: Pod) -> None:
        """Do nothing: devices belong to containers."""

    def container_hints(self, pod: Pod, container: Container) -> ProviderHints:
        """Return on which NUMA nodes the container can have its devices."""
        self.remove_stale_state()
        reusable = self._reusable[1] if self._reusable[0] == pod.uid else {}
        return hints.container_hints(self._state, reusable, self._numa_nodes, pod, container)

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """Return on which NUMA nodes the pod can have its devices."""
        self.remove_stale_state()
        return hints.pod_hints(self._state, self._numa_nodes, pod)

    def remove_stale_state(self) -> None:
        """Release the devices of pods that are not active."""
        if self._node.sources_ready():
            self._state = self._state.only_pods(pod.uid for pod in self._node.active_pods())

    def sanitized(self, pod_uid: str, allocatable: Mapping[str, int]) -> dict[str, int]:
        """Return `allocatable` with at least what containers hold, if the pod holds devices.

        After a restart a node's capacity may not have the devices yet that its pods hold.
        """
        if pod_uid not in self._state.held:
            return dict(allocatable)
        used = {
            resource: len(self._state.in_use(resource))
            for containers in self._state.held.values()
            for inner in containers.values()
            for resource in inner
        }
        return {
            **allocatable,
            **{name: count for name, count in used.items() if allocatable.get(name, 0) < count},
        }

    def allocatable_devices(self) -> dict[str, list[Device]]:
        """Return the healthy devices of each resource."""
        return {
            resource: [self._state.devices[resource][one] for one in sorted(ids)]
            for resource, ids in sorted(self._state.healthy.items())
            if resource in self._state.devices
        }

    def should_reset_capacity(self) -> bool:
        """Return whether there is no checkpoint of an earlier device manager."""
        return not self._checkpoints.list()

    def _allocate_resource(self, pod: Pod, container: Container, resource: str, count: int) -> None:
        self.remove_stale_state()
        endpoint = self._endpoints.get(resource)
        plugin = endpoint.plugin if endpoint is not None else None
        request = PluginDeviceRequest(
            pod.uid,
            container.name,
            resource,
            count,
            self._affinity.affinity(pod.uid, container.name).mask,
            self._reusable[1].get(resource, NONE),
        )
        preferred: Preferred | None = plugin.preferred if plugin and plugin.prefers else None
        is_running = not self._node.sources_ready() and (pod.uid, container.name) in self._running
        ids = devices_to_allocate(self._state, request, preferred, is_running=is_running)
        if not ids:
            return
        if plugin is None:
            raise AllocationError(f"unknown Device Plugin {resource}")
        response = plugin.allocate(ids)
        if response is None:
            raise AllocationError("no containers return in allocation response")
        held = Held(by_node(self._state.devices.get(resource, {}), ids), response)
        self._state = self._state.with_held(pod.uid, container.name, resource, held)

    def _is_gone(self, resource: str, now_s: float) -> bool:
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            return True
        return endpoint.stopped_at_s is not None and now_s - endpoint.stopped_at_s > GRACE_PERIOD_S

    def _write(self) -> None:
        self._checkpoints.create(files.FILE, to_checkpoint(self._state).encode())
