"""The resources of this node's pods: admission, CPUs and memory, devices of plugins, and claims.

Decisions, plugins and drivers are behind `kubeletside.node`; each pod waits only for its own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from bindery.kube.objects.watched import Node
from bindery.nodeagent import metrics
from bindery.nodeagent.admission import container_id
from bindery.nodeagent.candidates import (
    allocatable_of,
    candidate_of,
    core_pod,
    in_order_of_restoration,
)
from bindery.nodeagent.containers.errors import CREATE_CONFIG, PRE_START, ClaimsError, StartError
from bindery.nodeagent.containers.podspec import RunContainer, RunPod
from bindery.nodeagent.containers.statusresources import DeviceHealths
from bindery.nodeagent.hardware import MachineSettings
from bindery.nodeagent.kubelets import NOT_STARTED
from bindery.nodeagent.kubeletside.node import NodeSockets
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodecore.admission.facts import Candidate
from bindery.nodecore.admission.result import Admission
from bindery.nodecore.claims.facts import ClaimError, ClaimingPod
from bindery.nodecore.claims.health import Health
from bindery.nodecore.container_manager import ContainerManager
from bindery.nodecore.containers import Ref
from bindery.nodecore.devices.options import RunOptions
from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.lifecycle import CpusetConfig
from bindery.nodecore.pods import Container, Pod

_NONE: Final = "0"
"""The amount of a resource whose plugin is gone for long; others see that it was there."""


class NodeResources:
    """The resources of `node`; call `start`, and `open` before the first pod is admitted.

    `node_object` returns the Node object. `complain` is called with a sentence about lost records,
    `zones_changed` when pods hold other resources than before. Implements
    `topologyreport.Reported`.
    """

    def __init__(
        self,
        node: ManagedNode,
        sockets: NodeSockets,
        node_object: Callable[[], Node],
        complain: Callable[[str], None],
        zones_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.node, self._sockets = node, sockets
        self._node_object, self._complain = node_object, complain
        self._zones_changed = zones_changed
        self._known: set[str] = set()
        self._admitted: set[str] = set()
        self.failure: str | None = None
        """Why the node cannot be started, in the kubelet's words."""
        self.is_open = False
        """Whether pods can be admitted."""

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.name

    @property
    def machine(self) -> MachineSettings:
        """Hardware and settings, with the devices of plugins as they are now."""
        found = self.manager.devices.state.devices
        return replace(
            self.node.machine,
            devices={name: tuple(devices.values()) for name, devices in found.items()},
        )

    def admitted(self) -> Iterable[Pod]:
        """Return the pods that have not ended, for reports."""
        return self._sockets.pods()

    @property
    def manager(self) -> ContainerManager:
        """The decisions about cgroups, CPUs and memory."""
        return self._sockets.manager

    def start(self, running: Iterable[Ref]) -> None:
        """Restore the checkpoints, or set `failure`. `running`: the containers that run already."""
        try:
            lost = self._sockets.start({container_id(*one): one for one in running})
        except (NodeCoreError, OSError) as error:
            self.failure = f"{NOT_STARTED}: {error}"
            return
        if lost is not None:
            self._complain(lost)

    def open(self, pods: Iterable[RunPod]) -> None:
        """Admit the pods that are on the node when the agent starts, running ones first.

        It waits for no plugin: each pod does, in `admit`.
        """
        running, others = in_order_of_restoration(pods, self._sockets.is_recorded)
        for pod in running:
            self._sockets.begin(*self._asking(pod))
        self._sockets.ready()
        for pod in others:
            self._sockets.begin(*self._asking(pod))
        self.is_open = True
        self._zones_changed()

    async def admit(self, pod: RunPod) -> Admission:
        """Return whether `pod` may run, once its plugins have answered; the answer is final."""
        answer = await self._sockets.admit(*self._asking(pod))
        if not answer.admit:
            metrics.REFUSALS.labels(answer.reason).inc()
        elif pod.metadata.uid not in self._admitted:
            self._admitted.add(pod.metadata.uid)
            self._zones_changed()
        return answer

    async def prepare(self, pod: RunPod) -> None:
        """Prepare the claims of `pod` before its sandbox is made.

        Raises:
            ClaimsError: a claim may not be used, or its driver fails; try again.
        """
        claiming = claims_of(pod)
        if claiming is None:
            return
        try:
            await self._sockets.prepare(claiming)
        except ClaimError as error:
            raise ClaimsError(str(error)) from error

    async def unprepare(self, pod: RunPod) -> None:
        """Unprepare the claims of `pod`, whose containers have ended.

        Raises:
            ClaimsError: a driver fails; try again.
        """
        claiming = claims_of(pod)
        if claiming is None or not self.has_claims(claiming.uid):
            return  # never prepared: its claims may not even exist
        try:
            await self._sockets.unprepare(claiming)
        except ClaimError as error:
            raise ClaimsError(str(error)) from error

    def has_claims(self, uid: str) -> bool:
        """Return whether claims of the pod `uid` have still to be unprepared."""
        claims = self.manager.claims
        return claims is not None and any(
            uid in one.state.pod_uids for one in claims.claims.values()
        )

    async def options(self, pod: RunPod, container: RunContainer) -> RunOptions:
        """Return what devices and claims add to a container that is about to start.

        Raises:
            StartError: a plugin fails, the devices are not there, or a claim is not prepared.
        """
        try:
            return await self._sockets.options(*_found(pod, container.name))
        except NodeCoreError as error:
            raise StartError(CREATE_CONFIG, str(error)) from error

    def device_health(self, pod: RunPod) -> dict[str, DeviceHealths]:
        """Return the health of the devices of each container: of plugins, and of claims."""
        uid, devices, claiming = pod.metadata.uid, self.manager.devices, claims_of(pod)
        found: dict[str, DeviceHealths] = {}
        for one in pod.spec.containers:
            of_plugins = {
                resource: {name: _health(is_healthy) for name, is_healthy in listed.items()}
                for resource, listed in devices.health_of(uid, one.name).items()
            }
            of_claims = self._sockets.health_of_claims(claiming, one.name) if claiming else {}
            found[one.name] = {**of_plugins, **of_claims}
        return found

    def cpuset(self, pod: RunPod, name: str) -> tuple[CpusetConfig, bool]:
        """Return the CPUs and NUMA nodes of a container, and whether the CPUs are its own."""
        core, container = _found(pod, name)
        is_own = self.manager.container_has_exclusive_cpus(core, container)
        return self.manager.lifecycle.pre_create(core, container), is_own

    def created(self, pod: RunPod, name: str) -> None:
        """Record that a container has been created: init containers before it have ended.

        Raises:
            StartError: a checkpoint cannot be written.
        """
        core, container = _found(pod, name)
        try:
            self.manager.lifecycle.pre_start(core, container, container_id(core.uid, name))
        except OSError as error:
            raise StartError(PRE_START, str(error)) from error

    def release(self, uid: str) -> None:
        """Release what the ended pod `uid` holds."""
        try:
            self._sockets.release(uid)
        except OSError as error:
            # The next release or admission writes the checkpoint.
            self._complain(f"a checkpoint cannot be written: {error}")
        if uid in self._admitted:
            self._admitted.remove(uid)
            self._zones_changed()

    def described(self) -> ManagedNode:
        """Return the node with the resources of device plugins, as its status shows them now."""
        found = self._sockets.status().devices
        self._known |= found.capacity.keys()
        gone = dict.fromkeys(self._known, _NONE)
        return replace(
            self.node,
            resources={**self.node.resources, **gone, **_texts(found.capacity)},
            allocatable={**self.node.allocatable, **gone, **_texts(found.allocatable)},
        )

    def _asking(self, pod: RunPod) -> tuple[Candidate, Mapping[str, int], ClaimingPod | None]:
        seen = self._node_object()
        # The amounts from plugins are newer than those of the node's object.
        devices = self._sockets.status().devices.allocatable
        allocatable = {**allocatable_of(self.node, seen), **devices}
        return candidate_of(pod, seen), allocatable, claims_of(pod)


def _health(is_healthy: bool) -> str:
    return (Health.HEALTHY if is_healthy else Health.UNHEALTHY).value


def claims_of(pod: RunPod) -> ClaimingPod | None:
    """Return the claims of a pod, None if it has none."""
    if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
        return None
    return ClaimingPod.from_manifest(msgspec.to_builtins(pod))


def _found(pod: RunPod, name: str) -> tuple[Pod, Container]:
    core = core_pod(pod)
    return core, next(one for one in core.all_containers if one.name == name)


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
