"""The volume manager: what pods, the node's status and the runtime ask about volumes."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.operations import PendingOperations
from bindery.nodecore.volumes.actual import ActualVolumes
from bindery.nodecore.volumes.desired import DesiredVolumes
from bindery.nodecore.volumes.populator import PodVolumes, Populator, VolumeApi
from bindery.nodecore.volumes.reconciler import Readiness, Step, StepKind, plan
from bindery.nodecore.volumes.reconstruction import (
    Construct,
    FoundVolume,
    orphans,
    reconstruct,
    update_from_node_status,
    volumes_in,
)
from bindery.nodecore.volumes.specs import VolumeSpec, unique_name

LOOP_PERIOD_S: Final = 0.1
ATTACH_AND_MOUNT_TIMEOUT_S: Final = 123.0
POLL_PERIOD_S: Final = 0.3
WAIT_FOR_ATTACH_S: Final = 600.0

_DECIMAL: Final = re.compile("[+-]?[0-9]+")


@dataclass(frozen=True)
class Waiting:
    """Why a pod's volumes are not ready.

    Attributes:
        unmounted: its volumes that are not mounted, by their names in the pod.
        unattached: its attachable volumes that are not attached.
        unprocessed: its volumes that are not in the desired state.
        errors: what went wrong; none if it has only waited for too long.
    """

    unmounted: tuple[str, ...] = ()
    unattached: tuple[str, ...] = ()
    unprocessed: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The sentence in the pod's event when it has failed or waited for too long."""
        return (
            f"unmounted volumes=[{' '.join(self.unmounted)}], "
            f"unattached volumes=[{' '.join(self.unattached)}], "
            f"failed to process volumes=[{' '.join(self.unprocessed)}]: "
            + ("; ".join(self.errors) or "context deadline exceeded")
        )


class VolumeManager:
    """The state of the node's volumes and the questions about it.

    `is_attached_by_controller`: whether the attach-detach controller attaches volumes.
    """

    def __init__(
        self,
        cluster: VolumeApi,
        clock: Callable[[], float],
        *,
        is_attached_by_controller: bool = True,
    ) -> None:
        self.desired = DesiredVolumes()
        self.actual = ActualVolumes()
        self.pending = PendingOperations(clock)
        self.populator = Populator(self.desired, self.actual, cluster, clock)
        self.waits_for_node_status: frozenset[str] = frozenset()
        self._by_controller = is_attached_by_controller
        self._has_synced = False
        self._readiness: Readiness | None = None
        self._open: set[str] = set()
        self._failed: tuple[FoundVolume, ...] = ()

    def run_once(self, pods: Sequence[PodVolumes], *, sources_ready: bool) -> list[Step]:
        """Bring the pods into the desired state and return the steps of this round.

        Volumes that a controller detaches are forgotten here; errors of pods are recorded here.
        The caller executes the other steps: it calls `start` of `pending`, does the work, calls
        `finish`, and records the result in `actual`.
        """
        self.populator.run_once(pods, sources_ready=sources_ready)
        readiness = Readiness(self.populator.has_added_pods, self.waits_for_node_status)
        only = self._open | self.desired.take_changed() | self.actual.take_changed()
        steps = plan(
            self.desired,
            self.actual,
            self.pending,
            readiness,
            is_attached_by_controller=self._by_controller,
            only=only if readiness == self._readiness else None,
        )
        self._readiness = readiness
        self._open = {step.volume for step in steps} | set(filter(self.pending.concerns, only))
        for step in steps:
            if step.kind == StepKind.MARK_DETACHED:
                self.actual.mark_volume_as_detached(step.volume)
            elif step.kind == StepKind.REPORT_ERROR:
                self.desired.add_error_to_pod(step.pod_uid, step.message)
        self._has_synced = self._has_synced or not self.waits_for_node_status
        return [
            step
            for step in steps
            if step.kind not in (StepKind.MARK_DETACHED, StepKind.REPORT_ERROR)
        ]

    def reconstruct(self, paths: Iterable[str], construct: Construct) -> None:
        """Record the volumes of the last run, before the first round.

        Nothing is unmounted until `update_from_node_status` has recorded the attached volumes.
        `paths`: below the directories of pods, relative to the kubelet's directory.
        """
        found = reconstruct(volumes_in(paths), construct, self.actual)
        self.waits_for_node_status = found.waiting
        self._failed = found.failed

    def reconstruct_devices(self, specs: Iterable[VolumeSpec]) -> None:
        """Record volumes that the last run has mounted for the node, after `reconstruct`.

        The kubelet looks into the directories of pods only. Without this a volume stays mounted
        for ever if its first pod is deleted while no process runs.
        """
        for spec in specs:
            name = unique_name(spec, "")
            if self.actual.volume(name) is None:
                self.actual.mark_device_as_reconstructed(name, spec)
                self.waits_for_node_status |= {name}

    def update_from_node_status(self, attached: Mapping[str, str]) -> None:
        """Record which volumes of the last run are attached: volume -> path of its device."""
        update_from_node_status(self.waits_for_node_status, attached, self.actual)
        self.waits_for_node_status = frozenset()

    def take_orphans(self) -> list[FoundVolume]:
        """Return, once, the volumes of the last run that no plugin knows and no pod needs.

        The list is empty until all pods are in the desired state.
        """
        if not self.populator.has_added_pods:
            return []
        found = orphans(self._failed, self.desired)
        self._failed = ()
        return found

    def reconciler_states_has_been_synced(self) -> bool:
        """Return whether a round has been made since the volumes of the last run are known."""
        return self._has_synced

    def waiting(self, pod: PodVolumes) -> Waiting | None:
        """Return what a pod waits for, None once all volumes that its containers use are mounted.

        The pod's errors are forgotten with the answer.
        """
        names = self.desired.names_of_pod(pod.uid)
        mounted = set(self.actual.mounted_of_pod(pod.uid))
        errors = self.desired.pop_pod_errors(pod.uid)
        expected = {one.name for one in pod.volumes if one.is_mounted or one.is_device}
        unmounted = sorted(outer for outer in expected if names.get(outer) not in mounted)
        if not unmounted:
            return None
        unattached = sorted(
            outer
            for one in self.desired.volumes_of_pod(pod.uid)
            if one.is_attachable
            for outer in one.outer_names
            if not self.volume_is_attached(one.volume)
        )
        unprocessed = sorted(expected - names.keys())
        return Waiting(tuple(unmounted), tuple(unattached), tuple(unprocessed), tuple(errors))

    def still_mounted(self, *pod_uids: str) -> dict[str, list[str]]:
        """Return the pods that have mounted volumes, with these volumes' names on the node."""
        found = {uid: self.actual.mounted_of_pod(uid) for uid in pod_uids}
        return {uid: sorted(volumes) for uid, volumes in found.items() if volumes}

    def mounted_volumes_for_pod(self, pod_uid: str) -> dict[str, str]:
        """Return the pod's mounted volumes: the name in the pod -> the name on the node."""
        mounted = set(self.actual.mounted_of_pod(pod_uid))
        names = self.desired.names_of_pod(pod_uid)
        return {outer: name for outer, name in sorted(names.items()) if name in mounted}

    def has_possibly_mounted_volumes(self, pod_uid: str) -> bool:
        """Return whether the pod has volumes, or may have after a restart or a failure."""
        return bool(self.actual.mounted_of_pod(pod_uid, possibly=True))

    def extra_supplemental_groups(self, pod_uid: str, groups: Collection[int] = ()) -> list[int]:
        """Return the groups that the pod gets for its volumes, beyond `groups` of its own."""
        gids = {self._gid(volume, pod_uid) for volume in self.actual.mounted_of_pod(pod_uid)}
        found = {int(gid) for gid in gids if _DECIMAL.fullmatch(gid)}
        return sorted(found.difference(groups))

    def _gid(self, volume: str, pod_uid: str) -> str:
        found = self.actual.volume(volume)
        return found.pods[pod_uid].spec.gid if found is not None else ""

    def volumes_in_use(self) -> list[str]:
        """Return the volumes that the node's status is to name: attachable, wanted or there."""
        wanted = {one.volume for one in self.desired.volumes_to_mount() if one.is_attachable}
        attached = {one.name for one in self.actual.attached_volumes() if one.is_attachable}
        return sorted(wanted | attached)

    def mark_volumes_as_reported_in_use(self, volumes: Sequence[str]) -> None:
        """Record that the node's status names `volumes`."""
        self.desired.mark_volumes_reported_in_use(set(volumes))

    def volume_is_attached(self, volume: str) -> bool:
        """Return whether the volume is attached."""
        return self.actual.volume(volume) is not None
