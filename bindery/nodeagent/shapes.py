"""Expands the shapes of hollow nodes that users write into single nodes.

Read by the command line (flags, or a YAML file for several shapes); the nodes go to `nodes`. A node
depends only on its shape and its index, so a restart makes the same nodes again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from bindery.api import names
from bindery.api.base import ApiModel, NonNegative
from bindery.nodeagent.descriptions import HOLLOW, NodeDescription
from bindery.nodeagent.hardware import (
    Amount,
    KubeletSettings,
    MachineSettings,
    NumaHardware,
    machine_of,
)
from bindery.nodecore import pods
from bindery.nodecore.addresses import Address

HOLLOW_LABEL: Final = "hollow.bindery.dev/node"
"""Label of every hollow node, with the value "true": the node has no machine. The agent never takes
over a node without this label."""

NODE_ADDRESSES: Final = IPv4Network("198.18.0.0/15")
"""Range of the nodes' made-up addresses: reserved for benchmarks (RFC 2544)."""

_NAME_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,200}[-a-z0-9])?")


def _label_key(text: str) -> str:
    if not names.LABEL_KEY.fullmatch(text):
        raise ValueError(f"{text!r} is not a label key")
    return text


def _label_value(text: str) -> str:
    if text and not names.LABEL_VALUE.fullmatch(text):
        raise ValueError(f"{text!r} is not a label value (63 of A-Z a-z 0-9 - _ .)")
    return text


def _name_prefix(text: str) -> str:
    if not _NAME_PREFIX.fullmatch(text):
        raise ValueError(f"{text!r} cannot begin a node's name (lower case letters, digits, -)")
    return text


LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]


class NodeShape(ApiModel):
    """Equal nodes. The defaults describe a common server with eight GPUs."""

    count: int = Field(ge=1, le=NODE_ADDRESSES.num_addresses - 2)
    name_prefix: Annotated[str, AfterValidator(_name_prefix)] = "hollow-"
    """Names of nodes are this prefix and an index: hollow-0, hollow-1..."""
    cpu: Amount = "64"
    memory: Amount = "512Gi"
    ephemeral_storage: Amount = "1Ti"
    pods: NonNegative = 110
    gpus: NonNegative = 8
    gpu_model: LabelValue = "NVIDIA-H100-80GB-HBM3"
    racks: NonNegative = 4
    """Number of racks over which the nodes are spread, in blocks; 0: no rack label."""
    zones: NonNegative = 2
    """Number of zones over which the racks are spread, in blocks; 0: no zone label."""
    node_pool: LabelValue = ""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Further labels. They replace labels that the agent sets, except the label of hollow nodes."""
    resources: dict[LabelKey, Amount] = Field(default_factory=dict)
    """Further resources, such as rdma/hca: 8."""
    numa: NumaHardware | None = None
    """NUMA zones; default: one zone with all CPUs, which is not reported."""
    kubelet: KubeletSettings | None = None
    """The kubelet's settings; default: the kubelet's own, with nothing reserved."""

    @model_validator(mode="after")
    def _racks_lie_in_one_zone(self) -> Self:
        if self.racks and self.zones > self.racks:
            raise ValueError(f"{self.zones} zones need at least as many racks, not {self.racks}")
        return self

    @model_validator(mode="after")
    def _resources_are_further_ones(self) -> Self:
        own = {"cpu", "memory", "ephemeral-storage", "pods", names.GPU_RESOURCE}
        for resource in sorted(own.intersection(self.resources)):
            raise ValueError(f"resources: {resource} has its own key")
        return self

    @model_validator(mode="after")
    def _kubelet_would_start(self) -> Self:
        self.machine()
        return self

    def machine(self) -> MachineSettings:
        """Return the machine of each node; raises ValueError if a kubelet would not start on it."""
        return machine_of(_resources(self), names.GPU_RESOURCE, self.numa, self.kubelet)


class HollowNodesFile(ApiModel):
    """The file of `--shapes`: several shapes in one process."""

    api_version: Literal["hollow.bindery.dev/v1alpha1"] = "hollow.bindery.dev/v1alpha1"
    kind: Literal["HollowNodes"] = "HollowNodes"
    shapes: tuple[NodeShape, ...]

    @field_validator("shapes")
    @classmethod
    def _nodes_differ(cls, shapes: tuple[NodeShape, ...]) -> tuple[NodeShape, ...]:
        if not shapes:
            raise ValueError("at least one shape is needed")
        seen: set[str] = set()
        for node in expand(shapes):
            if node.name in seen:
                raise ValueError(f"two shapes make a node {node.name}: set namePrefix")
            seen.add(node.name)
        return shapes


@dataclass(frozen=True)
class ManagedNode:
    """One complete node that an agent keeps: hollow, or of the kind that its `mark` names."""

    name: str
    labels: dict[str, str]
    resources: Mapping[str, str]
    """Resource name -> quantity: the capacity."""
    allocatable: Mapping[str, str]
    """Resource name -> quantity: the capacity less what is reserved."""
    address: str
    machine: MachineSettings
    """The machine; one object for all nodes of a shape."""
    mark: str = HOLLOW_LABEL
    """The label, with the value "true", of the nodes that this kind of agent may take over."""
    description: NodeDescription = HOLLOW
    provider_id: str = ""
    """The id of the machine at its cloud provider."""
    addresses: tuple[Address, ...] = ()
    """The addresses that a cloud provider has; empty: the node's own address and name."""
    port: int | None = None
    """Where the API server calls the node for logs; None: nowhere."""


def expand(shapes: tuple[NodeShape, ...]) -> tuple[ManagedNode, ...]:
    """Return the nodes of `shapes` in order; raises ValueError if there are too many."""
    if sum(shape.count for shape in shapes) > NODE_ADDRESSES.num_addresses - 2:
        raise ValueError(f"at most {NODE_ADDRESSES.num_addresses - 2} nodes fit one process")
    address = int(NODE_ADDRESSES.network_address)
    nodes = []
    for shape in shapes:
        machine = shape.machine()
        capacity = _capacity(shape, machine)
        allocatable = _allocatable(capacity, machine)
        for index in range(shape.count):
            address += 1
            nodes.append(
                ManagedNode(
                    name=f"{shape.name_prefix}{index}",
                    labels=_labels(shape, index),
                    resources=capacity,
                    allocatable=allocatable,
                    address=str(IPv4Address(address)),
                    machine=machine,
                )
            )
    return tuple(nodes)


def _labels(shape: NodeShape, index: int) -> dict[str, str]:
    labels = {
        names.HOSTNAME_LABEL: f"{shape.name_prefix}{index}",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        # Deprecated labels, but every kubelet sets them and selectors use them.
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
    }
    labels |= _place(shape, index)
    if shape.gpus and shape.gpu_model:
        labels[names.GPU_MODEL_LABEL] = shape.gpu_model
    if shape.node_pool:
        labels[names.NODE_POOL_LABEL] = shape.node_pool
    return labels | shape.labels | {HOLLOW_LABEL: "true"}


def _place(shape: NodeShape, index: int) -> dict[str, str]:
    """Return the rack and zone labels: blocks of nodes in a rack, blocks of racks in a zone.

    A rack's name contains the zone, so that a rack is in one zone also for shapes with different
    numbers of racks.
    """
    place: dict[str, str] = {}
    blocks = shape.racks or shape.zones
    if not blocks:
        return place
    block = index * blocks // shape.count
    zone = block * shape.zones // blocks
    if shape.zones:
        place[names.ZONE_LABEL] = f"zone-{zone}"
    if shape.racks:
        first_of_zone = -(-zone * shape.racks // shape.zones) if shape.zones else 0
        rack = f"rack-{block - first_of_zone}"
        place[names.RACK_LABEL] = f"zone-{zone}-{rack}" if shape.zones else rack
    return place


def _resources(shape: NodeShape) -> dict[str, str]:
    resources = {
        "cpu": str(shape.cpu),
        "memory": str(shape.memory),
        "ephemeral-storage": str(shape.ephemeral_storage),
        "pods": str(shape.pods),
    }
    if shape.gpus:
        resources[names.GPU_RESOURCE] = str(shape.gpus)
    return resources | {name: str(amount) for name, amount in shape.resources.items()}


def _capacity(shape: NodeShape, machine: MachineSettings) -> dict[str, str]:
    """Return the resources of the shape, including those added by its NUMA zones."""
    counts = {name: len(devices) for name, devices in machine.devices.items()}
    added = {**machine.config.capacity, **counts}
    own = _resources(shape)
    return own | {name: str(amount) for name, amount in added.items() if name not in own}


def _allocatable(capacity: Mapping[str, str], machine: MachineSettings) -> dict[str, str]:
    """Return the amounts for pods; those without reservations are written as in the capacity."""
    whole = pods.resources(capacity)
    return {
        name: text if amount == whole[name] else _quantity(name, amount)
        for name, text in capacity.items()
        for amount in (machine.allocatable.get(name, whole[name]),)
    }


def _quantity(resource: str, amount: int) -> str:
    if resource != pods.CPU:
        return str(amount)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)
