"""Volumes as pods and PersistentVolumes declare them: the fields that are read to mount them."""

from typing import Any, Final

import msgspec

from bindery.api import quantity
from bindery.kube.objects.podspec import (
    EmptyDirSource,
    HostPathSource,
    MigratedSources,
    PersistentVolumeClaimSource,
    ResourceRequirements,
)
from bindery.kube.objects.storage import ClaimReference, VolumeNodeAffinity
from bindery.kube.objects.watched import KubeObject
from bindery.nodecore.pods import MEMORY, resources

READ_WRITE_ONCE: Final = "ReadWriteOnce"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
BLOCK: Final = "Block"
_DEFAULT_MODE: Final = 0o644


class KeyFile(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`KeyToPath`: a key of an object, and the file that gets its value."""

    key: str = ""
    path: str = ""
    mode: int | None = None


class KeyedSource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ConfigMapVolumeSource`, `SecretVolumeSource` and their projections."""

    name: str = ""
    secret_name: str = ""
    items: list[KeyFile] | None = None
    default_mode: int = _DEFAULT_MODE
    optional: bool = False


class FieldReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ObjectFieldSelector`."""

    field_path: str = ""


class AmountReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ResourceFieldSelector`."""

    container_name: str = ""
    resource: str = ""
    divisor: str = "0"


class PodFieldFile(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`DownwardAPIVolumeFile`."""

    path: str = ""
    field_ref: FieldReference | None = None
    resource_field_ref: AmountReference | None = None
    mode: int | None = None


class PodFieldSource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`DownwardAPIVolumeSource`."""

    items: list[PodFieldFile] | None = None
    default_mode: int = _DEFAULT_MODE


class TokenFile(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ServiceAccountTokenProjection`."""

    audience: str = ""
    expiration_seconds: int = 3600
    path: str = ""


class ProjectedPart(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`VolumeProjection`."""

    config_map: KeyedSource | None = None
    secret: KeyedSource | None = None
    downward_api: PodFieldSource | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: TokenFile | None = None


class ProjectedSource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`ProjectedVolumeSource`."""

    sources: list[ProjectedPart] | None = None
    default_mode: int = _DEFAULT_MODE


class ScratchSource(EmptyDirSource, frozen=True, rename="camel", kw_only=True, gc=False):
    """`EmptyDirVolumeSource`."""

    size_limit: str | None = None


class HostSource(HostPathSource, frozen=True, kw_only=True, gc=False):
    """`HostPathVolumeSource`; also `LocalVolumeSource`, which has no type."""

    type: str = ""


class ObjectName(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`SecretReference`; in a pod the namespace is the pod's."""

    name: str = ""
    namespace: str = ""


class CsiSource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`CSIVolumeSource` of a pod, or `CSIPersistentVolumeSource`."""

    driver: str = ""
    volume_handle: str = ""
    read_only: bool = False
    fs_type: str | None = None
    volume_attributes: dict[str, str] | None = None
    node_stage_secret_ref: ObjectName | None = None
    node_publish_secret_ref: ObjectName | None = None
    node_expand_secret_ref: ObjectName | None = None


class ClaimedSource(
    PersistentVolumeClaimSource, frozen=True, rename="camel", kw_only=True, gc=False
):
    """`PersistentVolumeClaimVolumeSource`."""

    read_only: bool = False


class PodVolumeSource(MigratedSources, frozen=True, rename="camel", kw_only=True, gc=False):
    """`Volume` of a pod."""

    name: str = ""
    empty_dir: ScratchSource | None = None
    host_path: HostSource | None = None
    config_map: KeyedSource | None = None
    secret: KeyedSource | None = None
    downward_api: PodFieldSource | None = msgspec.field(default=None, name="downwardAPI")
    projected: ProjectedSource | None = None
    persistent_volume_claim: ClaimedSource | None = None
    ephemeral: dict[str, Any] | None = None
    csi: CsiSource | None = None
    image: dict[str, Any] | None = None


class StoredSpec(MigratedSources, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PersistentVolumeSpec`."""

    capacity: dict[str, str] | None = None
    access_modes: list[str] = msgspec.field(default_factory=list)
    claim_ref: ClaimReference | None = None
    mount_options: list[str] | None = None
    volume_mode: str = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    local: HostSource | None = None
    host_path: HostSource | None = None


class StoredVolume(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PersistentVolume`."""

    spec: StoredSpec = msgspec.field(default_factory=StoredSpec)

    @property
    def size_bytes(self) -> int:
        """Its capacity, 0 if it has none."""
        return size_bytes((self.spec.capacity or {}).get("storage"))

    @property
    def access_mode(self) -> str:
        """The first access mode, with which drivers are called."""
        return next(iter(self.spec.access_modes), READ_WRITE_ONCE)

    @property
    def is_for_one_pod(self) -> bool:
        """Whether one pod at a time may use it."""
        return self.spec.access_modes == [READ_WRITE_ONCE_POD]


class MountedName(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`VolumeMount`, or `VolumeDevice`: the volume's name in the pod."""

    name: str = ""
    mount_path: str = ""


class RunsAs(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`SecurityContext` and `PodSecurityContext`."""

    run_as_user: int | None = None
    fs_group: int | None = None
    fs_group_change_policy: str | None = None


class MountingContainer(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`Container`."""

    name: str = ""
    volume_mounts: list[MountedName] | None = None
    volume_devices: list[MountedName] | None = None
    security_context: RunsAs | None = None
    resources: ResourceRequirements | None = None


class MountingSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PodSpec`."""

    volumes: list[PodVolumeSource] | None = None
    containers: list[MountingContainer] = msgspec.field(default_factory=list)
    init_containers: list[MountingContainer] | None = None
    security_context: RunsAs | None = None
    service_account_name: str = ""
    resources: ResourceRequirements | None = None


class MountingPod(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A pod, as far as its volumes depend on it."""

    spec: MountingSpec = msgspec.field(default_factory=MountingSpec)

    @property
    def uid(self) -> str:
        """Its UID."""
        return self.metadata.uid

    @property
    def all_containers(self) -> list[MountingContainer]:
        """Init containers, then the others."""
        return [*(self.spec.init_containers or ()), *self.spec.containers]

    @property
    def fs_group(self) -> int | None:
        """The group that owns its volumes."""
        return self.spec.security_context.fs_group if self.spec.security_context else None

    @property
    def changes_group_on_mismatch(self) -> bool:
        """Whether files keep their group where the volume's directory has the right one."""
        security = self.spec.security_context
        return security is not None and security.fs_group_change_policy == "OnRootMismatch"

    @property
    def fs_user(self) -> int | None:
        """The user that owns token files: the one user of all containers, None if they differ."""
        whole = self.spec.security_context
        users = {
            one.security_context.run_as_user
            if one.security_context and one.security_context.run_as_user is not None
            else (whole.run_as_user if whole else None)
            for one in self.all_containers
        }
        return users.pop() if len(users) == 1 else None

    @property
    def memory_limit_bytes(self) -> int:
        """The memory of its containers together, 0 if one of them has no limit."""
        if self.spec.resources and self.spec.resources.limits:
            whole = resources(self.spec.resources.limits).get(MEMORY, 0)
            if whole:
                return whole
        limits = [_memory(one) for one in self.spec.containers]
        if not limits or not all(limits):
            return 0
        return max([sum(limits), *(_memory(one) for one in self.spec.init_containers or ())])

    def volume(self, name: str) -> PodVolumeSource | None:
        """Return the volume of this name in the pod."""
        return next((one for one in self.spec.volumes or () if one.name == name), None)

    def used(self) -> tuple[set[str], set[str]]:
        """Return the names of the volumes that containers mount, and use as devices."""
        mounts = {one.name for each in self.all_containers for one in each.volume_mounts or ()}
        devices = {one.name for each in self.all_containers for one in each.volume_devices or ()}
        return mounts, devices


class DriverSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`CSIDriverSpec`."""

    attach_required: bool = True
    pod_info_on_mount: bool = False
    requires_republish: bool = False
    fs_group_policy: str = "ReadWriteOnceWithFSType"
    volume_lifecycle_modes: list[str] | None = None
    token_requests: list[TokenFile] | None = None


class DriverObject(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """`CSIDriver`."""

    spec: DriverSpec = msgspec.field(default_factory=DriverSpec)


class StoredClaimSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PersistentVolumeClaimSpec`."""

    volume_name: str = ""


class StoredClaimStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PersistentVolumeClaimStatus`."""

    phase: str = "Pending"
    capacity: dict[str, str] | None = None


class StoredClaim(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """`PersistentVolumeClaim`."""

    spec: StoredClaimSpec = msgspec.field(default_factory=StoredClaimSpec)
    status: StoredClaimStatus = msgspec.field(default_factory=StoredClaimStatus)

    @property
    def size_bytes(self) -> int:
        """The capacity in its status, 0 if it has none."""
        return size_bytes((self.status.capacity or {}).get("storage"))


class AttachmentStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`VolumeAttachmentStatus`."""

    attached: bool = False
    attachment_metadata: dict[str, str] | None = None


class AttachmentObject(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """`VolumeAttachment`."""

    status: AttachmentStatus = msgspec.field(default_factory=AttachmentStatus)


def size_bytes(text: str | None) -> int:
    """Return a quantity in bytes, 0 without one; raises QuantityError."""
    return quantity.parse(text, MEMORY) if text else 0


def _memory(container: MountingContainer) -> int:
    limits = container.resources.limits if container.resources else None
    return resources(limits).get(MEMORY, 0)
