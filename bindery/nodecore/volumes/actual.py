"""The actual state: which volumes are attached, and where they are mounted."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.volumes.specs import VolumeSpec


class VolumeStateError(NodeCoreError):
    """The volume is not attached, or still in use."""


class MountState(StrEnum):
    """Whether a volume is mounted for a pod, or a device for the node."""

    MOUNTED = "VolumeMounted"
    UNCERTAIN = "VolumeMountUncertain"
    NOT_MOUNTED = "VolumeNotMounted"


class Failure(StrEnum):
    """How much is known of a mount that has failed.

    Attributes:
        FINAL: it has failed and does not run any more; every error without a kind is final.
        UNCERTAIN: it may still run, as after a timeout.
        TRANSIENT: it has not begun, as when the plugin has not registered yet.
    """

    FINAL = "final"
    UNCERTAIN = "uncertain"
    TRANSIENT = "transient"


class Found(StrEnum):
    """The actual state of a desired mount."""

    NOT_ATTACHED = "NotAttached"
    SELINUX_MISMATCH = "SELinuxMismatch"
    NOT_MOUNTED = "NotMounted"
    REMOUNT_REQUIRED = "RemountRequired"
    RESIZE_REQUIRED = "FsResizeRequired"
    MOUNTED = "Mounted"


@dataclass
class MountedPod:
    """A volume in a pod."""

    spec: VolumeSpec
    state: MountState = MountState.MOUNTED
    remount_required: bool = False
    is_reconstructed: bool = False


@dataclass
class AttachedVolume:
    """A volume on the node.

    Attributes:
        name: its name on the node.
        is_attachable: whether the node detaches it; None for a volume that was found after a
            restart, until the node's status has it.
        device: whether it is mounted for the node.
        size_bytes: the size that it has, 0 if it is not known.
        expansion_failed: whether growing it in use failed for good.
        selinux_label: the label of its first mount, None before that; it stays until the volume is
            detached.
        is_device_reconstructed: whether the mount was found after a restart.
        pods: pod UID -> its mount.
    """

    name: str
    spec: VolumeSpec
    device_path: str = ""
    is_attachable: bool | None = None
    device: MountState = MountState.NOT_MOUNTED
    size_bytes: int = 0
    expansion_failed: bool = False
    selinux_label: str | None = None
    is_device_reconstructed: bool = False
    pods: dict[str, MountedPod] = field(default_factory=dict)

    @property
    def device_may_be_mounted(self) -> bool:
        """Whether the mount for the node has to be taken away before the volume."""
        return self.device in (MountState.MOUNTED, MountState.UNCERTAIN)


class ActualVolumes:
    """The actual state of the node's volumes."""

    def __init__(self) -> None:
        self._volumes: dict[str, AttachedVolume] = {}
        self._of_pod: dict[str, set[str]] = {}
        self._changed: set[str] = set()

    def take_changed(self) -> set[str]:
        """Return the volumes that have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def mark_volume_as_attached(
        self, volume: str, spec: VolumeSpec, device_path: str = "", *, is_certain: bool = True
    ) -> None:
        """Record that the volume is attached, or only the path of its device if it is already.

        `is_certain` is false for a volume that was found after a restart.
        """
        self._changed.add(volume)
        found = self._volumes.get(volume)
        if found is None:
            is_attachable = spec.is_attachable if is_certain else None
            self._volumes[volume] = AttachedVolume(volume, spec, device_path, is_attachable)
        else:
            found.device_path = device_path

    def update_reconstructed(self, volume: str, device_path: str | None) -> None:
        """Record the node's status of a volume that was found after a restart.

        `device_path` is None if the node's status does not name the volume.
        """
        self._changed.add(volume)
        found = self._volumes.get(volume)
        if found is None:
            return
        if device_path is not None and found.device == MountState.UNCERTAIN:
            found.device_path = device_path
        if found.is_attachable is None:
            found.is_attachable = device_path is not None

    def mark_volume_as_detached(self, volume: str) -> None:
        """Record that the volume is detached; raises VolumeStateError if pods still have it."""
        self._changed.add(volume)
        found = self._volumes.get(volume)
        if found is not None and found.pods:
            raise VolumeStateError(
                f"failed to DeleteVolume {volume!r}, it still has {len(found.pods)} mountedPods"
            )
        self._volumes.pop(volume, None)

    def mark_volume_as_mounted(
        self, volume: str, pod_uid: str, spec: VolumeSpec, state: MountState = MountState.MOUNTED
    ) -> None:
        """Record that the pod has the volume, for certain or perhaps.

        A pod that has it for certain keeps the spec that it was mounted with.

        Raises:
            VolumeStateError: the volume is not attached.
        """
        self._changed.add(volume)
        attached = self._attached(volume)
        before = attached.pods.get(pod_uid)
        if before is None or before.state == MountState.UNCERTAIN:
            is_found = before is not None and before.is_reconstructed
            before = MountedPod(spec, is_reconstructed=is_found)
        before.state = state
        before.remount_required = False
        before.is_reconstructed = before.is_reconstructed and state != MountState.MOUNTED
        attached.pods[pod_uid] = before
        self._of_pod.setdefault(pod_uid, set()).add(volume)
        if attached.selinux_label is None:
            attached.selinux_label = spec.selinux_label

    def mark_volume_as_unmounted(self, volume: str, pod_uid: str) -> None:
        """Record that the pod has the volume no more; raises VolumeStateError if detached."""
        self._changed.add(volume)
        if self._attached(volume).pods.pop(pod_uid, None) is not None:
            self._of_pod[pod_uid].remove(volume)
            if not self._of_pod[pod_uid]:
                del self._of_pod[pod_uid]

    def mark_volume_as_reconstructed(
        self, volume: str, pod_uid: str, spec: VolumeSpec, device_path: str = ""
    ) -> None:
        """Record a mount that was found after a restart: nothing of it is certain."""
        self._changed.add(volume)
        self.mark_volume_as_attached(volume, spec, device_path, is_certain=False)
        attached = self._volumes[volume]
        if pod_uid not in attached.pods:
            attached.pods[pod_uid] = MountedPod(spec, MountState.UNCERTAIN, is_reconstructed=True)
            self._of_pod.setdefault(pod_uid, set()).add(volume)
        if spec.is_device_mountable:
            self.mark_device_as_reconstructed(volume, spec, device_path)

    def mark_device_as_reconstructed(
        self, volume: str, spec: VolumeSpec, device_path: str = ""
    ) -> None:
        """Record a mount for the node that was found after a restart: it is uncertain."""
        self.mark_volume_as_attached(volume, spec, device_path, is_certain=False)
        self.mark_device_as_uncertain(volume, device_path, spec.selinux_label)
        self._volumes[volume].is_device_reconstructed = True

    def mark_device_as_mounted(
        self, volume: str, device_path: str = "", selinux_label: str = ""
    ) -> None:
        """Record that the node has the mount; raises VolumeStateError if detached."""
        self._set_device(volume, MountState.MOUNTED, device_path, selinux_label)

    def mark_device_as_uncertain(
        self, volume: str, device_path: str = "", selinux_label: str = ""
    ) -> None:
        """Record that the node may have the mount; raises VolumeStateError if detached."""
        self._set_device(volume, MountState.UNCERTAIN, device_path, selinux_label)

    def mark_device_as_unmounted(self, volume: str) -> None:
        """Record that the node has no mount; raises VolumeStateError if detached."""
        self._set_device(volume, MountState.NOT_MOUNTED)

    def mark_mount_failed(
        self, volume: str, pod_uid: str, spec: VolumeSpec, failure: Failure = Failure.FINAL
    ) -> None:
        """Record that a mount for a pod has failed. A mount that was there stays.

        After a final error an uncertain mount is not there, unless it was found after a restart.
        After an uncertain error a mount that was not there is uncertain. A transient error changes
        nothing.

        Raises:
            VolumeStateError: the volume is not attached.
        """
        before = self._attached(volume).pods.get(pod_uid)
        if before is None:
            if failure == Failure.UNCERTAIN:
                self.mark_volume_as_mounted(volume, pod_uid, spec, MountState.UNCERTAIN)
        elif (
            before.state == MountState.UNCERTAIN
            and failure == Failure.FINAL
            and not before.is_reconstructed
        ):
            self.mark_volume_as_unmounted(volume, pod_uid)

    def mark_growth_failed(self, volume: str, pod_uid: str, spec: VolumeSpec) -> None:
        """Record that the file system did not grow while the volume was mounted for a pod.

        The mount is there, so it has to go; the pod must not use it, so it is uncertain.
        Raises VolumeStateError if detached.
        """
        self.mark_volume_as_mounted(volume, pod_uid, spec, MountState.UNCERTAIN)

    def mark_unmount_failed(self, volume: str, pod_uid: str, spec: VolumeSpec) -> None:
        """Record that a pod may have only a part of its mount; raises VolumeStateError."""
        self.mark_volume_as_mounted(volume, pod_uid, spec, MountState.UNCERTAIN)

    def mark_device_mount_failed(
        self, volume: str, failure: Failure = Failure.FINAL, device_path: str = ""
    ) -> None:
        """Record a failed mount for the node like `mark_mount_failed`; raises VolumeStateError."""
        attached = self._attached(volume)
        if attached.device == MountState.NOT_MOUNTED and failure == Failure.UNCERTAIN:
            self.mark_device_as_uncertain(volume, device_path)
        elif (
            attached.device == MountState.UNCERTAIN
            and failure == Failure.FINAL
            and not attached.is_device_reconstructed
        ):
            self.mark_device_as_unmounted(volume)

    def mark_remount_required(self, pod_uid: str) -> None:
        """Record that the pod has changed: its volumes that show it are mounted again."""
        for volume in self._of_pod.get(pod_uid, ()):
            mounted = self._volumes[volume].pods[pod_uid]
            if mounted.spec.requires_remount:
                mounted.remount_required = True
                self._changed.add(volume)

    def initialize_size(self, volume: str, size_bytes: int) -> None:
        """Record the size that the volume has, if it is not known yet."""
        self._changed.add(volume)
        found = self._volumes.get(volume)
        if found is not None and found.size_bytes == 0:
            found.size_bytes = size_bytes

    def mark_volume_as_resized(self, volume: str, size_bytes: int) -> None:
        """Record the size that the volume has now."""
        self._changed.add(volume)
        if volume in self._volumes:
            self._volumes[volume].size_bytes = size_bytes

    def mark_expansion_failed(self, volume: str) -> None:
        """Record that the volume cannot grow while pods use it."""
        self._changed.add(volume)
        if volume in self._volumes:
            self._volumes[volume].expansion_failed = True

    def pod_in_volume(
        self, pod_uid: str, volume: str, size_bytes: int = 0, selinux_label: str = ""
    ) -> Found:
        """Return what there is of the mount of the volume for the pod."""
        attached = self._volumes.get(volume)
        if attached is None:
            return Found.NOT_ATTACHED
        if attached.selinux_label is not None and attached.selinux_label != selinux_label:
            return Found.SELINUX_MISMATCH
        mounted = attached.pods.get(pod_uid)
        if mounted is None or mounted.state == MountState.UNCERTAIN:
            return Found.NOT_MOUNTED
        if mounted.remount_required:
            return Found.REMOUNT_REQUIRED
        return Found.RESIZE_REQUIRED if _must_grow(attached, size_bytes) else Found.MOUNTED

    def is_removed(self, pod_uid: str, volume: str) -> bool:
        """Return whether the pod does not have the volume, not even perhaps."""
        attached = self._volumes.get(volume)
        return attached is None or pod_uid not in attached.pods

    def is_mounted_elsewhere(self, volume: str, pod_uid: str) -> bool:
        """Return whether a pod other than `pod_uid` has the volume, certain or not."""
        attached = self._volumes.get(volume)
        return attached is not None and bool(attached.pods.keys() - {pod_uid})

    def volume_exists_with_spec_name(self, pod_uid: str, name: str) -> bool:
        """Return whether the pod has a volume whose spec has this name, certain or not."""
        return any(
            self._volumes[volume].pods[pod_uid].spec.name == name
            for volume in self._of_pod.get(pod_uid, ())
        )

    def volume(self, volume: str) -> AttachedVolume | None:
        """Return the volume, None if it is not attached."""
        return self._volumes.get(volume)

    def attached_volumes(self, only: Iterable[str] | None = None) -> list[AttachedVolume]:
        """Return all volumes on the node, or those of some names, in order."""
        names = self._volumes if only is None else self._volumes.keys() & set(only)
        return [self._volumes[name] for name in sorted(names)]

    def unmounted_volumes(self) -> list[AttachedVolume]:
        """Return the volumes that no pod has."""
        return [volume for volume in self.attached_volumes() if not volume.pods]

    def globally_mounted_volumes(self) -> list[AttachedVolume]:
        """Return the volumes that are mounted for the node."""
        return [one for one in self.attached_volumes() if one.device == MountState.MOUNTED]

    def all_mounted(self) -> list[tuple[str, str, MountedPod]]:
        """Return volume, pod and mount of all mounts, certain or not."""
        return [
            (volume.name, pod_uid, mounted)
            for volume in self.attached_volumes()
            for pod_uid, mounted in sorted(volume.pods.items())
        ]

    def mounted_volumes(self) -> list[tuple[str, str, MountedPod]]:
        """Return volume, pod and mount of the mounts that are certain."""
        return [one for one in self.all_mounted() if one[2].state == MountState.MOUNTED]

    def mounted_of_pod(self, pod_uid: str, *, possibly: bool = False) -> list[str]:
        """Return the volumes that the pod has; with `possibly`, the uncertain ones too."""
        return [
            volume
            for volume in sorted(self._of_pod.get(pod_uid, ()))
            if possibly or self._volumes[volume].pods[pod_uid].state == MountState.MOUNTED
        ]

    def _set_device(
        self, volume: str, state: MountState, device_path: str = "", selinux_label: str = ""
    ) -> None:
        self._changed.add(volume)
        attached = self._attached(volume)
        attached.device = state
        attached.device_path = device_path or attached.device_path
        attached.selinux_label = selinux_label or attached.selinux_label

    def _attached(self, volume: str) -> AttachedVolume:
        if volume not in self._volumes:
            raise VolumeStateError(
                f"no volume with the name {volume!r} exists in the list of attached volumes"
            )
        return self._volumes[volume]


def _must_grow(attached: AttachedVolume, size_bytes: int) -> bool:
    return (
        attached.spec.is_expandable
        and not attached.expansion_failed
        and attached.size_bytes > 0
        and size_bytes > attached.size_bytes
    )
