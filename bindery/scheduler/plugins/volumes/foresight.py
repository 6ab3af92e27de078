"""Simulates the binding of claims by the binder and the volume controllers.

For scenarios and rehearsals only; the scheduler process never calls it.
"""

from collections.abc import Iterator

import msgspec

from bindery.kube.objects.storage import (
    ClaimReference,
    ClaimStatus,
    CSISource,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeSpec,
    VolumeStatus,
)
from bindery.kube.objects.watched import KubeObject, Meta
from bindery.scheduler.plugins.volumes.catalog import BIND_COMPLETED, Catalog, class_name


def bound(
    claim: PersistentVolumeClaim, volume: PersistentVolume | None, catalog: Catalog
) -> Iterator[KubeObject]:
    """Yield the volume and `claim`, bound to each other.

    `volume` is the chosen volume; if None, a volume is made that all nodes can use.
    """
    if volume is None:
        volume = _made(claim, catalog)
    meta = claim.metadata
    reference = ClaimReference(namespace=meta.namespace, name=meta.name, uid=meta.uid)
    yield msgspec.structs.replace(
        volume,
        spec=msgspec.structs.replace(volume.spec, claim_ref=reference),
        status=VolumeStatus(phase="Bound"),
    )
    annotations = {**meta.annotations, BIND_COMPLETED: "yes"}
    yield msgspec.structs.replace(
        claim,
        metadata=msgspec.structs.replace(meta, annotations=annotations),
        spec=msgspec.structs.replace(claim.spec, volume_name=volume.metadata.name),
        status=ClaimStatus(phase="Bound"),
    )


def _made(claim: PersistentVolumeClaim, catalog: Catalog) -> PersistentVolume:
    found, uid = catalog.storage_class(claim), claim.metadata.uid
    driver = found.provisioner if found is not None else ""
    return PersistentVolume(
        metadata=Meta(name=f"pvc-{uid}", uid=f"pv-{uid}"),
        spec=VolumeSpec(
            capacity=claim.spec.resources.requests,
            access_modes=claim.spec.access_modes,
            storage_class_name=class_name(claim),
            volume_mode=claim.spec.volume_mode,
            csi=CSISource(driver=driver, volume_handle=uid),
        ),
    )
