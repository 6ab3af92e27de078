"""The cluster on which planning with devices that HAMi shares is measured.

Used by `room`. It follows from the number of nodes alone, and says what a right cycle does in it.
"""

from typing import Final

import msgspec

from benchmarks.roomworlds import GPUS, Outcome, World, node, pod, queue
from bindery.api.hami import names, nodedevices
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import GPU_RESOURCE
from bindery.kube.objects.podspec import Container, ResourceRequirements
from bindery.kube.objects.watched import Node, Pod

_SHARES: Final = 10
"""Users of a GPU, at most."""
_MEMORY_MIB: Final = 81920
_PODS_OF_A_NODE: Final = 4


def parts_of_gpus(nodes: int) -> World:
    """Let four pods a node wait, each for a tenth of a GPU by memory and cores."""
    pods = _PODS_OF_A_NODE * nodes
    objects = [
        *(_with_devices(node(at), at) for at in range(nodes)),
        queue("all", nodes * GPUS),
        *(_asking(pod(f"p{at:05}", 0, queue="all")) for at in range(pods)),
    ]
    return World(objects, Outcome(evicted=0, moved=0, promised=0, bound=pods))


def _with_devices(item: Node, number: int) -> Node:
    """Return `item` as HAMi's device plugin reports it."""
    devices = [
        NodeDevice(
            id=f"GPU-{number:05}-{index}",
            index=index,
            count=_SHARES,
            memory_mib=_MEMORY_MIB,
            cores=100,
            type="NVIDIA-A100",
            numa=0,
            mode=names.DeviceModeWord.HAMI_CORE.value,
            healthy=True,
        )
        for index in range(GPUS)
    ]
    annotations = {NVIDIA.register_key: nodedevices.encode_json(devices)}
    allocatable = {**(item.status.allocatable or {}), GPU_RESOURCE: str(GPUS * _SHARES)}
    return msgspec.structs.replace(
        item,
        metadata=msgspec.structs.replace(item.metadata, annotations=annotations),
        status=msgspec.structs.replace(item.status, allocatable=allocatable),
    )


def _asking(item: Pod) -> Pod:
    part = {
        "cpu": "1",
        NVIDIA.count_resource: "1",
        NVIDIA.memory_resource: str(_MEMORY_MIB // _SHARES),
        NVIDIA.cores_resource: str(100 // _SHARES),
    }
    container = Container(resources=ResourceRequirements(requests=part, limits=part))
    return msgspec.structs.replace(
        item, spec=msgspec.structs.replace(item.spec, containers=[container])
    )
