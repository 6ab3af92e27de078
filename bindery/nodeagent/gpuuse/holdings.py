"""The GPUs of each running pod of this node. Pure.

HAMi's annotations have shares, which the kubelet may have under other identifiers. The kubelet
reports whole GPUs and prepared claims. A pod with a share of a reservation pod's GPU has its group.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from bindery.api import gpushare, times
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import GPU_INDEXES_ANNOTATION, GPUS_IDLE_SINCE_ANNOTATION
from bindery.nodeagent.devices.inventory import NodeGpu
from bindery.nodeagent.devices.podresources import uuid_of
from bindery.nodeagent.gpuclaims.offers import device_name
from bindery.nodeagent.gpuclaims.slices import DRIVER
from bindery.nodeagent.gpuuse.tracker import GpuUser
from bindery.nodeagent.shares.pods import PodKey, SharingPod, slots_of
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api

_RUNNING = "Running"


def users(
    pods: Iterable[SharingPod],
    node: str,
    gpus: Sequence[NodeGpu],
    listed: api.ListPodResourcesResponse,
) -> list[tuple[SharingPod, GpuUser]]:
    """Return the running pods of `node` that have GPUs; `listed`: by the kubelet."""
    running = [pod for pod in pods if _runs(pod, node)]
    by_kubelet = _held(gpus, listed)
    own = {pod.key: _own(pod, node, gpus, by_kubelet) for pod in running}
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
        held = frozenset(own[pod.key].union(*shared))
        if held:
            text = pod.metadata.annotations.get(GPUS_IDLE_SINCE_ANNOTATION, "")
            found.append((pod, GpuUser(pod.metadata.uid, held, text, times.seconds(text))))
    return found


def _runs(pod: SharingPod, node: str) -> bool:
    is_deleted = pod.metadata.deletion_timestamp is not None
    return pod.spec.node_name == node and pod.status.phase == _RUNNING and not is_deleted


def _reserves(pod: SharingPod) -> bool:
    return gpushare.is_reservation(pod.metadata.namespace, pod.metadata.labels)


def _own(
    pod: SharingPod, node: str, gpus: Sequence[NodeGpu], held: Mapping[PodKey, set[str]]
) -> set[str]:
    """Return the GPUs of a pod, without those of its groups."""
    try:
        slots = slots_of(pod, node)
    except HamiFormatError:
        slots = ()
    return (
        {each.device for slot in slots for each in slot}
        or held.get(pod.key, set())
        or set(_indexed(pod, gpus))
    )


def _indexed(pod: SharingPod, gpus: Sequence[NodeGpu]) -> Iterator[str]:
    text = pod.metadata.annotations.get(GPU_INDEXES_ANNOTATION, "")
    uuids = {str(gpu.index): gpu.uuid for gpu in gpus}
    yield from (uuids.get(index, index) for index in text.split(",") if index)


def _held(
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
