"""Scenarios about devices that HAMi shares: its registers on nodes, resources, wishes of pods.

Called by `objects` for nodes whose devices have the key `shares`, and for the pods of such
scenarios; by `planning` for the devices of a pod. All devices are NVIDIA's; devices of other
vendors are written with `resources` and `annotations`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bindery.api.hami import assignment as assignments
from bindery.api.hami import migallocations, names, nodedevices, poddevices
from bindery.api.hami.assignment import Assignment
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.poddevices import ContainerDevice
from bindery.api.hami.vendortable import NVIDIA, VENDORS
from bindery.api.hami.wishes import DevicePolicy
from bindery.api.names import SPREAD_DEVICES_ANNOTATION
from bindery.kube.objects.watched import Node, Pod
from bindery.scenario.jobs import ContainerRequest, ScenarioPod
from bindery.scenario.nodes import ScenarioDevice, ScenarioNode
from bindery.scheduler.plugins.hami.fleet import read_node

PLUGIN: Final = "hami"
_MEMORY_MIB: Final = 16384
"""The memory of a device without the key `memory`."""
_POLICIES: Final = {
    "pack": DevicePolicy.BINPACK,
    "spread": DevicePolicy.SPREAD,
    "mutex": DevicePolicy.MUTEX,
    "numa": DevicePolicy.NUMA,
    "topology": DevicePolicy.TOPOLOGY,
}


def is_shared(node: ScenarioNode) -> bool:
    """Return whether HAMi shares the devices of `node`."""
    return any(device.shares for device in node.devices)


def with_memory(node: ScenarioNode) -> tuple[ScenarioDevice, ...]:
    """Return the devices of `node`, each with its memory."""
    default_mib = node.gpu_memory or _MEMORY_MIB
    return tuple(
        device.model_copy(update={"memory": device.memory or default_mib})
        for device in node.devices
    )


def node_annotations(node: ScenarioNode) -> dict[str, str]:
    """Return the annotations that HAMi's device plugin and the administrator write on `node`."""
    if not is_shared(node):
        return {}
    devices = [
        NodeDevice(
            id=_id(device, index),
            index=index,
            count=device.shares or 1,
            memory_mib=device.memory or _MEMORY_MIB,
            cores=100,
            type=f"NVIDIA-{device.type or node.gpu_model or 'GPU'}",
            numa=device.numa or 0,
            mode=names.DeviceModeWord.HAMI_CORE.value,
            healthy=device.healthy,
        )
        for index, device in enumerate(with_memory(node))
    ]
    found = {NVIDIA.register_key: nodedevices.encode_json(devices)}
    cordoned = [_id(d, i) for i, d in enumerate(node.devices) if d.cordoned]
    if cordoned:
        found[names.CORDONED_DEVICES] = ",".join(cordoned)
    return found


def share_count(node: ScenarioNode) -> int:
    """Return the number of GPUs that the node offers: the shares of all healthy devices."""
    return sum(device.shares or 1 for device in node.devices if device.healthy)


def resources(request: ContainerRequest) -> dict[str, str]:
    """Return the requests of a container as HAMi's resources."""
    amounts = {
        NVIDIA.memory_resource: request.gpu_memory,
        NVIDIA.percentage_resource: request.gpu_memory_percent,
        NVIDIA.cores_resource: request.gpu_cores,
    }
    found = {name: str(amount) for name, amount in amounts.items() if amount}
    count = request.gpus or (request.gpu_devices or 1 if found else 0)
    return {NVIDIA.count_resource: str(count), **found} if count else found


def pod_annotations(
    pod: ScenarioPod, devices: Sequence[ScenarioDevice], *, spread_devices: bool
) -> dict[str, str]:
    """Return the annotations of `pod`: its wishes, and the `devices` of its node that it holds."""
    selector = pod.gpu_selector
    found = {
        NVIDIA.use_ids[0]: ",".join(selector.use),
        NVIDIA.avoid_ids[0]: ",".join(selector.avoid),
        NVIDIA.use_types: ",".join(selector.types),
        NVIDIA.avoid_types: ",".join(selector.avoid_types),
        names.DEVICE_POLICY: _POLICIES[pod.gpu_policy].value if pod.gpu_policy else "",
        SPREAD_DEVICES_ANNOTATION: "true" if spread_devices else "",
    }
    if pod.node and pod.gpu:
        slot = tuple(_holding(pod, devices[int(index)], int(index)) for index in pod.gpu)
        slots = (*((),) * len(pod.init_containers), slot)
        found |= assignments.annotations(Assignment({NVIDIA.word: slots}), pod.node, 0)
    return {key: text for key, text in found.items() if text}


def recorded(pod: ScenarioPod, annotations: Mapping[str, str], uid: str) -> dict[str, str]:
    """Return `annotations` with the record of the binder, of a pod that begins on a node with
    devices; without it they count for nothing.
    """
    if not pod.node or names.DEVICES_RECORD in annotations:
        return dict(annotations)
    try:
        devices = {
            vendor.word: poddevices.decode(annotations[vendor.allocated_key])
            for vendor in VENDORS
            if vendor.allocated_key in annotations
        }
        mig = migallocations.decode(annotations.get(names.MIG_ALLOCATIONS, ""))
        node = annotations.get(names.ASSIGNED_NODE, pod.node)
        record = assignments.written(Assignment(devices, mig=mig), uid, node, 0)
    except HamiFormatError:  # scenarios may be about that
        return dict(annotations)
    found = {names.DEVICES_RECORD: record[names.DEVICES_RECORD]} if devices else {}
    return {**annotations, **found}


def holds_devices(pod: Pod) -> bool:
    """Return whether the annotations of `pod` claim devices by HAMi's protocol."""
    return names.ASSIGNED_NODE in pod.metadata.annotations


def devices_of(pod: Pod, data: Mapping[str, Any] | None, node: Node | None) -> tuple[str, ...]:
    """Return the devices of `pod` by index on its node, from the data for the binder or from the
    pod's annotations.
    """
    if data is not None:
        return tuple(str(index) for index in data["indexes"].values())
    known = read_node(node, VENDORS) if node is not None else None
    if known is None:
        return ()
    indexes = {d.id: str(d.index) for devices in known.devices.values() for d in devices}
    annotations = pod.metadata.annotations
    texts = [annotations.get(vendor.allocated_key, "") for vendor in VENDORS]
    try:
        slots = [slot for text in texts for slot in poddevices.decode(text)]
    except HamiFormatError:  # scenarios may be about that
        return ()
    uuids = dict.fromkeys(each.device for slot in slots for each in slot)
    return tuple(indexes[uuid] for uuid in uuids if uuid in indexes)


def _holding(pod: ScenarioPod, device: ScenarioDevice, index: int) -> ContainerDevice:
    whole_mib = device.memory or _MEMORY_MIB
    memory_mib = pod.gpu_memory or whole_mib * (pod.gpu_memory_percent or 100) // 100
    takes_all = not pod.gpu_memory and not pod.gpu_memory_percent
    cores = pod.gpu_cores if pod.gpu_cores is not None else 100 if takes_all else 0
    return ContainerDevice(_id(device, index), NVIDIA.word, memory_mib, cores)


def _id(device: ScenarioDevice, index: int) -> str:
    return device.id or f"dev-{index}"
