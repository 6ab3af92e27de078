"""Keeps the volumes of the node's pods: the loops around `nodecore`'s volume manager.

A round brings the pods into the desired state and plans steps. Each step is a task, so a volume
that hangs holds only itself. A round after which nothing has changed is left out.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from bindery.nodeagent.volumes import reconstruction
from bindery.nodeagent.volumes.catalogue import Catalogue
from bindery.nodeagent.volumes.filevolumes import FILE_PLUGINS
from bindery.nodeagent.volumes.operations import VolumeOperations
from bindery.nodeagent.volumes.sources import MountingPod
from bindery.nodeagent.volumes.volumenode import VolumeNode
from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.operations import OperationKey
from bindery.nodecore.volumes.manager import (
    ATTACH_AND_MOUNT_TIMEOUT_S,
    LOOP_PERIOD_S,
    POLL_PERIOD_S,
    VolumeManager,
)
from bindery.nodecore.volumes.populator import PodVolumes, VolumeError
from bindery.nodecore.volumes.specs import pod_volume_path

_TOO_LATE: Final = "context deadline exceeded"

log = structlog.get_logger(__name__)


class VolumesNotReadyError(VolumeError):
    """The volumes of a pod are not mounted, or not unmounted, in time."""


@dataclass(frozen=True)
class KeptPod:
    """A pod of the node.

    Attributes:
        is_terminating: whether its containers are to end.
        is_over: whether its containers have ended, so that its volumes can go.
    """

    pod: MountingPod
    is_terminating: bool = False
    is_over: bool = False


@dataclass(frozen=True)
class PodVolumePath:
    """A volume as the containers of a pod get it.

    Attributes:
        path: a directory or file, or a device.
        name: its name in paths: that of the PersistentVolume, or that in the pod.
    """

    path: Path
    is_block: bool = False
    is_read_only: bool = False
    name: str = ""


class VolumeKeeper:
    """The volumes of a node.

    `is_attached_by_controller`: whether the attach-detach controller attaches volumes.
    """

    def __init__(self, node: VolumeNode, *, is_attached_by_controller: bool = True) -> None:
        self._root, self._plugins, self._mounter = node.root, node.plugins, node.mounter
        self._clock = node.clock
        self._catalogue = Catalogue(node.objects)
        self.manager = VolumeManager(
            self._catalogue, node.clock, is_attached_by_controller=is_attached_by_controller
        )
        self._kept: dict[str, KeptPod] = {}
        self._pods: dict[str, MountingPod] = {}
        self._attached: dict[str, str] = {}
        self._operations = VolumeOperations(
            node, self.manager, self._catalogue, pods=self._pods, attached=self._attached
        )
        self._sources_ready = False
        self._volumes: dict[str, PodVolumes] = {}
        self._unread: set[str] = set()
        self._read_at_s: dict[str, float] = {}
        self._reading: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_changed = True

    async def run(self) -> None:
        """Keep the volumes until cancelled; running operations are cancelled too."""
        self.reconstruct()
        try:
            while True:
                self.round()
                await asyncio.sleep(LOOP_PERIOD_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def reconstruct(self) -> None:
        """Record what the last run has left; nothing is unmounted until the Node is known."""
        kinds = self._plugins
        bound = [found for blocks in kinds.blocks.values() for found in blocks.bound()]
        self.manager.reconstruct(reconstruction.paths(self._root, bound), kinds.construct)
        for devices in kinds.devices.values():
            self.manager.reconstruct_devices(devices.left_behind())
        for blocks in kinds.blocks.values():
            self.manager.reconstruct_devices(blocks.left_behind())

    def set_pods(self, pods: Iterable[KeptPod], *, sources_ready: bool) -> None:
        """Set the pods of the node. `sources_ready`: whether these are all."""
        kept = {one.pod.uid: one for one in pods}
        for uid, one in kept.items():
            before = self._kept.get(uid)
            if before is None or before.pod != one.pod:
                self._unread.add(uid)
            if before is not None and uid in self._volumes and before != one:
                self._volumes[uid] = self._described(one)
        for uid in self._kept.keys() - kept.keys():
            self._unread.discard(uid)
            self._volumes.pop(uid, None)
            self._read_at_s.pop(uid, None)
        self._has_changed = self._has_changed or kept != self._kept
        self._has_changed = self._has_changed or sources_ready != self._sources_ready
        self._kept, self._sources_ready = kept, sources_ready
        self._pods.clear()
        self._pods.update({uid: one.pod for uid, one in kept.items()})

    def set_attached(self, attached: Mapping[str, str]) -> None:
        """Set `status.volumesAttached` of the Node: volume -> path of its device."""
        if self.manager.waits_for_node_status:
            self.manager.update_from_node_status(attached)
            self._has_changed = True
        if attached != self._attached:
            self._attached.clear()
            self._attached.update(attached)
            self._has_changed = True

    def set_reported_in_use(self, volumes: Sequence[str]) -> None:
        """Record that the Node's status names `volumes` in `volumesInUse`."""
        self.manager.mark_volumes_as_reported_in_use(volumes)
        self._has_changed = True

    async def wait_for_attach_and_mount(self, pod_uid: str) -> None:
        """Wait until all volumes that the pod's containers use are mounted.

        Files of the pod's own volumes are written again if their objects have changed.

        Raises:
            VolumesNotReadyError: a volume cannot be mounted, or not in the kubelet's time.
        """
        kept = self._kept.get(pod_uid)
        if kept is None or not any(kept.pod.used()):
            return
        self._unread.add(pod_uid)
        end_s = self._clock() + ATTACH_AND_MOUNT_TIMEOUT_S
        while True:
            waiting = self.manager.waiting(self._described(kept))
            if waiting is None:
                return
            if waiting.errors or self._clock() >= end_s:
                raise VolumesNotReadyError(waiting.message)
            await asyncio.sleep(POLL_PERIOD_S)

    async def wait_for_unmount(self, pod_uid: str) -> None:
        """Wait until the pod has no mounted volume.

        Raises:
            VolumesNotReadyError: it has some after the kubelet's time.
        """
        end_s = self._clock() + ATTACH_AND_MOUNT_TIMEOUT_S
        while mounted := self.manager.still_mounted(pod_uid):
            errors = self.manager.desired.pop_pod_errors(pod_uid)
            if errors or self._clock() >= end_s:
                problem = "; ".join(errors) or _TOO_LATE
                raise VolumesNotReadyError(
                    f"mounted volumes=[{' '.join(mounted[pod_uid])}]: {problem}"
                )
            await asyncio.sleep(POLL_PERIOD_S)

    def mounted(self, pod_uid: str) -> dict[str, PodVolumePath]:
        """Return the mounted volumes of a pod by their names in it."""
        pod = self._pods.get(pod_uid)
        found = {}
        for outer, name in self.manager.mounted_volumes_for_pod(pod_uid).items():
            attached = self.manager.actual.volume(name)
            if pod is None or attached is None or pod_uid not in attached.pods:
                continue
            spec = attached.pods[pod_uid].spec
            if spec.is_block:
                link = pod_volume_path(pod_uid, spec.plugin, spec.name, is_block=True)
                path = (self._root / link).resolve()
            else:
                plugin = self._plugins.volume(spec.plugin)
                path = plugin.path(self._catalogue.mount(pod, spec))
            is_read_only = spec.is_read_only or spec.plugin in FILE_PLUGINS
            found[outer] = PodVolumePath(path, spec.is_block, is_read_only, spec.name)
        return found

    def remove_directories(self) -> list[str]:
        """Remove the directories of gone pods without volumes; return their UIDs."""
        return reconstruction.remove_directories(self._root, self._mounter, self._kept)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and nothing is to do before something changes."""
        return not (self._has_changed or self._tasks or self._unread)

    def round(self) -> None:
        """Start the reading and the steps that are due."""
        self._start_reading()
        if not self._has_changed:
            return
        pods = list(self._volumes.values())
        steps = self.manager.run_once(
            pods, sources_ready=self._sources_ready and len(pods) == len(self._kept)
        )
        is_processed = self.manager.populator.is_processed
        self._unread -= {uid for uid in self._unread & self._volumes.keys() if is_processed(uid)}
        for step in steps:
            if self._operations.may_begin(step):
                self._start(step.key, step.kind, self._operations.run(step))
        for found in self.manager.take_orphans():
            key = OperationKey(found.name, found.pod_uid)
            self._start(key, "volume_unmount", self._operations.take_away(found))
        self._has_changed = bool(steps)

    def _start(self, key: OperationKey, name: str, work: Coroutine[None, None, None]) -> None:
        if not self.manager.pending.may_start(key, name):
            work.close()
            return
        self.manager.pending.start(key, name)
        self._spawn(self._carry_out(key, name, work))

    async def _carry_out(
        self, key: OperationKey, name: str, work: Coroutine[None, None, None]
    ) -> None:
        problem = None
        try:
            await work
        except NodeCoreError as error:
            problem = str(error)
            log.warning("a volume operation has failed", operation=name, volume=key.subject,
                        pod=key.pod, error=problem)  # fmt: skip
        finally:
            self.manager.pending.finish(key, problem)
            self._has_changed = True

    def _start_reading(self) -> None:
        now_s = self._clock()
        for uid in self._unread - self._reading:
            if now_s >= self._read_at_s.get(uid, now_s) and uid in self._kept:
                self._reading.add(uid)
                self._read_at_s[uid] = now_s + POLL_PERIOD_S
                self._spawn(self._read(uid, self._kept[uid].pod))

    async def _read(self, uid: str, pod: MountingPod) -> None:
        try:
            await self._catalogue.fetch(pod)
        except VolumeError as error:
            log.warning("a pod's volumes cannot be read", pod=uid, error=str(error))
            return
        finally:
            self._reading.discard(uid)
        if uid in self._kept:
            self._volumes[uid] = self._described(self._kept[uid])
            self.manager.populator.reprocess_pod(uid)
            self._has_changed = True

    def _described(self, kept: KeptPod) -> PodVolumes:
        return self._catalogue.pod_volumes(
            kept.pod, is_terminating=kept.is_terminating, is_over=kept.is_over
        )

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
