"""Volumes: the fields that are read of kinds of the core group and of `storage.k8s.io`.

Watched by the scheduler's plugin `volumes` and read by the binder's; the rules of `watched.py`
hold. A claim (PersistentVolumeClaim) is a pod's request, a volume (PersistentVolume) fulfils it.
"""

from typing import Any, Final

import msgspec

from bindery.kube.objects.podspec import MigratedSources, NodeSelector
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.selectors import LabelSelector
from bindery.kube.objects.watched import KubeObject


class StorageRequests(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    requests: dict[str, str] | None = None


class ClaimSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    access_modes: list[str] = msgspec.field(default_factory=list)
    resources: StorageRequests = msgspec.field(default_factory=StorageRequests)
    storage_class_name: str | None = None
    volume_mode: str = "Filesystem"
    volume_name: str = ""
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None


class ClaimStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    phase: str = "Pending"


class PersistentVolumeClaim(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """`v1.PersistentVolumeClaim`."""

    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)
    unreadable: str = ""
    """Reason why only a part could be read."""


class ClaimReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`spec.claimRef` of a volume; without a UID, a user wrote it before the claim existed."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    required: NodeSelector | None = None


class CSISource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    driver: str
    volume_handle: str = ""


class VolumeSpec(MigratedSources, frozen=True, rename="camel", kw_only=True, gc=False):
    capacity: dict[str, str] | None = None
    access_modes: list[str] = msgspec.field(default_factory=list)
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSISource | None = None
    volume_attributes_class_name: str | None = None


class VolumeStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    phase: str = ""


class PersistentVolume(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: VolumeStatus = msgspec.field(default_factory=VolumeStatus)
    unreadable: str = ""
    """Reason why only a part could be read."""


class TopologyRequirement(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    key: str
    values: list[str] = msgspec.field(default_factory=list)


class TopologyTerm(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    match_label_expressions: list[TopologyRequirement] | None = None


class StorageClass(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] | None = None


class CSINodeAllocatable(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    count: int | None = None
    """Maximum number of attached volumes of the driver; None: no limit."""


class CSINodeDriver(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    allocatable: CSINodeAllocatable | None = None


class CSINodeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    drivers: list[CSINodeDriver] = msgspec.field(default_factory=list)


class CSINode(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)


class CSIDriverSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    storage_capacity: bool | None = None
    """Whether CSIStorageCapacity objects report the remaining capacity."""


class CSIDriver(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    spec: CSIDriverSpec = msgspec.field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    """None: no node at all."""
    capacity: str | None = None
    maximum_volume_size: str | None = None


class AttachmentSource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    persistent_volume_name: str | None = None


class AttachmentSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    attacher: str = ""
    """The CSI driver."""
    node_name: str = ""
    source: AttachmentSource = msgspec.field(default_factory=AttachmentSource)


class VolumeAttachment(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    spec: AttachmentSpec = msgspec.field(default_factory=AttachmentSpec)


def _held_claim(claim: PersistentVolumeClaim, problem: str) -> PersistentVolumeClaim | None:
    """Return a claim that was read only in part; None if the claim has no volume."""
    is_bound = bool(claim.spec.volume_name)
    return msgspec.structs.replace(claim, unreadable=problem) if is_bound else None


def _held_volume(volume: PersistentVolume, problem: str) -> PersistentVolume | None:
    """Return a volume that was read only in part; None if no claim has the volume."""
    is_taken = volume.spec.claim_ref is not None
    return msgspec.structs.replace(volume, unreadable=problem) if is_taken else None


_GROUP: Final = "storage.k8s.io"

CLAIMS: Final = Resource(
    "",
    "v1",
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    True,
    PersistentVolumeClaim,
    held=_held_claim,
)
VOLUMES: Final = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolume, held=_held_volume
)
STORAGE_CLASSES: Final = Resource(
    _GROUP, "v1", "storageclasses", "StorageClass", False, StorageClass
)
CSI_NODES: Final = Resource(
    _GROUP,
    "v1",
    "csinodes",
    "CSINode",
    False,
    CSINode,
    held=lambda node, _: node,  # the limits that can be read are valid
)
CSI_DRIVERS: Final = Resource(_GROUP, "v1", "csidrivers", "CSIDriver", False, CSIDriver)
CSI_STORAGE_CAPACITIES: Final = Resource(
    _GROUP, "v1", "csistoragecapacities", "CSIStorageCapacity", True, CSIStorageCapacity
)
VOLUME_ATTACHMENTS: Final = Resource(
    _GROUP, "v1", "volumeattachments", "VolumeAttachment", False, VolumeAttachment
)
RESOURCES: Final[tuple[Resource[Any], ...]] = (
    STORAGE_CLASSES,
    VOLUMES,
    CLAIMS,
    CSI_STORAGE_CAPACITIES,
    CSI_NODES,
    CSI_DRIVERS,
    VOLUME_ATTACHMENTS,
)
