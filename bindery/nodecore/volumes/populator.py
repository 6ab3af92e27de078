"""The populator: fills the desired state from the pods of the node."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.volumes.actual import ActualVolumes
from bindery.nodecore.volumes.desired import DesiredVolumes, VolumeConflictError
from bindery.nodecore.volumes.specs import VolumeSpec

_Found = TypeVar("_Found")


class VolumeError(NodeCoreError):
    """A volume of a pod cannot be used now; the pod's next round tries again."""


@dataclass(frozen=True)
class VolumeClaim:
    """A PersistentVolumeClaim.

    Attributes:
        volume: the PersistentVolume that it names, empty for none.
        is_bound: whether its phase is Bound.
        is_deleted: whether it is being deleted and nothing protects it any more.
        owner_uid: the pod that it was made for, empty for none.
    """

    uid: str
    volume: str = ""
    is_bound: bool = True
    is_deleted: bool = False
    owner_uid: str = ""
    size_bytes: int = 0


@dataclass(frozen=True)
class Volume:
    """A PersistentVolume.

    Attributes:
        spec: the volume as its plugin sees it; in-tree plugins are translated to CSI.
        claim_uid: the claim that it is bound to, None if it names none.
    """

    spec: VolumeSpec
    claim_uid: str | None = None


@dataclass(frozen=True)
class WantedVolume:
    """A volume in a pod's spec.

    Attributes:
        name: its name in the pod.
        claim: the claim that it names, None for other volumes.
        is_ephemeral: whether the claim is made for the pod.
        is_read_only: whether the claim is used read-only.
        spec: the volume, for volumes without claim.
        is_mounted: whether a container mounts it.
        is_device: whether a container uses it as a device.
    """

    name: str
    claim: str | None = None
    is_ephemeral: bool = False
    is_read_only: bool = False
    spec: VolumeSpec | None = None
    is_mounted: bool = True
    is_device: bool = False


@dataclass(frozen=True)
class PodVolumes:
    """A pod with its volumes.

    Attributes:
        is_terminating: whether its containers are to end.
        is_over: whether it needs nothing of the node any more.
    """

    uid: str
    name: str
    namespace: str
    volumes: Sequence[WantedVolume]
    is_terminating: bool = False
    is_over: bool = False


class VolumeApi(Protocol):
    """Claims and volumes of the API. A failed request raises VolumeError."""

    def claim(self, namespace: str, name: str) -> VolumeClaim:
        """Return a claim."""

    def volume(self, name: str) -> Volume:
        """Return a volume."""


def volume_spec(
    pod: PodVolumes, wanted: WantedVolume, cluster: VolumeApi
) -> tuple[VolumeSpec, VolumeClaim | None]:
    """Return the volume that a pod is to have, and its claim; raises VolumeError."""
    if wanted.claim is None and not wanted.is_ephemeral:
        if wanted.spec is None:
            raise VolumeError(f"volume {wanted.name} has no source")
        return wanted.spec, None
    name = wanted.claim if wanted.claim is not None else f"{pod.name}-{wanted.name}"
    claim = _about(pod, name, lambda: _checked(cluster.claim(pod.namespace, name)))
    if wanted.is_ephemeral and claim.owner_uid != pod.uid:
        raise VolumeError(
            f"PVC {pod.namespace}/{name} was not created for pod {pod.namespace}/{pod.name} "
            "(pod is not owner)"
        )
    volume = _about(pod, name, lambda: _bound(cluster.volume(claim.volume), claim))
    spec = volume.spec
    mode = "Block" if spec.is_block else "Filesystem"
    if wanted.is_mounted and spec.is_block:
        raise VolumeError(
            f"volume {wanted.name} has volumeMode {mode}, but is specified in volumeMounts"
        )
    if wanted.is_device and not spec.is_block:
        raise VolumeError(
            f"volume {wanted.name} has volumeMode {mode}, but is specified in volumeDevices"
        )
    return replace(spec, is_read_only=spec.is_read_only or wanted.is_read_only), claim


class Populator:
    """Brings the volumes of pods into the desired state, and takes them out again."""

    def __init__(
        self,
        desired: DesiredVolumes,
        actual: ActualVolumes,
        cluster: VolumeApi,
        clock: Callable[[], float],
    ) -> None:
        self._desired = desired
        self._actual = actual
        self._cluster = cluster
        self._clock = clock
        self._processed: dict[str, bool] = {}
        self.has_added_pods = False

    def run_once(self, pods: Sequence[PodVolumes], *, sources_ready: bool) -> None:
        """Add the volumes of all pods of the node, then remove the volumes of deleted pods."""
        self.find_and_add_new_pods(pods)
        self.find_and_remove_deleted_pods(pods)
        self.has_added_pods = self.has_added_pods or sources_ready

    def find_and_add_new_pods(self, pods: Sequence[PodVolumes]) -> None:
        """Add the volumes of pods that have not been looked at.

        Before the desired state is whole, pods that are ending are looked at too: their volumes
        must not be taken away while their containers run.
        """
        for pod in pods:
            is_skipped = pod.is_terminating if self.has_added_pods else pod.is_over
            if not is_skipped and not self._processed.get(pod.uid, False):
                self._process(pod)

    def find_and_remove_deleted_pods(self, pods: Sequence[PodVolumes]) -> None:
        """Remove the volumes of pods that need nothing of the node any more."""
        known = {pod.uid: pod for pod in pods}
        in_desired = set()
        for pod_uid in self._desired.pods():
            in_desired.add(pod_uid)
            pod = known.get(pod_uid)
            if pod is not None and not pod.is_over:
                continue
            for mount in self._desired.volumes_of_pod(pod_uid):
                if pod is not None and self._actual.is_removed(pod_uid, mount.volume):
                    continue  # it was never mounted; the pod may still be about to start
                self._desired.delete_pod_from_volume(pod_uid, mount.volume)
                self._processed.pop(pod_uid, None)
        for uid in self._processed.keys() - in_desired - known.keys():
            del self._processed[uid]
        for uid in self._desired.pods_with_errors():
            if uid not in known:
                self._desired.pop_pod_errors(uid)

    def reprocess_pod(self, pod_uid: str) -> None:
        """Look at the pod once more in the next round."""
        self._processed[pod_uid] = False

    def is_processed(self, pod_uid: str) -> bool:
        """Return whether the pod needs no further look before `reprocess_pod`."""
        return self._processed.get(pod_uid, False)

    def _process(self, pod: PodVolumes) -> None:
        has_all = True
        for wanted in pod.volumes:
            if not (wanted.is_mounted or wanted.is_device):
                continue
            try:
                spec, claim = volume_spec(pod, wanted, self._cluster)
                name = self._desired.add_pod_to_volume(pod.uid, spec, wanted.name, self._clock())
            except (VolumeError, VolumeConflictError) as error:
                self._desired.add_error_to_pod(pod.uid, str(error))
                has_all = False
                continue
            if claim is not None and not spec.is_read_only:
                self._desired.update_size(name, spec.size_bytes)
                self._actual.initialize_size(name, claim.size_bytes)
        if has_all:
            self._processed[pod.uid] = True
            self._actual.mark_remount_required(pod.uid)
            self._desired.pop_pod_errors(pod.uid)
        elif pod.uid in self._processed:
            self._processed[pod.uid] = True  # seen before: the next look is asked for


def _about(pod: PodVolumes, claim: str, find: Callable[[], _Found]) -> _Found:
    """Return what `find` returns; its errors name the claim."""
    try:
        return find()
    except VolumeError as error:
        raise VolumeError(f"error processing PVC {pod.namespace}/{claim}: {error}") from error


def _checked(claim: VolumeClaim) -> VolumeClaim:
    if claim.is_deleted:
        raise VolumeError("PVC is being deleted")
    if not claim.is_bound:
        raise VolumeError("PVC is not bound")
    if not claim.volume:
        raise VolumeError("PVC has empty pvc.Spec.VolumeName")
    return claim


def _bound(volume: Volume, claim: VolumeClaim) -> Volume:
    if volume.claim_uid is None:
        raise VolumeError(
            f"found PV object {claim.volume} but it has a nil pv.Spec.ClaimRef indicating it is "
            "not yet bound to the claim"
        )
    if volume.claim_uid != claim.uid:
        raise VolumeError(
            f"found PV object {claim.volume} but its pv.Spec.ClaimRef.UID {volume.claim_uid} does "
            f"not point to claim.UID {claim.uid}"
        )
    return volume
