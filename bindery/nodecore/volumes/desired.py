"""The desired state: which volumes which pods are to have."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.volumes.specs import VolumeSpec, unique_name

MOST_ERRORS: Final = 10


class VolumeConflictError(NodeCoreError):
    """Pods want one volume with different SELinux labels."""


@dataclass(frozen=True)
class PodVolume:
    """A volume of a pod with its names there: one claim can be used by several volumes."""

    spec: VolumeSpec
    outer_names: tuple[str, ...]
    requested_at_s: float = 0.0


@dataclass(frozen=True)
class VolumeToMount:
    """A desired mount.

    Attributes:
        volume: the volume's name on the node.
        is_attachable: whether it is attached to the node first.
        is_reported_in_use: whether the node's status names it.
        size_bytes: the desired size, 0 for any size.
        outer_names: its names in the pod.
    """

    volume: str
    pod_uid: str
    spec: VolumeSpec
    is_attachable: bool
    is_reported_in_use: bool
    size_bytes: int
    requested_at_s: float
    outer_names: tuple[str, ...] = ()


@dataclass
class _Desired:
    spec: VolumeSpec
    is_attachable: bool
    size_bytes: int
    is_reported_in_use: bool = False
    pods: dict[str, PodVolume] = field(default_factory=dict)


class DesiredVolumes:
    """The desired state of the node's volumes."""

    def __init__(self) -> None:
        self._volumes: dict[str, _Desired] = {}
        self._errors: dict[str, list[str]] = {}
        self._of_pod: dict[str, set[str]] = {}
        self._changed: set[str] = set()

    def take_changed(self) -> set[str]:
        """Return the volumes that have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def add_pod_to_volume(
        self, pod_uid: str, spec: VolumeSpec, outer_name: str, now_s: float = 0.0
    ) -> str:
        """Record that the pod is to have the volume; return the volume's name on the node.

        Raises:
            VolumeConflictError: another pod is to have it with another SELinux label.
        """
        name = unique_name(spec, pod_uid)
        self._changed.add(name)
        fresh = _Desired(spec, spec.is_attachable, spec.size_bytes)
        volume = self._volumes.setdefault(name, fresh)
        before = volume.pods.get(pod_uid)
        if before is None and spec.selinux_label != volume.spec.selinux_label:
            raise VolumeConflictError(
                f"conflicting SELinux labels of volume {spec.name}: "
                f'"{volume.spec.selinux_label}" and "{spec.selinux_label}"'
            )
        if before is None:
            self._of_pod.setdefault(pod_uid, set()).add(name)
            volume.pods[pod_uid] = PodVolume(spec, (outer_name,), now_s)
            return name
        names = before.outer_names
        volume.pods[pod_uid] = replace(
            before,
            spec=spec,
            outer_names=names if outer_name in names else (*names, outer_name),
            requested_at_s=now_s if spec.requires_remount else before.requested_at_s,
        )
        return name

    def delete_pod_from_volume(self, pod_uid: str, volume: str) -> None:
        """Record that the pod is not to have the volume any more."""
        self._errors.pop(pod_uid, None)
        found = self._volumes.get(volume)
        if found is not None and found.pods.pop(pod_uid, None) is not None:
            self._changed.add(volume)
            self._of_pod[pod_uid].remove(volume)
            if not self._of_pod[pod_uid]:
                del self._of_pod[pod_uid]
            if not found.pods:
                del self._volumes[volume]

    def mark_volumes_reported_in_use(self, reported: Collection[str]) -> None:
        """Record which volumes the node's status names as in use."""
        for name, volume in self._volumes.items():
            is_reported = name in reported
            if is_reported != volume.is_reported_in_use:
                volume.is_reported_in_use = is_reported
                self._changed.add(name)

    def mark_volume_attachability(self, volume: str, *, is_attachable: bool) -> None:
        """Record that a volume is attached, or no longer attached, by a controller."""
        if volume in self._volumes:
            self._volumes[volume].is_attachable = is_attachable
            self._changed.add(volume)

    def update_size(self, volume: str, size_bytes: int) -> None:
        """Record the size that a volume is to have."""
        if volume in self._volumes:
            self._volumes[volume].size_bytes = size_bytes
            self._changed.add(volume)

    def volume_exists(self, volume: str, selinux_label: str = "") -> bool:
        """Return whether any pod is to have the volume with this label."""
        found = self._volumes.get(volume)
        return found is not None and found.spec.selinux_label == selinux_label

    def pod_exists_in_volume(self, pod_uid: str, volume: str, selinux_label: str = "") -> bool:
        """Return whether the pod is to have the volume with this label."""
        return self.volume_exists(volume, selinux_label) and pod_uid in self._volumes[volume].pods

    def volume_exists_with_spec_name(self, pod_uid: str, name: str) -> bool:
        """Return whether the pod is to have a volume whose spec has this name."""
        return any(
            self._volumes[volume].pods[pod_uid].spec.name == name
            for volume in self._of_pod.get(pod_uid, ())
        )

    def volumes_to_mount(self, only: Iterable[str] | None = None) -> list[VolumeToMount]:
        """Return all desired mounts, or those of some volumes, in the order of volumes and pods."""
        names = self._volumes if only is None else self._volumes.keys() & set(only)
        return [
            self._to_mount(name, pod_uid)
            for name in sorted(names)
            for pod_uid in sorted(self._volumes[name].pods)
        ]

    def volumes_of_pod(self, pod_uid: str) -> list[VolumeToMount]:
        """Return the desired mounts of a pod, in the order of volumes."""
        return [self._to_mount(name, pod_uid) for name in sorted(self._of_pod.get(pod_uid, ()))]

    def pods(self) -> list[str]:
        """Return the pods that are to have volumes."""
        return list(self._of_pod)

    def names_of_pod(self, pod_uid: str) -> dict[str, str]:
        """Return the pod's volumes: the name in the pod -> the name on the node."""
        return {
            outer: name
            for name in sorted(self._of_pod.get(pod_uid, ()))
            for outer in self._volumes[name].pods[pod_uid].outer_names
        }

    def _to_mount(self, name: str, pod_uid: str) -> VolumeToMount:
        volume = self._volumes[name]
        pod = volume.pods[pod_uid]
        return VolumeToMount(
            name,
            pod_uid,
            pod.spec,
            volume.is_attachable,
            volume.is_reported_in_use,
            volume.size_bytes,
            pod.requested_at_s,
            pod.outer_names,
        )

    def add_error_to_pod(self, pod_uid: str, error: str) -> None:
        """Record an error of the pod's volumes; at most ten are kept."""
        errors = self._errors.setdefault(pod_uid, [])
        if error not in errors and len(errors) < MOST_ERRORS:
            errors.append(error)

    def pop_pod_errors(self, pod_uid: str) -> list[str]:
        """Return the pod's errors in order, and forget them."""
        return sorted(self._errors.pop(pod_uid, []))

    def pods_with_errors(self) -> list[str]:
        """Return the pods that have errors."""
        return sorted(self._errors)
