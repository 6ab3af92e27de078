"""The steps from the actual to the desired state of volumes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bindery.nodecore.operations import OperationKey, PendingOperations
from bindery.nodecore.volumes.actual import ActualVolumes, AttachedVolume, Found
from bindery.nodecore.volumes.desired import DesiredVolumes, VolumeToMount
from bindery.nodecore.volumes.specs import VolumeSpec


class StepKind(StrEnum):
    """The operation of a step on a volume."""

    UNMOUNT = "volume_unmount"
    MOUNT = "volume_mount"
    REMOUNT = "volume_remount"
    VERIFY_ATTACHED = "verify_controller_attached_volume"
    ATTACH = "volume_attach"
    EXPAND = "expand_in_use_volume"
    UNMOUNT_DEVICE = "unmount_device"
    DETACH = "volume_detach"
    MARK_DETACHED = "mark_detached"
    REPORT_ERROR = "report_error"


@dataclass(frozen=True)
class Step:
    """A step.

    Attributes:
        volume: the volume's name on the node.
        pod_uid: the pod, empty for steps that concern no single pod.
        message: the error to report.
    """

    kind: StepKind
    volume: str
    spec: VolumeSpec
    pod_uid: str = ""
    message: str = ""

    @property
    def key(self) -> OperationKey:
        """The key of the step's operation.

        A mount of a volume that the node has once excludes all operations on the volume.
        """
        if self.kind == StepKind.UNMOUNT:
            return OperationKey(self.volume, self.pod_uid)
        if self.kind in (StepKind.MOUNT, StepKind.REMOUNT) and not self.spec.is_shared:
            return OperationKey(self.volume, self.pod_uid)
        return OperationKey(self.volume)


@dataclass(frozen=True)
class Readiness:
    """Whether volumes may be taken away.

    Attributes:
        has_added_pods: whether the desired state has all pods.
        waits_for_node_status: the volumes found after a restart whose devices are not known yet.
    """

    has_added_pods: bool
    waits_for_node_status: frozenset[str] = frozenset()

    @property
    def may_unmount(self) -> bool:
        """Whether a volume that is not desired may be taken away."""
        return self.has_added_pods and not self.waits_for_node_status


def plan(
    desired: DesiredVolumes,
    actual: ActualVolumes,
    pending: PendingOperations,
    readiness: Readiness,
    *,
    is_attached_by_controller: bool = True,
    only: Collection[str] | None = None,
) -> list[Step]:
    """Return the steps of one round, in order: unmount, mount or attach, then take away.

    Volumes with a running operation get their steps in a later round. `is_attached_by_controller`:
    whether the attach-detach controller attaches volumes, which is the default, or the node itself.
    `only`: the volumes that are looked at; None for all. A step depends on nothing but its volume,
    the operations on it, and `readiness`.
    """
    steps: list[Step] = []
    there = actual.attached_volumes(only)
    if readiness.may_unmount:
        steps += _unmounts(desired, there, pending)
    for wanted in desired.volumes_to_mount(only):
        if not _is_pending(pending, wanted.volume):
            steps += _towards(wanted, actual, by_controller=is_attached_by_controller)
    if readiness.may_unmount:
        for volume in there:
            is_wanted = desired.volume_exists(volume.name, volume.selinux_label or "")
            if not volume.pods and not is_wanted and not _is_pending(pending, volume.name):
                steps.append(_away(volume, by_controller=is_attached_by_controller))
    return steps


def _is_pending(pending: PendingOperations, volume: str, pod_uid: str = "") -> bool:
    return pending.concerns(volume) and pending.is_pending(OperationKey(volume, pod_uid))


def _unmounts(
    desired: DesiredVolumes, there: Sequence[AttachedVolume], pending: PendingOperations
) -> list[Step]:
    return [
        Step(StepKind.UNMOUNT, volume.name, mounted.spec, pod_uid)
        for volume in there
        for pod_uid, mounted in sorted(volume.pods.items())
        if not _is_pending(pending, volume.name, pod_uid)
        and not desired.pod_exists_in_volume(pod_uid, volume.name, volume.selinux_label or "")
    ]


def _towards(wanted: VolumeToMount, actual: ActualVolumes, *, by_controller: bool) -> list[Step]:
    spec = wanted.spec
    found = actual.pod_in_volume(
        wanted.pod_uid, wanted.volume, wanted.size_bytes, spec.selinux_label
    )
    message = ""
    if found == Found.MOUNTED:
        return []
    if found == Found.NOT_ATTACHED:
        if wanted.is_attachable and not by_controller:
            kind = StepKind.ATTACH
        elif wanted.is_attachable and not wanted.is_reported_in_use:
            return []  # the controller may detach it until the node's status names it
        else:
            kind = StepKind.VERIFY_ATTACHED
    elif found == Found.SELINUX_MISMATCH:
        kind = StepKind.REPORT_ERROR
        message = (
            f'waiting for unmount of volume "{wanted.volume}", because it is already mounted to a '
            "different pod with a different SELinux label"
        )
    else:
        kind = {
            Found.NOT_MOUNTED: StepKind.MOUNT,
            Found.REMOUNT_REQUIRED: StepKind.REMOUNT,
            Found.RESIZE_REQUIRED: StepKind.EXPAND,
        }[found]
    return [Step(kind, wanted.volume, spec, wanted.pod_uid, message)]


def _away(volume: AttachedVolume, *, by_controller: bool) -> Step:
    if volume.device_may_be_mounted:
        kind = StepKind.UNMOUNT_DEVICE
    elif by_controller or not volume.is_attachable:
        kind = StepKind.MARK_DETACHED
    else:
        kind = StepKind.DETACH
    return Step(kind, volume.name, volume.spec)
