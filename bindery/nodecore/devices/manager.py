"""The device manager: registered plugins, allocation, capacity, and its checkpoint.

An allocation has three parts. `allocate` plans: it chooses devices and reserves them, so that no
other pod gets them. The caller makes the open `calls` to the plugins, each with a deadline.
`record` takes the answers; `give_back` ends the reservations of a pod whose calls have failed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bindery.nodecore.checkpoints import devices as files
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.devices import hints
from bindery.nodecore.devices.allocation import PluginDeviceRequest, devices_to_allocate
from bindery.nodecore.devices.calls import (
    NO_OPTIONS,
    AllocateCall,
    PluginOptions,
    PreferenceCall,
    PreStartCall,
)
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


@dataclass
class Endpoint:
    """A plugin that has registered; without options, one that is known from the checkpoint."""

    options: PluginOptions | None
    stopped_at_s: float | None = None


@dataclass
class Preferences:
    """The preferences of plugins for a pod that is being admitted.

    Attributes:
        question: the first preference that the last plan lacked.
        answers: container and resource -> the preferred ids.
    """

    question: PreferenceCall | None = None
    answers: dict[tuple[str, str], Ids] = field(default_factory=dict)


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
        self._preferences: dict[str, Preferences] = {}
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

    def register(self, resource: str, options: PluginOptions = NO_OPTIONS) -> None:
        """Take a plugin for a resource, in place of an older one."""
        self._endpoints[resource] = Endpoint(options)

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
        """Reserve the devices of the container; raises AllocationError.

        Afterwards ask for `question` and `calls`.
        """
        if self._reusable[0] != pod.uid:
            self._reusable = (pod.uid, {})
        reusable = self._reusable[1]
        for resource, count in sorted(container.limits.items()):
            if resource not in container.claimed and self._state.is_known(resource):
                self._reserve(pod, container, resource, count)
        for resource, held in self._state.held.get(pod.uid, {}).get(container.name, {}).items():
            present = reusable.get(resource, NONE)
            is_init = pod.is_regular_init(container)
            reusable[resource] = present | held.ids if is_init else present - held.ids

    def question(self, pod_uid: str) -> PreferenceCall | None:
        """Return the first preference that the plan of a pod lacks, None if it lacks none.

        Report the plugin's answer with `prefer`, then give the reservations back and plan again.
        """
        found = self._preferences.get(pod_uid)
        return None if found is None else found.question

    def prefer(self, call: PreferenceCall, ids: Iterable[str]) -> None:
        """Record the devices that a plugin prefers, for the next plan of the pod."""
        found = self._preferences.setdefault(call.pod_uid, Preferences())
        found.question = None
        found.answers[call.container, call.resource] = frozenset(ids)

    def calls(self, pod_uid: str) -> list[AllocateCall]:
        """Return the calls for the reservations of a pod, in the order of its containers."""
        return [
            AllocateCall(pod_uid, container, resource, held.ids)
            for container, inner in self._state.held.get(pod_uid, {}).items()
            for resource, held in inner.items()
            if held.response is None
        ]

    def record(self, answers: Mapping[AllocateCall, bytes | None]) -> None:
        """Record plugins' answers, as protobuf bytes, and write the checkpoint.

        An answer for a reservation that has ended meanwhile changes nothing.

        Raises:
            AllocationError: a plugin has answered without a container.
        """
        before = self._state
        for call, response in answers.items():
            self._preferences.pop(call.pod_uid, None)
            held = self._state.held.get(call.pod_uid, {}).get(call.container, {}).get(call.resource)
            if response is None or held is None or held.response is not None:
                continue
            if held.ids == call.ids:
                self._state = self._state.with_held(
                    call.pod_uid, call.container, call.resource, replace(held, response=response)
                )
        if self._state != before:
            self._write()
        if None in answers.values():
            raise AllocationError("no containers return in allocation response")

    def give_back(self, pod_uid: str) -> None:
        """End the reservations of a pod; it keeps the devices for which plugins have answered."""
        self._state = self._state.without_reservations(pod_uid)
        if self._reusable[0] == pod_uid:
            self._reusable = ("", {})

    def lacks(self, pod: Pod, container: Container) -> bool:
        """Return whether devices of a container are lost, as after a restart without a checkpoint.

        They are allocated once more before the container starts.
        """
        held = self.devices_of(pod.uid, container.name)
        return any(resource not in held for resource in self._wanted(container))

    def pre_start_calls(self, pod: Pod, container: Container) -> list[PreStartCall]:
        """Return the calls before a start of the container; raises AllocationError."""
        held = self.devices_of(pod.uid, container.name)
        calls = []
        for resource in self._wanted(container):
            endpoint = self._endpoints.get(resource)
            if endpoint is None:
                raise AllocationError(
                    f"endpoint not found in cache for a registered resource: {resource}"
                )
            if endpoint.options is None or not endpoint.options.pre_start:
                continue
            if resource not in held:
                raise AllocationError(
                    f"no devices found allocated in local cache for pod {pod.uid}, container "
                    f"{container.name}, resource {resource}"
                )
            calls.append(PreStartCall(pod.uid, container.name, resource, held[resource].ids))
        return calls

    def devices_of(self, pod_uid: str, container: str) -> dict[str, Held]:
        """Return resource -> the devices that a container holds, without mere reservations."""
        inner = self._state.held.get(pod_uid, {}).get(container, {})
        return {name: held for name, held in inner.items() if held.response is not None}

    def health_of(self, pod_uid: str, container: str) -> dict[str, dict[str, bool]]:
        """Return resource -> id of a device that a container holds -> whether it is healthy.

        A device that its plugin no longer lists counts as healthy, as in the kubelet.
        """
        return {
            name: {one: known[one].healthy if one in known else True for one in sorted(held.ids)}
            for name, held in self.devices_of(pod_uid, container).items()
            for known in (self._state.devices.get(name, {}),)
        }

    def run_options(
        self, pod: Pod, container: Container, parse: Callable[[bytes], RunOptions]
    ) -> RunOptions:
        """Return what the plugins' answers add to a container; `parse` reads an answer."""
        held = self.devices_of(pod.uid, container.name)
        answers = [held[name].response for name in self._wanted(container) if name in held]
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
            active = {pod.uid for pod in self._node.active_pods()}
            self._state = self._state.only_pods(active)
            self._preferences = {
                uid: found for uid, found in self._preferences.items() if uid in active
            }

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

    def _wanted(self, container: Container) -> list[str]:
        """Return the resources of plugins that a container asks for."""
        return [
            resource
            for resource, count in sorted(container.limits.items())
            if count and resource not in container.claimed and self._state.is_known(resource)
        ]

    def _reserve(self, pod: Pod, container: Container, resource: str, count: int) -> None:
        self.remove_stale_state()
        endpoint = self._endpoints.get(resource)
        options = endpoint.options if endpoint is not None else None
        request = PluginDeviceRequest(
            pod.uid,
            container.name,
            resource,
            count,
            self._affinity.affinity(pod.uid, container.name).mask,
            self._reusable[1].get(resource, NONE),
        )

        def preferred(available: Ids, included: Ids, size: int) -> Iterable[str]:
            found = self._preferences.setdefault(pod.uid, Preferences())
            key = container.name, resource
            if key not in found.answers and found.question is None:
                found.question = PreferenceCall(pod.uid, *key, available, included, size)
            return found.answers.get(key, NONE)

        is_running = not self._node.sources_ready() and (pod.uid, container.name) in self._running
        ids = devices_to_allocate(
            self._state,
            request,
            preferred if options is not None and options.prefers else None,
            is_running=is_running,
        )
        if not ids:
            return
        if options is None:
            raise AllocationError(f"unknown Device Plugin {resource}")
        held = Held(by_node(self._state.devices.get(resource, {}), ids))
        self._state = self._state.with_held(pod.uid, container.name, resource, held)

    def _is_gone(self, resource: str, now_s: float) -> bool:
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            return True
        return endpoint.stopped_at_s is not None and now_s - endpoint.stopped_at_s > GRACE_PERIOD_S

    def _write(self) -> None:
        self._checkpoints.create(files.FILE, to_checkpoint(self._state).encode())
