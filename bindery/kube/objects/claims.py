"""Dynamic resource allocation (`resource.k8s.io/v1`) as msgspec structs: claims, allocations.

Read by the scheduler's device allocator and by the binder's dra plugin; scenarios and tests build
them. The rules are those of `watched`. Allocations are written back, so the structs declare all
fields of an allocation.
"""

import hashlib
from typing import Final

import msgspec

from bindery.kube.objects.devices import (
    DeviceConfiguration,
    DeviceSelector,
    OpaqueConfiguration,
    QuantityText,
)
from bindery.kube.objects.podspec import NodeSelector
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import Condition, KubeObject, RequestMapping

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Finalizer that protects an allocated claim from deletion."""
MOST_RESERVATIONS: Final = 256
"""Maximum number of reservations of one claim."""
MOST_RESULTS: Final = 32
"""Maximum number of devices of one claim."""
EXTENDED_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation with the value `true` of a claim for a pod's extended resources."""
CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of extended resources that a DeviceClass serves; the name of the class follows."""
_MOST_OF_POD_NAME = 200


class _Written(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False, omit_defaults=True
):
    """A struct that Bindery also writes: fields with their defaults are left out."""


# ---- requests --------------------------------------------------------------------


class DeviceToleration(_Written, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    requests: dict[str, QuantityText] = msgspec.field(default_factory=dict)


class ExactRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ExactDeviceRequest`, or a `DeviceSubRequest`, which has no admin access."""

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


# ---- allocations -----------------------------------------------------------------


class DeviceResult(_Written, frozen=True, kw_only=True):
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


class AllocationConfiguration(_Written, frozen=True, kw_only=True):
    source: str
    requests: list[str] = msgspec.field(default_factory=list)
    opaque: OpaqueConfiguration | None = None


class DeviceAllocation(_Written, frozen=True, kw_only=True):
    results: list[DeviceResult] = msgspec.field(default_factory=list)
    config: list[AllocationConfiguration] = msgspec.field(default_factory=list)


class AllocationResult(_Written, frozen=True, kw_only=True):
    """`AllocationResult`: the devices of a claim, and the nodes on which they can be used."""

    devices: DeviceAllocation = msgspec.field(default_factory=DeviceAllocation)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ConsumerReference(_Written, frozen=True, kw_only=True):
    """`ResourceClaimConsumerReference`: a consumer with a reservation."""

    resource: str
    name: str
    uid: str
    api_group: str = msgspec.field(default="", name="apiGroup")


class DeviceStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`AllocatedDeviceStatus`: a driver's report about an allocated device."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[Condition] = msgspec.field(default_factory=list)


class ResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    allocation: AllocationResult | None = None
    reserved_for: list[ConsumerReference] = msgspec.field(default_factory=list)
    devices: list[DeviceStatus] = msgspec.field(default_factory=list)


class ResourceClaim(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)
    unreadable: str = ""
    """Reason why only a part could be read."""


class ResourceClaimTemplateSpec(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False
):
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    spec: ResourceClaimTemplateSpec = msgspec.field(default_factory=ResourceClaimTemplateSpec)


# ---- from the scheduler's plugin to the binder's ------------------------------------------------


class ClaimHandover(_Written, frozen=True, kw_only=True):
    """One claim of a pod, in the scheduler's plan."""

    name: str
    uid: str
    allocation: AllocationResult
    is_own: bool = False
    """Whether the claim is from a template, for this pod: then the pod must own the claim."""
    is_new: bool = True
    """Whether the plan makes the allocation; otherwise the claim was allocated before."""
    consumer: ConsumerReference | None = None
    """The PodGroup for whose pods together the claim is reserved; None: only for the pod."""


class ExtendedHandover(_Written, frozen=True, kw_only=True):
    """The claim that the binder creates for a pod's extended resources (KEP-5004)."""

    requests: list[DeviceRequest]
    mappings: list[RequestMapping]
    allocation: AllocationResult


class Handover(_Written, frozen=True, kw_only=True):
    """The content of `pluginData` of a BindRequest under `dra`."""

    claims: list[ClaimHandover] = msgspec.field(default_factory=list)
    extended: ExtendedHandover | None = None


def extended_claim_name(pod_name: str, pod_uid: str) -> str:
    """Return the name of the claim for the extended resources of a pod.

    The name depends only on the pod, so that a repeated attempt finds the claim.
    """
    digest = hashlib.sha256(pod_uid.encode()).hexdigest()[:10]
    return f"{pod_name[:_MOST_OF_POD_NAME].rstrip('.-')}-extended-resources-{digest}"


def is_extended(claim: ResourceClaim, pod_uid: str) -> bool:
    """Return whether `claim` was made for the extended resources of the pod with `pod_uid`."""
    meta = claim.metadata
    return meta.annotations.get(EXTENDED_ANNOTATION) == "true" and any(
        owner.controller and owner.uid == pod_uid for owner in meta.owner_references
    )


def held_claim(claim: ResourceClaim, problem: str) -> ResourceClaim | None:
    """Return a claim that was read only in part; None if the claim holds no device.

    The unreadable part may be the amount of a share, so a share holds the whole device.
    """
    allocation = claim.status.allocation
    if allocation is None:
        return None
    results = [msgspec.structs.replace(each, share_id=None) for each in allocation.devices.results]
    devices = msgspec.structs.replace(allocation.devices, results=results)
    allocation = msgspec.structs.replace(allocation, devices=devices)
    status = msgspec.structs.replace(claim.status, allocation=allocation)
    return msgspec.structs.replace(claim, status=status, unreadable=problem)


RESOURCE_CLAIMS: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, ResourceClaim, held=held_claim
)
RESOURCE_CLAIM_TEMPLATES: Final = Resource(
    "resource.k8s.io",
    "v1",
    "resourceclaimtemplates",
    "ResourceClaimTemplate",
    True,
    ResourceClaimTemplate,
)
