"""Dynamic resource allocation (`resource.k8s.io/v1`) as msgspec structs: devices, classes, claims.

Read by the scheduler's device allocator and by the binder's dra plugin; built by scenarios and
tests too. Same rules as `objects`: frozen, and only the fields that are read. What is written back
(an allocation) is declared whole, so that nothing of it is lost on the way.
"""

from typing import Any, Final

import msgspec

from bindery.kube.objects import Condition, KubeObject
from bindery.kube.podspec import NodeSelector

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps an allocated claim from being deleted."""
MOST_RESERVATIONS: Final = 256
"""How many pods may reserve one claim."""
MOST_RESULTS: Final = 32
"""How many devices one claim may hold."""

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
    """For the driver alone: handed through as it is."""


class DeviceConfiguration(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    requests: list[str] = msgspec.field(default_factory=list)
    opaque: OpaqueConfiguration | None = None


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    selectors: list[DeviceSelector] = msgspec.field(default_factory=list)
    config: list[DeviceConfiguration] = msgspec.field(default_factory=list)


class DeviceClass(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)


# ---- ResourceClaim: what is asked ---------------------------------------------------------------


class DeviceToleration(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False, omit_defaults=True
):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    requests: dict[str, QuantityText] = msgspec.field(default_factory=dict)


class ExactRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ExactDeviceRequest`; a `DeviceSubRequest` is the same with a name, and no admin access."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = msgspec.field(default_factory=list)
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: list[DeviceToleration] = msgspec.field(default_factory=list)
    capacity: CapacityRequirements | None = None


class DeviceRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    exactly: ExactRequest | None = None
    first_available: list[ExactRequest] = msgspec.field(default_factory=list)


class DeviceConstraint(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    requests: list[str] = msgspec.field(default_factory=list)
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    requests: list[DeviceRequest] = msgspec.field(default_factory=list)
    constraints: list[DeviceConstraint] = msgspec.field(default_factory=list)
    config: list[DeviceConfiguration] = msgspec.field(default_factory=list)


class ResourceClaimSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


# ---- ResourceClaim: what is given ---------------------------------------------------------------


class DeviceResult(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False, omit_defaults=True
):
    """`DeviceRequestAllocationResult`: one device of an allocation."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = msgspec.field(default_factory=list)
    binding_conditions: list[str] = msgspec.field(default_factory=list)
    binding_failure_conditions: list[str] = msgspec.field(default_factory=list)
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, QuantityText] = msgspec.field(default_factory=dict)


class AllocationConfiguration(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False, omit_defaults=True
):
    source: str
    requests: list[str] = msgspec.field(default_factory=list)
    opaque: OpaqueConfiguration | None = None


class DeviceAllocation(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False, omit_defaults=True
):
    results: list[DeviceResult] = msgspec.field(default_factory=list)
    config: list[AllocationConfiguration] = msgspec.field(default_factory=list)


class Allocation(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False, omit_defaults=True
):
    """`AllocationResult`: the devices of a claim, and the nodes from which they can be used."""

    devices: DeviceAllocation = msgspec.field(default_factory=DeviceAllocation)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ConsumerReference(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False, omit_defaults=True
):
    """`ResourceClaimConsumerReference`: who has reserved a claim."""

    resource: str
    name: str
    uid: str
    api_group: str = msgspec.field(default="", name="apiGroup")


class DeviceStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`AllocatedDeviceStatus`: what a driver reports about a device that is allocated."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[Condition] = msgspec.field(default_factory=list)


class ResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    allocation: Allocation | None = None
    reserved_for: list[ConsumerReference] = msgspec.field(default_factory=list)
    devices: list[DeviceStatus] = msgspec.field(default_factory=list)


class ResourceClaim(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)
