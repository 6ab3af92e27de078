"""The claim for the extended resources of a pod: created, shown in the pod's status, deleted.

The steps are those of kube-scheduler's plugin DynamicResources (KEP-5004, Kubernetes 1.36). The pod
owns the claim, so Kubernetes deletes the claim with the pod even if this process dies. The claim's
name depends only on the pod, so that a repeated attempt finds the claim of an earlier one.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.dra import reservations
from bindery.binder.plugins.interface import PluginError
from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from bindery.kube.objects.claims import (
    EXTENDED_ANNOTATION,
    RESOURCE_CLAIMS,
    ClaimHandover,
    DeviceRequest,
    ExtendedHandover,
    ResourceClaim,
    extended_claim_name,
    is_extended,
)
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.watched import KubeObject

T = TypeVar("T", bound=KubeObject)


async def created(client: Client, pod: PodView, planned: ExtendedHandover) -> ClaimHandover:
    """Create the claim of `pod`, or find it; return the planned handover of that claim.

    Raises:
        PluginError: another object has the claim's name, or an older claim is still being deleted.
    """
    body = _body(pod, planned)
    try:
        claim = await client.create(RESOURCE_CLAIMS, body, pod.namespace)
    except AlreadyExistsError:
        claim = await client.get(
            RESOURCE_CLAIMS, extended_claim_name(pod.name, pod.uid), pod.namespace
        )
        await _demand_same(client, claim, pod, planned)
    return _handover(claim, planned)


async def found(client: Client, pod: PodView, planned: ExtendedHandover) -> ClaimHandover | None:
    """Return the handover of the claim of `pod` if it exists as planned, else None.

    The claim may be on its way out: people have deleted it, and it waits for its finalizer.
    """
    name = extended_claim_name(pod.name, pod.uid)
    try:
        claim = await client.get(RESOURCE_CLAIMS, name, pod.namespace)
    except NotFoundError:
        return None
    return _handover(claim, planned) if _is_planned(claim, pod, planned) else None


async def show(client: Client, pod: PodView, planned: ExtendedHandover) -> None:
    """Write the claim and the mappings into the status of `pod`, where the kubelet reads them.

    Raises:
        PluginError: the API server does not know this field.
    """
    mappings = [
        {
            "containerName": each.container_name,
            "resourceName": each.resource_name,
            "requestName": each.request_name,
        }
        for each in planned.mappings
    ]
    name = extended_claim_name(pod.name, pod.uid)
    status = {"resourceClaimName": name, "requestMappings": mappings}
    stored = await client.patch(
        PODS, pod.name, _pod_patch(pod, status), namespace=pod.namespace, subresource="status"
    )
    if stored.status.extended_resource_claim_status is None:
        raise PluginError(
            "the API server does not support extended resources by DRA (DRAExtendedResource)",
            permanent=True,
        )


async def delete(client: Client, pod: PodView, claim: ClaimHandover) -> None:
    """Delete the claim of `pod` after its devices were released, also in the pod's status."""
    patch, namespace = _pod_patch(pod, None), pod.namespace
    with suppress(NotFoundError):
        try:
            await client.patch(PODS, pod.name, patch, namespace=namespace, subresource="status")
        except ConflictError:
            if await _is_still(client, PODS, pod.name, namespace, pod.uid):
                raise
    with suppress(NotFoundError):
        try:
            await client.delete(RESOURCE_CLAIMS, claim.name, namespace, uid=claim.uid)
        except ConflictError:
            if await _is_still(client, RESOURCE_CLAIMS, claim.name, namespace, claim.uid):
                raise


async def _is_still(
    client: Client, resource: Resource[T], name: str, namespace: str, uid: str
) -> bool:
    """Return whether the object still has this UID; otherwise another object has its name."""
    return (await client.get(resource, name, namespace)).metadata.uid == uid


def _pod_patch(pod: PodView, status: Mapping[str, Any] | None) -> dict[str, Any]:
    # The UID is a precondition: another pod of the same name must not get the status.
    return {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}}


async def _demand_same(
    client: Client, claim: ResourceClaim, pod: PodView, planned: ExtendedHandover
) -> None:
    """Return if `claim` is the planned one; delete it if it is an older claim of the pod.

    Raises:
        PluginError: `claim` is not the planned one.
    """
    meta = claim.metadata
    if not is_extended(claim, pod.uid):
        raise PluginError(f"resource claim {meta.name} exists and is not the pod's", permanent=True)
    if meta.deletion_timestamp is None and _is_planned(claim, pod, planned):
        return
    # A claim of an attempt for another node that was not rolled back; its devices were never used.
    if claim.status.allocation is not None or claim.status.reserved_for:
        await client.update(
            RESOURCE_CLAIMS,
            meta.name,
            pod.namespace,
            lambda each: (
                {"status": {"allocation": None, "reservedFor": None}}
                if each.metadata.uid == meta.uid
                else None
            ),
            subresource="status",
        )
    await client.update(RESOURCE_CLAIMS, meta.name, pod.namespace, reservations.without_finalizer)
    with suppress(NotFoundError, ConflictError):
        await client.delete(RESOURCE_CLAIMS, meta.name, pod.namespace, uid=meta.uid)
    raise PluginError(f"resource claim {meta.name} of an earlier attempt is being deleted")


def _is_planned(claim: ResourceClaim, pod: PodView, planned: ExtendedHandover) -> bool:
    allocation = claim.status.allocation
    return (
        is_extended(claim, pod.uid)
        and _written(claim.spec.devices.requests) == _written(planned.requests)
        and (allocation is None or allocation.devices.results == planned.allocation.devices.results)
    )


def _handover(claim: ResourceClaim, planned: ExtendedHandover) -> ClaimHandover:
    return ClaimHandover(
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        allocation=planned.allocation,
        is_own=True,
        is_new=True,
    )


def _body(pod: PodView, planned: ExtendedHandover) -> dict[str, Any]:
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.name,
        "uid": pod.uid,
        "controller": True,
    }
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {
            "name": extended_claim_name(pod.name, pod.uid),
            "namespace": pod.namespace,
            "annotations": {EXTENDED_ANNOTATION: "true"},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": _written(planned.requests)}},
    }


def _written(requests: list[DeviceRequest]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "exactly": {
                "deviceClassName": each.exactly.device_class_name,
                "allocationMode": "ExactCount",
                "count": each.exactly.count,
            },
        }
        for each in requests
        if each.exactly is not None
    ]
