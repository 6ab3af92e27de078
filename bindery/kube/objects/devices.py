"""Dynamic resource allocation (`resource.k8s.io/v1`) as msgspec structs: devices and their classes.

Read by the scheduler's device allocator; scenarios and tests build them. The rules are those of
`watched`: frozen, and only the fields that are read. Claims are in `claims`.
"""

from typing import Any, Final

import msgspec

from bindery.kube.objects.podspec import NodeSelector
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject

QuantityText = str | int | float


# ---- ResourceSlice ------------------------------------------------------------------------------


class DeviceAttribute(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Exactly one field is set."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")


class CapacityRange(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class CapacityRequestPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    default: QuantityText | None = None
    valid_values: list[QuantityText] | None = None
    valid_range: CapacityRange | None = None


class DeviceCapacity(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    value: QuantityText
    request_policy: CapacityRequestPolicy | None = None


class Counter(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    value: QuantityText


class CounterSet(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)


class CounterConsumption(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    counter_set: str
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)


class DeviceTaint(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    key: str
    value: str = ""
    effect: str = ""


class Device(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    attributes: dict[str, DeviceAttribute] = msgspec.field(default_factory=dict)
    capacity: dict[str, DeviceCapacity] = msgspec.field(default_factory=dict)
    consumes_counters: list[CounterConsumption] = msgspec.field(default_factory=list)
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: list[DeviceTaint] = msgspec.field(default_factory=list)
    binds_to_node: bool = False
    binding_conditions: list[str] = msgspec.field(default_factory=list)
    binding_failure_conditions: list[str] = msgspec.field(default_factory=list)
    allow_multiple_allocations: bool = False


class ResourcePool(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    driver: str
    pool: ResourcePool
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: list[Device] = msgspec.field(default_factory=list)
    shared_counters: list[CounterSet] = msgspec.field(default_factory=list)


class ResourceSlice(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    spec: ResourceSliceSpec


# ---- DeviceClass --------------------------------------------------------------------------------


class CelSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    expression: str = ""


class DeviceSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    cel: CelSelector | None = None


class OpaqueConfiguration(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    driver: str
    parameters: Any = None
    """Parameters for the driver, passed on unchanged."""


class DeviceConfiguration(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    requests: list[str] = msgspec.field(default_factory=list)
    opaque: OpaqueConfiguration | None = None


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    selectors: list[DeviceSelector] = msgspec.field(default_factory=list)
    config: list[DeviceConfiguration] = msgspec.field(default_factory=list)
    extended_resource_name: str | None = None
    """An extended resource that devices of this class serve (KEP-5004)."""


class DeviceClass(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)


RESOURCE_SLICES: Final = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, ResourceSlice
)
DEVICE_CLASSES: Final = Resource(
    "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False, DeviceClass
)
