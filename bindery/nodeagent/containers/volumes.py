"""The volumes of the node's pods: what the workers ask of the volume keeper.

The keeper has every pod from the start of the agent, or from the moment in which its worker wants
its volumes, until the pod is gone from the API.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import structlog

from bindery.api.states import ENDED_POD_PHASES
from bindery.nodeagent.containers.downward import PodSurroundings
from bindery.nodeagent.containers.objects import PodObjects
from bindery.nodeagent.containers.podspec import RunPod
from bindery.nodeagent.containers.volumecontent import ApiPodContent
from bindery.nodeagent.volumes import nodestatus, subpaths
from bindery.nodeagent.volumes.csi.drivers import CsiDrivers
from bindery.nodeagent.volumes.interface import VolumeObjects
from bindery.nodeagent.volumes.keeper import KeptPod, PodVolumePath, VolumeKeeper
from bindery.nodeagent.volumes.kinds import Foundation, every_kind, has_noswap
from bindery.nodeagent.volumes.mounts import Mounter
from bindery.nodeagent.volumes.operations import RESIZED
from bindery.nodeagent.volumes.sources import MountingPod
from bindery.nodeagent.volumes.subpaths import SubPath
from bindery.nodeagent.volumes.volumenode import VolumeNode
from bindery.nodecore.pods import MEMORY

LOOK_S: Final = 0.5
"""Seconds between two looks at the Node and at directories of pods that are gone."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class VolumeParts:
    """What the volumes of a node stand on.

    Attributes:
        root: as the kubelet's `--root-dir`.
        name: the node's name.
        around: of the node, without a pod's addresses: no file shows these.
        report: writes an event of a pod: kind, reason, message.
        labels: of the Node.
        is_attached_by_controller: whether the attach-detach controller attaches volumes.
    """

    root: Path
    name: str
    mounter: Mounter
    storage: VolumeObjects
    objects: PodObjects
    around: PodSurroundings
    now_s: Callable[[], float]
    report: Callable[[RunPod, str, str, str], None]
    labels: Callable[[], Mapping[str, str]] = dict
    is_attached_by_controller: bool = True


class NodeVolumes:
    """The volumes of one node. `drivers`: the CSI drivers that have registered."""

    def __init__(self, parts: VolumeParts) -> None:
        self._root, self._mounter, self._report = parts.root, parts.mounter, parts.report
        self._pods: dict[str, RunPod] = {}
        self._kept: dict[str, KeptPod] = {}
        self._are_all_known = False
        self._announced: list[str] | None = None
        self._content = ApiPodContent(parts.objects, self._pods, parts.around, parts.now_s)
        self.drivers = CsiDrivers()
        kinds = every_kind(
            Foundation(
                parts.root,
                parts.name,
                parts.mounter,
                self.drivers,
                parts.storage,
                self._content,
                parts.now_s,
                lambda: parts.around.allocatable.get(MEMORY, 0),
                without_swap=has_noswap(os.uname().release),
            )
        )
        node = VolumeNode(
            parts.root,
            parts.name,
            kinds,
            parts.storage,
            parts.mounter,
            lambda: asyncio.get_running_loop().time(),
            self._record,
            parts.labels,
        )
        by_controller = parts.is_attached_by_controller
        self.keeper = VolumeKeeper(node, is_attached_by_controller=by_controller)

    async def run(
        self, attached: Callable[[], Mapping[str, str] | None], changed: Callable[[], None]
    ) -> None:
        """Keep the volumes; does not return.

        Args:
            attached: returns `status.volumesAttached` of the Node, None while it is not known.
            changed: called when `in_use` has changed.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.keeper.run())
            while True:
                await asyncio.sleep(LOOK_S)
                known = attached()
                if known is not None:
                    self.keeper.set_attached(known)
                in_use = self.in_use()
                if in_use != self._announced:
                    self._announced = in_use
                    changed()
                if self._are_all_known:
                    self._remove_directories()

    def open(self, pods: Iterable[RunPod]) -> None:
        """Keep the volumes of the pods that are on the node when the agent starts."""
        for pod in pods:
            is_over = pod.status.phase in ENDED_POD_PHASES
            self._keep(pod, is_over=is_over)
        self._hand_over()

    def have_all(self) -> None:
        """Record that no pod of the last run is unknown: volumes of others may be taken away."""
        if not self._are_all_known:
            self._are_all_known = True
            self._hand_over()

    async def prepare(self, pod: RunPod) -> Mapping[str, PodVolumePath]:
        """Wait until the volumes of a pod are there; return them by their names in the pod.

        Called again while the pod runs, so that files follow their objects.

        Raises:
            VolumeError: a volume is not ready; the caller tries again.
        """
        self._keep(pod)
        self._hand_over()
        uid = pod.metadata.uid
        await self.keeper.wait_for_attach_and_mount(uid)
        return self.keeper.mounted(uid)

    async def part(
        self, pod: RunPod, container: str, index: int, volume: PodVolumePath, path: str
    ) -> Path:
        """Return a part of a volume for a container (`subPath`), made if it is missing.

        `index`: of the mount in the container.

        Raises:
            VolumeError: the path leads out of the volume.
        """
        uid = pod.metadata.uid
        wanted = SubPath(volume.path, path, uid, volume.name, container, index)
        return await subpaths.bind(self._root, self._mounter, wanted)

    def groups(self, pod: RunPod) -> list[int]:
        """Return the groups that a pod gets for its volumes."""
        context = pod.spec.security_context
        own = (context.supplemental_groups if context is not None else None) or ()
        return self.keeper.manager.extra_supplemental_groups(pod.metadata.uid, own)

    async def release(self, uid: str) -> None:
        """Take down the volumes of the pod `uid`, whose containers have ended.

        Raises:
            VolumeError: a volume is busy; the caller tries again.
        """
        kept = self._kept.get(uid)
        if kept is not None:
            self._kept[uid] = replace(kept, is_terminating=True, is_over=True)
            self._hand_over()
            await self.keeper.wait_for_unmount(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone; its directory is removed when nothing is mounted there."""
        self._content.forget(uid)
        self._pods.pop(uid, None)
        if self._kept.pop(uid, None) is not None:
            self._hand_over()

    def in_use(self) -> list[str] | None:
        """Return `status.volumesInUse`; None: the field stays as it is."""
        return nodestatus.in_use(self.keeper.manager)

    def set_reported(self, volumes: list[str]) -> None:
        """Record that the Node's status names `volumes` as in use."""
        self.keeper.set_reported_in_use(volumes)

    def _keep(self, pod: RunPod, *, is_over: bool = False) -> None:
        uid = pod.metadata.uid
        self._pods[uid] = pod
        self._kept[uid] = KeptPod(mounting(pod), is_terminating=is_over, is_over=is_over)

    def _hand_over(self) -> None:
        self.keeper.set_pods(self._kept.values(), sources_ready=self._are_all_known)

    def _record(self, uid: str, reason: str, message: str) -> None:
        pod = self._pods.get(uid)
        if pod is not None:
            self._report(pod, "Normal" if reason == RESIZED else "Warning", reason, message)

    def _remove_directories(self) -> None:
        try:
            present = os.listdir(self._root / "pods")  # noqa: PTH208  names only
            if any(name not in self._kept for name in present):
                self.keeper.remove_directories()
        except FileNotFoundError:
            return  # no pod has had a directory
        except OSError as error:
            log.warning("the directory of a pod stays", error=str(error))


def mounting(pod: RunPod) -> MountingPod:
    """Return a pod as its volumes see it."""
    return msgspec.convert(pod, MountingPod, from_attributes=True)
