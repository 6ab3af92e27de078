"""The ResourceSlice of a node, and what must be written so that the API server has it. Pure.

A GPU is a device that many claims share: each takes a part of its capacities `memory` and `cores`
(KEP-5075). A MIG instance is a device that one claim gets. The pool of the node is one slice.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bindery.api.quantity import canonical
from bindery.kube.objects.devices import RESOURCE_SLICES, ResourceSlice, ResourceSliceSpec
from bindery.nodeagent.gpuclaims.offers import MIB, OfferedGpu

DRIVER: Final = "gpu.bindery.dev"
MEMORY: Final = "memory"
CORES: Final = "cores"
ALL_CORES: Final = 100
"""The capacity `cores` is a percentage of the GPU's time."""
GPU: Final = "gpu"
INSTANCE: Final = "mig"
"""Values of the attribute `type`, as NVIDIA's driver has them."""
UNHEALTHY_TAINT: Final = f"{DRIVER}/unhealthy"

_MOST_OF_TEXT = 64
"""Longest text of an attribute."""
_MOST_OF_NAME = 253
_STANDARD = "resource.kubernetes.io"

Body = Mapping[str, Any]


@dataclass(frozen=True)
class SliceChange:
    """The writes that are needed.

    Attributes:
        surplus: names of slices to delete.
        body: the slice to write; None if it is right.
        is_new: whether `body` must be created; else it replaces the slice of its version.
        generation: that of the pool.
    """

    surplus: tuple[str, ...] = ()
    body: Body | None = None
    is_new: bool = False
    generation: int = 0


def slice_name(node: str) -> str:
    """Return the name of the slice of a node."""
    name = f"{node}-{DRIVER}"
    if len(name) <= _MOST_OF_NAME:
        return name
    digest = hashlib.sha256(node.encode()).hexdigest()[:10]
    return f"{node[: _MOST_OF_NAME - len(DRIVER) - 12].rstrip('.-')}-{digest}-{DRIVER}"


def change(
    existing: Sequence[ResourceSlice],
    gpus: Sequence[OfferedGpu],
    node: str,
    node_uid: str,
    last_generation: int,
) -> SliceChange:
    """Return the writes that replace `existing`, all slices of the driver on the node.

    `last_generation`: the pool's greatest that this process has seen, as its slice may be deleted.
    """
    name = slice_name(node)
    surplus = tuple(one.metadata.name for one in existing if one.metadata.name != name or not gpus)
    last = max([last_generation, *(one.spec.pool.generation for one in existing)])
    if not gpus:
        return SliceChange(surplus, generation=last)
    present = next((one for one in existing if one.metadata.name == name), None)
    metadata: dict[str, Any] = {"name": name, "ownerReferences": [_owner(node, node_uid)]}
    if present is not None:
        wanted = _spec(gpus, node, present.spec.pool.generation)
        owners = [owner.uid for owner in present.metadata.owner_references]
        if owners == [node_uid] and msgspec.convert(wanted, ResourceSliceSpec) == present.spec:
            return SliceChange(surplus, generation=last)
        metadata["resourceVersion"] = present.metadata.resource_version
    body = {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": metadata,
        "spec": _spec(gpus, node, last + 1),
    }
    return SliceChange(surplus, body, present is None, last + 1)


def _spec(gpus: Sequence[OfferedGpu], node: str, generation: int) -> Body:
    return {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
        "devices": [device(gpu) for gpu in gpus],
    }


def device(gpu: OfferedGpu) -> Body:
    """Return the device of a GPU or a MIG instance."""
    attributes: dict[str, Any] = {
        "type": {"string": INSTANCE if gpu.is_instance else GPU},
        "uuid": {"string": gpu.uuid[:_MOST_OF_TEXT]},
        "productName": {"string": gpu.model[:_MOST_OF_TEXT]},
        "index": {"int": gpu.index},
    }
    if gpu.is_instance:
        attributes["profile"] = {"string": gpu.profile[:_MOST_OF_TEXT]}
        attributes["parentUUID"] = {"string": gpu.parent_uuid[:_MOST_OF_TEXT]}
    if gpu.numa_node is not None:
        attributes[f"{_STANDARD}/numaNode"] = {"int": gpu.numa_node}
    if gpu.pci_address:
        attributes[f"{_STANDARD}/pciBusID"] = {"string": gpu.pci_address}
    if gpu.pcie_root:
        attributes[f"{_STANDARD}/pcieRoot"] = {"string": gpu.pcie_root}
    memory = canonical(gpu.memory_mib * MIB, MEMORY)
    found: dict[str, Any] = {"name": gpu.name, "attributes": attributes}
    if gpu.is_instance:
        found["capacity"] = {MEMORY: {"value": memory}}
    else:
        capacity = {MEMORY: _capacity(memory, "1Mi"), CORES: _capacity(str(ALL_CORES), "1")}
        found |= {"capacity": capacity, "allowMultipleAllocations": True}
    if gpu.problem:
        # NoSchedule: the pods on it stay, and their owners decide.
        found["taints"] = [{"key": UNHEALTHY_TAINT, "effect": "NoSchedule"}]
    return found


def _capacity(whole: str, step: str) -> Body:
    # A claim that names no amount gets the whole: two such claims never meet on one GPU.
    policy = {"default": whole, "validRange": {"min": step, "max": whole, "step": step}}
    return {"value": whole, "requestPolicy": policy}


def _owner(node: str, uid: str) -> Body:
    return {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
