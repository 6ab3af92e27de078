"""Storage objects for the scheduler's tests, as the API server has them."""

from typing import Any

from bindery.kube.objects.podspec import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaimSource,
    Volume,
)
from bindery.kube.objects.storage import (
    ClaimReference,
    ClaimSpec,
    ClaimStatus,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageRequests,
    VolumeNodeAffinity,
    VolumeSpec,
    VolumeStatus,
)
from bindery.kube.objects.watched import Meta, OwnerReference, Pod
from tests.scheduler.schedulerworld import NAMESPACE, pod

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
LATE = "WaitForFirstConsumer"


def storage_class(name: str, provisioner: str = "kubernetes.io/no-provisioner") -> StorageClass:
    return StorageClass(metadata=Meta(name=name), provisioner=provisioner, volume_binding_mode=LATE)


def claim(name: str, size: str = "1Gi", of: str = "local", **spec: Any) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=Meta(name=name, namespace=NAMESPACE, uid=f"uid-{name}"),
        spec=ClaimSpec(
            **{
                "access_modes": ["ReadWriteOnce"],
                "storage_class_name": of,
                "resources": StorageRequests(requests={"storage": size}),
                **spec,
            }
        ),
    )


def bound_claim(name: str, volume: str) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=Meta(name=name, namespace=NAMESPACE, uid=f"uid-{name}", annotations=BOUND),
        spec=ClaimSpec(volume_name=volume, storage_class_name="local"),
        status=ClaimStatus(phase="Bound"),
    )


def volume(
    name: str, size: str = "1Gi", of: str = "local", on: str | None = None, **spec: Any
) -> PersistentVolume:
    affinity = None
    if on is not None:
        here = NodeSelectorRequirement(key="kubernetes.io/hostname", operator="In", values=[on])
        term = NodeSelectorTerm(match_expressions=[here])
        affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=[term]))
    phase = spec.pop("phase", "Available")
    return PersistentVolume(
        metadata=Meta(name=name, uid=f"uid-{name}", labels=spec.pop("labels", {})),
        spec=VolumeSpec(
            **{
                "capacity": {"storage": size},
                "access_modes": ["ReadWriteOnce"],
                "storage_class_name": of,
                "node_affinity": affinity,
                **spec,
            }
        ),
        status=VolumeStatus(phase=phase),
    )


def promised_to(name: str, uid: str = "") -> ClaimReference:
    return ClaimReference(namespace=NAMESPACE, name=name, uid=uid)


def user(name: str, *claims: str, **shape: Any) -> Pod:
    """Return a pod that uses `claims`."""
    volumes = [
        Volume(name=each, persistent_volume_claim=PersistentVolumeClaimSource(claim_name=each))
        for each in claims
    ]
    return pod(name, volumes=volumes, **shape)


def ephemeral_user(name: str, volume_name: str) -> Pod:
    return pod(name, volumes=[Volume(name=volume_name, ephemeral={"volumeClaimTemplate": {}})])


def owned_by(found: PersistentVolumeClaim, owner: Pod) -> PersistentVolumeClaim:
    reference = OwnerReference(
        api_version="v1",
        kind="Pod",
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
    )
    meta = found.metadata
    return PersistentVolumeClaim(
        metadata=Meta(
            name=meta.name, namespace=NAMESPACE, uid=meta.uid, owner_references=[reference]
        ),
        spec=found.spec,
        status=found.status,
    )
