"""The GPUs of each running pod of this node. Pure.

HAMi's annotations have shares, which the kubelet may have under other identifiers. The kubelet
reports whole GPUs and prepared claims. The source of the use may know the MIG instances of pods. A
pod with a share of a reservation pod's GPU has its group.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bindery.api import gpushare, times
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import GPU_INDEXES_ANNOTATION, GPUS_IDLE_SINCE_ANNOTATION
from bindery.nodeagent.devices.inventory import NodeGpu, PodKey
from bindery.nodeagent.devices.podresources import uuid_of
from bindery.nodeagent.gpuclaims.offers import device_name
from bindery.nodeagent.gpuclaims.slices import DRIVER
from bindery.nodeagent.gpuuse.tracker import GpuUser
from bindery.nodeagent.shares.pods import SharingPod, slots_of
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api

_RUNNING = "Running"


@dataclass(frozen=True)
class HeldGpus:
    """The GPUs of the node, and what is known of their pods.

    Attributes:
        listed: by the kubelet.
        measured: pod -> the devices whose use a source knows as that of the pod.
    """

    gpus: Sequence[NodeGpu]
    listed: api.ListPodResourcesResponse
    measured: Mapping[PodKey, frozenset[str]] = field(default_factory=dict)


def users(
    pods: Iterable[SharingPod], node: str, held: HeldGpus
) -> list[tuple[SharingPod, GpuUser]]:
    """Return the running pods of `node` that have GPUs."""
    running = [pod for pod in pods if _runs(pod, node)]
    by_kubelet = _by_kubelet(held.gpus, held.listed)
    own = {pod.key: _own(pod, node, held, by_kubelet.get(pod.key, set())) for pod in running}
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for pod in running:
        if _reserves(pod):
            for group in gpushare.groups(pod.metadata.labels):
                groups[group] |= own[pod.key]
    found = []
    for pod in running:
        if _reserves(pod):
            continue
        # What is not found stays as a name that no source has: its use is unknown.
        shared = [groups[group] or {group} for group in gpushare.groups(pod.metadata.labels)]
        gpus = frozenset(own[pod.key].union(*shared))
        if gpus:
            text = pod.metadata.annotations.get(GPUS_IDLE_SINCE_ANNOTATION, "")
            found.append((pod, GpuUser(pod.metadata.uid, gpus, text, times.seconds(text))))
    return found


def _runs(pod: SharingPod, node: str) -> bool:
    is_deleted = pod.metadata.deletion_timestamp is not None
    return pod.spec.node_name == node and pod.status.phase == _RUNNING and not is_deleted


def _reserves(pod: SharingPod) -> bool:
    return gpushare.is_reservation(pod.metadata.namespace, pod.metadata.labels)


def _own(pod: SharingPod, node: str, held: HeldGpus, by_kubelet: set[str]) -> set[str]:
    """Return the GPUs of a pod, without those of its groups; `by_kubelet`: by the kubelet."""
    try:
        slots = slots_of(pod, node)
    except HamiFormatError:
        slots = ()
    if slots:
        return {each.device for slot in slots for each in slot}
    # The kubelet's answer is younger. It has MIG instances under names that no source of use has.
    measured = held.measured.get(pod.key)
    is_known = bool(by_kubelet) and by_kubelet <= {gpu.uuid for gpu in held.gpus}
    if measured and not is_known:
        return set(measured)
    return by_kubelet or set(_indexed(pod, held.gpus))


def _indexed(pod: SharingPod, gpus: Sequence[NodeGpu]) -> Iterator[str]:
    text = pod.metadata.annotations.get(GPU_INDEXES_ANNOTATION, "")
    uuids = {str(gpu.index): gpu.uuid for gpu in gpus}
    yield from (uuids.get(index, index) for index in text.split(",") if index)


def _by_kubelet(
    gpus: Sequence[NodeGpu], listed: api.ListPodResourcesResponse
) -> Mapping[PodKey, set[str]]:
    uuids = {gpu.uuid for gpu in gpus}
    devices = {device_name(uuid): uuid for uuid in uuids}
    found: dict[PodKey, set[str]] = {}
    for pod in listed.pod_resources:
        held: set[str] = set()
        for container in pod.containers:
            held.update(_plugged(container, uuids))
            held.update(_claimed(container, devices))
        found[pod.namespace, pod.name] = held
    return found


def _plugged(container: api.ContainerResources, uuids: Container[str]) -> Iterator[str]:
    """Yield the GPUs from device plugins; one that the source lacks too, as its use is unknown."""
    for entry in container.devices:
        for identifier in entry.device_ids:
            uuid = uuid_of(identifier, uuids)
            if uuid in uuids or entry.resource_name == NVIDIA.count_resource:
                yield uuid


def _claimed(container: api.ContainerResources, devices: Mapping[str, str]) -> Iterator[str]:
    """Yield the GPUs of prepared claims."""
    for claim in container.dynamic_resources:
        for each in claim.claim_resources:
            if each.driver_name == DRIVER:
                yield devices.get(each.device_name, each.device_name)
