"""What becomes of a claim when the binder and the cluster's controllers have done their work.

For scenarios and rehearsals, where nobody else does it. The process never calls this.
"""

from collections.abc import Iterator

import msgspec

from bindery.kube.objects import KubeObject, Meta
from bindery.kube.storage import (
    Claim,
    ClaimReference,
    ClaimStatus,
    CSISource,
    PersistentVolume,
    VolumeSpec,
    VolumeStatus,
)
from bindery.scheduler.plugins.volumes.catalog import BIND_COMPLETED, Catalog, class_name


def bound(claim: Claim, volume: PersistentVolume | None, catalog: Catalog) -> Iterator[KubeObject]:
    """Yield `claim`, and the volume that it gets, as they are when they are bound.

    `volume`: the one that was chosen; None: one is made, which is reached from everywhere.
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


def _made(claim: Claim, catalog: Catalog) -> PersistentVolume:
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
