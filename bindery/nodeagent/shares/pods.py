"""The pods of this node, and the shares of GPUs that their containers wait for or hold. Pure.

Read from the annotations that the binder, or HAMi's scheduler, has written. The binder's record
has priority over HAMi's own annotations, which the pod's owner may have rewritten.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bindery.api.hami import assignment, names, poddevices
from bindery.api.hami.errors import HamiFormatError, integer
from bindery.api.hami.names import BindPhase
from bindery.api.hami.poddevices import Slot, Slots
from bindery.api.hami.vendortable import NVIDIA, VENDORS
from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.podspec import ResourceRequirements
from bindery.kube.objects.resources import PODS
from bindery.nodeagent.devices.inventory import PodKey
from bindery.nodeagent.pod_objects import AgentPod, NodeContainer


class SharingPod(AgentPod, frozen=True, rename="camel", kw_only=True, gc=False):
    """A pod of this node."""

    @property
    def key(self) -> PodKey:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def containers(self) -> tuple[NodeContainer, ...]:
        """All containers, init containers first."""
        return (*(self.spec.init_containers or ()), *self.spec.containers)

    @property
    def passing(self) -> frozenset[int]:
        """The init containers that end before the others begin."""
        given = self.spec.init_containers or ()
        return frozenset(i for i, each in enumerate(given) if each.restart_policy != "Always")

    @property
    def counts(self) -> list[int]:
        """The number of devices of each container."""
        return [count_of(container) for container in self.containers]

    @property
    def has_ended(self) -> bool:
        """Whether the pod's containers have ended for good."""
        return self.status.phase in ENDED_POD_PHASES

    @property
    def bind_phase(self) -> str:
        """HAMi's phase."""
        return self.metadata.annotations.get(names.BIND_PHASE, "")


SHARING_PODS: Final = PODS.decoded_as(SharingPod, held=lambda pod, _: pod)


@dataclass(frozen=True)
class ContainerTurn:
    """The next container of a pod that waits for its devices."""

    pod: SharingPod
    index: int
    """Of the container, init containers first."""
    devices: Slot

    @property
    def container(self) -> NodeContainer:
        """The container."""
        return self.pod.containers[self.index]

    @property
    def since(self) -> str:
        """Time of the binding, for the order among equals."""
        return self.pod.metadata.annotations.get(names.BIND_TIME, "").rjust(20, "0")


def count_of(container: NodeContainer) -> int:
    """Return the number of a container's devices.

    0 if it is unreadable, as then the API server refuses the pod.
    """
    given = container.resources or ResourceRequirements()
    amounts = {**(given.requests or {}), **(given.limits or {})}
    try:
        return integer(amounts.get(NVIDIA.count_resource, "0"), NVIDIA.count_resource)
    except HamiFormatError:
        return 0


def slots_of(pod: SharingPod, node: str) -> Slots:
    """Return the devices of each container of `pod` on `node`; empty for a pod without shares.

    Raises:
        HamiFormatError: the annotations cannot be read, or do not fit the containers.
    """
    annotations = pod.metadata.annotations
    recorded = assignment.read_record(annotations, pod.metadata.uid)
    if recorded is not None:
        at, found = recorded
        slots = found.devices.get(NVIDIA.word, ()) if at == node else ()
    else:
        text = annotations.get(NVIDIA.allocated_key) or annotations.get(NVIDIA.to_allocate_key, "")
        is_here = annotations.get(names.ASSIGNED_NODE) == node
        slots = poddevices.decode(text) if is_here else ()
    return poddevices.align(slots, pod.counts) if any(slots) else ()


def left_to_allocate(pod: SharingPod) -> int:
    """Return how many containers have not got their devices, by HAMi's annotation.

    Raises:
        HamiFormatError: the annotation cannot be read.
    """
    text = pod.metadata.annotations.get(NVIDIA.to_allocate_key, "")
    return sum(bool(slot) for slot in poddevices.decode(text))


def other_vendors_wait(pod: SharingPod) -> bool:
    """Return whether the pod waits for devices of other vendors' plugins."""
    annotations = pod.metadata.annotations
    texts = (annotations.get(each.to_allocate_key, "") for each in VENDORS if each is not NVIDIA)
    return any("," in text for text in texts)


def next_turn(
    pod: SharingPod, node: str, held: Mapping[PodKey, Mapping[str, object]]
) -> ContainerTurn | None:
    """Return the container of `pod` to which the kubelet's next call belongs; None if no one waits.

    The kubelet allocates in the order of the containers. `held` has the containers with devices of
    pods that the kubelet reports, and decides for these: after a restart, the kubelet may have
    forgotten a call that was answered. For other pods, HAMi's annotation decides.

    Raises:
        HamiFormatError: the annotations cannot be read, or do not fit the containers.
    """
    if pod.spec.node_name != node or pod.has_ended or pod.status.phase == "Running":
        return None
    if pod.bind_phase not in (BindPhase.ALLOCATING, BindPhase.SUCCESS):
        return None
    slots = slots_of(pod, node)
    asking = [index for index, slot in enumerate(slots) if slot]
    if pod.key in held:
        waiting = [i for i in asking if pod.containers[i].name not in held[pod.key]]
    else:
        left = left_to_allocate(pod)
        if left > len(asking):
            raise HamiFormatError(f"{left} slots are left for {len(asking)} containers")
        waiting = asking[len(asking) - left :]
    return ContainerTurn(pod, waiting[0], slots[waiting[0]]) if waiting else None
