"""Pods with shares of GPUs, as the device plugin sees them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bindery.api.hami import assignment as assignments
from bindery.api.hami import names, poddevices
from bindery.api.hami.assignment import Assignment
from bindery.api.hami.poddevices import ContainerDevice, Slots
from bindery.api.hami.vendortable import NVIDIA
from bindery.nodeagent.shares.pods import SharingPod

NODE = "node-1"


def device(uuid: str = "GPU-a", memory_mib: int = 1000, cores: int = 10) -> ContainerDevice:
    return ContainerDevice(uuid, NVIDIA.word, memory_mib, cores)


def pod(
    name: str,
    slots: Slots,
    *,
    is_recorded: bool = True,
    init: int = 0,
    phase: str = "Pending",
    node: str = NODE,
    annotations: Mapping[str, str | None] = {},
    containers: Sequence[Mapping[str, Any]] = (),
) -> SharingPod:
    """Return a pod to which the binder has given `slots`; the first `init` are init containers.

    `annotations`: others than the binder's; None removes one.
    """
    assignment = Assignment({NVIDIA.word: slots})
    given: dict[str, str] = assignments.written(assignment, f"uid-{name}", NODE, 1000)
    if not is_recorded:
        del given[names.DEVICES_RECORD]
    for key, value in annotations.items():
        given.pop(key, None)
        if value is not None:
            given[key] = value
    made = [
        {
            "name": f"c{index}",
            "resources": {"limits": {NVIDIA.count_resource: str(len(slot))} if slot else {}},
            **(containers[index] if index < len(containers) else {}),
        }
        for index, slot in enumerate(slots)
    ]
    body = {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": f"uid-{name}",
            "annotations": given,
        },
        "spec": {"nodeName": node, "initContainers": made[:init], "containers": made[init:]},
        "status": {"phase": phase},
    }
    return msgspec.convert(body, SharingPod)


def served(found: SharingPod, count: int = 1) -> dict[str, str | None]:
    """Return the annotations after `count` containers have got their devices."""
    text = found.metadata.annotations[NVIDIA.to_allocate_key]
    for _ in range(count):
        text = poddevices.erase_first(text)
    return {NVIDIA.to_allocate_key: text}
