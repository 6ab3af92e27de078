"""The volumes of pods as `nodecore` sees them: claims and PersistentVolumes are read for them.

`fetch` reads what a pod's volumes name. The answers, and the errors, wait for the populator, which
asks without waiting.
"""

from typing import Final

import msgspec

from bindery.kube.objects.disks import migrated
from bindery.nodeagent.volumes.emptydir import EMPTY_DIR
from bindery.nodeagent.volumes.filevolumes import CONFIG_MAP, DOWNWARD_API, PROJECTED, SECRET
from bindery.nodeagent.volumes.hostpath import HOST_PATH
from bindery.nodeagent.volumes.interface import PodMount, VolumeObjects
from bindery.nodeagent.volumes.local import LOCAL
from bindery.nodeagent.volumes.sources import (
    BLOCK,
    CsiSource,
    DriverSpec,
    MountingPod,
    PodVolumeSource,
    StoredClaim,
    StoredSpec,
    StoredVolume,
)
from bindery.nodecore.volumes.populator import (
    PodVolumes,
    Volume,
    VolumeClaim,
    VolumeError,
    WantedVolume,
)
from bindery.nodecore.volumes.specs import CSI_PLUGIN, VolumeSpec

_BOUND: Final = "Bound"
_GID: Final = "pv.beta.kubernetes.io/gid"


class Catalogue:
    """What is known of the volumes of pods."""

    def __init__(self, objects: VolumeObjects) -> None:
        self._objects = objects
        self._claims: dict[tuple[str, str], StoredClaim | VolumeError] = {}
        self._volumes: dict[str, StoredVolume | VolumeError] = {}
        self._drivers: dict[str, DriverSpec] = {}

    async def fetch(self, pod: MountingPod) -> None:
        """Read the claims, volumes and drivers that the pod's volumes name."""
        for source in pod.spec.volumes or ():
            name = claim_of(pod, source)
            if name is not None:
                await self._fetch_claim(pod.metadata.namespace, name)
            elif source.csi is not None:
                await self._fetch_driver(source.csi.driver)
            elif (inline := translated(source)) is not None:
                self._volumes[inline.metadata.name] = inline
                await self._fetch_driver(inline.spec.csi.driver if inline.spec.csi else "")

    def claim(self, namespace: str, name: str) -> VolumeClaim:
        """Return a claim; raises VolumeError."""
        found = self._claims.get((namespace, name), VolumeError("it has not been read yet"))
        if isinstance(found, VolumeError):
            raise found
        meta = found.metadata
        owner = next((one.uid for one in meta.owner_references if one.controller), "")
        return VolumeClaim(
            meta.uid,
            found.spec.volume_name,
            is_bound=found.status.phase == _BOUND,
            is_deleted=meta.deletion_timestamp is not None and not meta.finalizers,
            owner_uid=owner,
            size_bytes=found.size_bytes,
        )

    def volume(self, name: str) -> Volume:
        """Return a volume; raises VolumeError."""
        found = self._volumes.get(name, VolumeError("it has not been read yet"))
        if isinstance(found, VolumeError):
            raise found
        claim = found.spec.claim_ref
        return Volume(self._stored_spec(found), claim.uid or None if claim else None)

    def stored(self, name: str) -> StoredVolume | None:
        """Return a PersistentVolume, None if it could not be read."""
        found = self._volumes.get(name)
        return None if isinstance(found, VolumeError) else found

    def claim_of_volume(self, volume: StoredVolume) -> StoredClaim | None:
        """Return the claim that has the volume, None if it could not be read."""
        of = volume.spec.claim_ref
        found = self._claims.get((of.namespace, of.name)) if of is not None else None
        return None if isinstance(found, VolumeError) else found

    def has_grown(self, volume: StoredVolume) -> None:
        """Record its size in the status of its claim."""
        claim = self.claim_of_volume(volume)
        if claim is not None:
            status = msgspec.structs.replace(claim.status, capacity=volume.spec.capacity)
            key = claim.metadata.namespace, claim.metadata.name
            self._claims[key] = msgspec.structs.replace(claim, status=status)

    def pod_volumes(self, pod: MountingPod, *, is_terminating: bool, is_over: bool) -> PodVolumes:
        """Return the pod as the populator reads it."""
        mounts, devices = pod.used()
        return PodVolumes(
            pod.uid,
            pod.metadata.name,
            pod.metadata.namespace,
            [
                self._wanted(source, (source.name in mounts, source.name in devices))
                for source in pod.spec.volumes or ()
                if source.image is None  # the runtime mounts images
            ],
            is_terminating=is_terminating,
            is_over=is_over,
        )

    def mount(self, pod: MountingPod, spec: VolumeSpec) -> PodMount:
        """Return the volume for the pod with its source."""
        stored = self.stored(spec.name) if spec.is_shared or pod.volume(spec.name) is None else None
        return PodMount(pod, spec, None if stored else pod.volume(spec.name), stored)

    async def _fetch_claim(self, namespace: str, name: str) -> None:
        try:
            claim = await self._objects.claim(namespace, name)
        except VolumeError as error:
            self._claims[namespace, name] = error
            return
        self._claims[namespace, name] = claim
        if not claim.spec.volume_name:
            return
        try:
            found = await self._objects.volume(claim.spec.volume_name)
            volume = with_csi(found)
            if volume.spec.csi is not None:
                await self._fetch_driver(volume.spec.csi.driver)
        except VolumeError as error:
            self._volumes[claim.spec.volume_name] = error
        else:
            self._volumes[claim.spec.volume_name] = volume

    async def _fetch_driver(self, name: str) -> None:
        found = await self._objects.driver(name)
        self._drivers[name] = found.spec if found else DriverSpec()

    def _wanted(self, source: PodVolumeSource, used: tuple[bool, bool]) -> WantedVolume:
        is_mounted, is_device = used
        claimed = source.persistent_volume_claim
        return WantedVolume(
            source.name,
            claimed.claim_name if claimed else None,
            is_ephemeral=source.ephemeral is not None,
            is_read_only=claimed.read_only if claimed else False,
            spec=self._own_spec(source),
            is_mounted=is_mounted,
            is_device=is_device,
        )

    def _own_spec(self, source: PodVolumeSource) -> VolumeSpec | None:
        """Return the volume of a pod without claim, None for kinds that the node cannot mount."""
        if source.csi is not None:
            settings = self._drivers.get(source.csi.driver, DriverSpec())
            return VolumeSpec(
                source.name,
                CSI_PLUGIN,
                requires_remount=settings.requires_republish,
                is_read_only=source.csi.read_only,
            )
        if source.empty_dir is not None:
            return VolumeSpec(source.name, EMPTY_DIR)
        if source.host_path is not None:
            return VolumeSpec(source.name, HOST_PATH)
        kinds = {
            CONFIG_MAP: source.config_map, SECRET: source.secret,
            DOWNWARD_API: source.downward_api, PROJECTED: source.projected,
        }  # fmt: skip
        for plugin, declared in kinds.items():
            if declared is not None:
                return VolumeSpec(source.name, plugin, requires_remount=True)
        inline = translated(source)
        return self._stored_spec(inline) if inline is not None else None

    def _stored_spec(self, volume: StoredVolume) -> VolumeSpec:
        name, spec = volume.metadata.name, volume.spec
        is_block = spec.volume_mode == BLOCK
        gid = volume.metadata.annotations.get(_GID, "")
        if spec.csi is not None:
            settings = self._drivers.get(spec.csi.driver, DriverSpec())
            return VolumeSpec(
                name,
                CSI_PLUGIN,
                f"{spec.csi.driver}^{spec.csi.volume_handle}",
                is_attachable=settings.attach_required,
                is_device_mountable=True,
                requires_remount=settings.requires_republish,
                is_expandable=spec.claim_ref is not None,
                is_block=is_block,
                size_bytes=volume.size_bytes,
                gid=gid,
            )
        if spec.local is not None:
            return VolumeSpec(
                name, LOCAL, name, is_device_mountable=True, is_block=is_block, gid=gid
            )
        if spec.host_path is not None:
            return VolumeSpec(name, HOST_PATH, is_block=is_block, gid=gid)
        raise VolumeError(
            f'failed to get Plugin from volumeSpec for volume "{name}" err=no volume plugin matched'
        )


def claim_of(pod: MountingPod, source: PodVolumeSource) -> str | None:
    """Return the name of the claim that a volume uses, None without one."""
    if source.persistent_volume_claim is not None:
        return source.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{source.name}" if source.ephemeral is not None else None


def with_csi(volume: StoredVolume) -> StoredVolume:
    """Return a volume of an in-tree plugin as one of the CSI driver that serves it."""
    found = migrated(volume.spec, volume.metadata.labels)
    if volume.spec.csi is not None or found is None:
        return volume
    csi = CsiSource(driver=found.driver, volume_handle=found.handle)
    return msgspec.structs.replace(volume, spec=msgspec.structs.replace(volume.spec, csi=csi))


def translated(source: PodVolumeSource) -> StoredVolume | None:
    """Return a pod's own in-tree volume as a PersistentVolume of CSI, None for other kinds."""
    found = migrated(source, {})
    if found is None:
        return None
    csi = CsiSource(driver=found.driver, volume_handle=found.handle)
    name = f"{found.driver}-{found.handle.rpartition('/')[2]}"
    meta = msgspec.structs.replace(StoredVolume().metadata, name=name)
    spec = StoredSpec(csi=csi, access_modes=["ReadWriteOnce"])
    return StoredVolume(metadata=meta, spec=spec)
