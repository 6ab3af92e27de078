"""The GPUs of a node in the form of ResourceSlices (`resource.k8s.io/v1`). Pure.

A GPU that is shared may be allocated several times, with a consumed part of its memory and cores
(KEP-5075); a GPU in MIG mode is one device for each of its instances.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bindery.nodeagent.devices.hamiregister import Sharing
from bindery.nodeagent.devices.inventory import NO_NUMA_NODE, MigSlice, NodeGpu

_MOST_DEVICES: Final = 64
"""The API server's maximum for a slice whose devices have taints."""
_ALL_CORES: Final = 100
_MOST_TEXT: Final = 64
"""The API server's maximum length of an attribute."""
UNHEALTHY_TAINT: Final = "scheduling.bindery.dev/unhealthy"


@dataclass(frozen=True)
class SlicePool:
    """What publishes the devices: the driver, and the generation of its pool, which is the node."""

    driver: str
    node: str
    generation: int = 1


def slices(gpus: Sequence[NodeGpu], sharing: Sharing, pool: SlicePool) -> list[dict[str, Any]]:
    """Return the ResourceSlices of a node; none without GPUs."""
    devices = [device for gpu in gpus for device in _devices(gpu, sharing)]
    parts = [devices[at : at + _MOST_DEVICES] for at in range(0, len(devices), _MOST_DEVICES)]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": f"{pool.node}-{pool.driver}-"},
            "spec": {
                "driver": pool.driver,
                "nodeName": pool.node,
                "pool": {
                    "name": pool.node,
                    "generation": pool.generation,
                    "resourceSliceCount": len(parts),
                },
                "devices": part,
            },
        }
        for part in parts
    ]


def _devices(gpu: NodeGpu, sharing: Sharing) -> Iterator[dict[str, Any]]:
    name = f"gpu-{gpu.index}"
    if gpu.is_mig:
        yield from (_mig_device(gpu, each, f"{name}-mig-{_slug(each)}") for each in gpu.mig_slices)
        return
    yield {
        "name": name,
        "attributes": _attributes(gpu, "gpu", gpu.uuid),
        "capacity": {
            "memory": _consumable(sharing.memory_mib(gpu), "Mi"),
            "cores": _consumable(_ALL_CORES, ""),
        },
        "allowMultipleAllocations": True,
        **_taints(gpu),
    }


def _mig_device(gpu: NodeGpu, mig: MigSlice, name: str) -> dict[str, Any]:
    attributes = _attributes(gpu, "mig", mig.uuid)
    attributes["parentUUID"] = {"string": gpu.uuid[:_MOST_TEXT]}
    attributes["profile"] = {"string": mig.profile[:_MOST_TEXT]}
    capacity = {"memory": {"value": f"{mig.memory_mib}Mi"}}
    return {"name": name, "attributes": attributes, "capacity": capacity, **_taints(gpu)}


def _attributes(gpu: NodeGpu, kind: str, uuid: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": {"string": kind},
        "uuid": {"string": uuid[:_MOST_TEXT]},
        "index": {"int": gpu.index},
        "productName": {"string": gpu.model[:_MOST_TEXT]},
    }
    if gpu.numa_node != NO_NUMA_NODE:
        found["numaNode"] = {"int": gpu.numa_node}
    if gpu.pci_address:
        found["resource.kubernetes.io/pciBusID"] = {"string": gpu.pci_address}
    return found


def _consumable(amount: int, unit: str) -> dict[str, Any]:
    """Return a capacity of which a claim takes a part, and all of it if it names none."""
    return {
        "value": f"{amount}{unit}",
        "requestPolicy": {
            "default": f"{amount}{unit}",
            "validRange": {"min": f"1{unit}", "max": f"{amount}{unit}", "step": f"1{unit}"},
        },
    }


def _taints(gpu: NodeGpu) -> dict[str, Any]:
    if gpu.is_healthy:
        return {}
    return {"taints": [{"key": UNHEALTHY_TAINT, "effect": "NoSchedule"}]}


def _slug(mig: MigSlice) -> str:
    """Return profile and place of an instance as part of a DNS label."""
    profile = re.sub(r"[^a-z0-9]+", "-", mig.profile.lower()).strip("-")
    return f"{profile}-{mig.placement.start}"
