"""The operations on volumes: each step of `nodecore` carried out, and its end recorded.

Which end is recorded how is a table in `docs/nodecore.md`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from bindery.kube.objects.labels import selects_node
from bindery.nodeagent.volumes import subpaths
from bindery.nodeagent.volumes.blockmap import map_device, remove_link, unmap_device, users
from bindery.nodeagent.volumes.catalogue import Catalogue
from bindery.nodeagent.volumes.interface import (
    InitializationError,
    InUseError,
    MountError,
    NotSupportedError,
    PodMount,
)
from bindery.nodeagent.volumes.mounts import references
from bindery.nodeagent.volumes.sources import MountingPod, StoredVolume
from bindery.nodeagent.volumes.volumenode import VolumeNode
from bindery.nodecore.volumes.actual import Failure, MountState
from bindery.nodecore.volumes.manager import WAIT_FOR_ATTACH_S, VolumeManager
from bindery.nodecore.volumes.populator import VolumeError
from bindery.nodecore.volumes.reconciler import Step, StepKind
from bindery.nodecore.volumes.reconstruction import FoundVolume
from bindery.nodecore.volumes.specs import VolumeSpec, csi_attachment, pod_volume_path

FAILED_MOUNT: Final = "FailedMount"
FAILED_MAP: Final = "FailedMapVolume"
FAILED_RESIZE: Final = "VolumeResizeFailed"
READ_ONLY_RESIZE: Final = "FileSystemResizeFailed"
RESIZED: Final = "FileSystemResizeSuccessful"
_FIRST_LOOK_S: Final = 0.5
_LATER: Final = 1.05
_LONGEST_LOOK_S: Final = 7.0


class VolumeOperations:
    """Carries steps out.

    Args:
        pods: UID -> pod; the caller keeps it current.
        attached: `status.volumesAttached` of the Node; the caller keeps it current.
    """

    def __init__(
        self,
        node: VolumeNode,
        manager: VolumeManager,
        catalogue: Catalogue,
        *,
        pods: Mapping[str, MountingPod],
        attached: Mapping[str, str],
    ) -> None:
        self._root, self._node = node.root, node.name
        self._plugins, self._objects, self._mounter = node.plugins, node.objects, node.mounter
        self._clock, self._record, self._labels = node.clock, node.record, node.labels
        self._actual = manager.actual
        self._catalogue = catalogue
        self._pods = pods
        self._attached = attached
        self._carried: Mapping[StepKind, Callable[[Step], Awaitable[None]]] = {
            StepKind.VERIFY_ATTACHED: self._verify_attached,
            StepKind.ATTACH: self._attach,
            StepKind.DETACH: self._detach,
            StepKind.MOUNT: self._mount,
            StepKind.REMOUNT: self._mount,
            StepKind.EXPAND: self._expand,
            StepKind.UNMOUNT: self._unmount,
            StepKind.UNMOUNT_DEVICE: self._unmount_device,
        }

    def may_begin(self, step: Step) -> bool:
        """Return whether the step can succeed at all now, so that it does not fail and wait."""
        is_waiting = step.kind == StepKind.VERIFY_ATTACHED and step.spec.is_attachable
        return not is_waiting or step.volume in self._attached

    async def run(self, step: Step) -> None:
        """Carry a step out.

        Raises:
            VolumeError: it has failed; what is left is recorded.
        """
        try:
            await self._carried[step.kind](step)
        except OSError as error:
            raise MountError(f"{step.kind}: {error}") from error

    async def take_away(self, found: FoundVolume) -> None:
        """Take a volume of the last run away that its plugin does not know."""
        if found.is_block:
            await self._unmap(found, VolumeSpec(found.name, found.plugin, is_block=True))
        else:
            await subpaths.clean(self._root, self._mounter, found.pod_uid, found.name)
            await self._plugins.volume(found.plugin).tear_down(found)

    async def _verify_attached(self, step: Step) -> None:
        if step.spec.is_attachable and step.volume not in self._attached:
            raise worded("Volume not attached according to node status", step.spec)
        device = self._attached.get(step.volume, "") if step.spec.is_attachable else ""
        self._actual.mark_volume_as_attached(step.volume, step.spec, device)
        stored = self._catalogue.stored(step.spec.name)
        claim = self._catalogue.claim_of_volume(stored) if stored else None
        self._actual.initialize_size(step.volume, claim.size_bytes if claim else 0)

    async def _attach(self, step: Step) -> None:
        driver, _, handle = step.spec.plugin_volume.partition("^")
        name = csi_attachment(driver, handle, self._node)
        try:
            await self._objects.attach(name, driver, step.spec.name)
            await self._wait_until_attached(step.spec)
        except VolumeError as error:
            raise worded("AttachVolume.Attach failed", step.spec, error) from error
        self._actual.mark_volume_as_attached(step.volume, step.spec)

    async def _detach(self, step: Step) -> None:
        driver, _, handle = step.spec.plugin_volume.partition("^")
        try:
            await self._objects.detach(csi_attachment(driver, handle, self._node))
        except VolumeError as error:
            raise worded("DetachVolume.Detach failed", step.spec, error) from error
        self._actual.mark_volume_as_detached(step.volume)

    async def _mount(self, step: Step) -> None:
        pod = self._pods.get(step.pod_uid)
        if pod is None:
            raise worded("MountVolume failed", step.spec, "the pod is gone")
        work, reason = (self._map, FAILED_MAP) if step.spec.is_block else (self._file, FAILED_MOUNT)
        mount = replace(
            self._catalogue.mount(pod, step.spec),
            is_remount=step.kind == StepKind.REMOUNT,
            is_reconstructed=self._is_reconstructed(step),
        )
        try:
            await work(step, mount)
        except VolumeError as error:
            self._record(step.pod_uid, reason, str(error))
            raise

    async def _file(self, step: Step, mount: PodMount) -> None:
        """Mount a file system for a pod."""
        spec = step.spec
        self._check(step, mount.volume, "MountVolume", "SetUp")
        plugin = self._plugins.volume(spec.plugin)
        device = await self._device(step, "MountVolume")
        devices = self._plugins.devices.get(spec.plugin) if spec.is_device_mountable else None
        if devices is not None and self._device_state(step) != MountState.MOUNTED:
            try:
                await devices.mount_device(mount, device)
            except VolumeError as error:
                failure = failure_of(error)
                self._actual.mark_device_mount_failed(step.volume, failure, device)
                raise worded(
                    _prefix(error, "MountVolume.MountDevice failed"), spec, error
                ) from error
            self._actual.mark_device_as_mounted(step.volume, device, spec.selinux_label)
        try:
            await plugin.set_up(mount)
        except VolumeError as error:
            self._actual.mark_mount_failed(step.volume, step.pod_uid, spec, failure_of(error))
            raise worded(_prefix(error, "MountVolume.SetUp failed"), spec, error) from error
        try:
            await self._grow_while_mounted(step, mount, device)
        except VolumeError as error:
            self._actual.mark_growth_failed(step.volume, step.pod_uid, spec)
            raise worded("MountVolume.Setup failed while expanding volume", spec, error) from error
        self._actual.mark_volume_as_mounted(step.volume, step.pod_uid, spec)

    async def _map(self, step: Step, mount: PodMount) -> None:
        """Make a device for a pod."""
        spec = step.spec
        self._check(step, mount.volume, "MapVolume", "SetUpDevice")
        plugin = self._plugins.block(spec.plugin)
        device = await self._device(step, "MapVolume")
        if self._device_state(step) != MountState.MOUNTED:
            try:
                await plugin.stage_block(mount, device)
            except VolumeError as error:
                failure = failure_of(error)
                self._actual.mark_device_mount_failed(step.volume, failure, device)
                raise worded("MapVolume.SetUpDevice failed", spec, error) from error
        self._actual.mark_device_as_mounted(step.volume, device)
        try:
            published = await plugin.publish_block(mount, device)
        except VolumeError as error:
            self._actual.mark_mount_failed(step.volume, step.pod_uid, spec, failure_of(error))
            raise worded("MapVolume.MapPodDevice failed", spec, error) from error
        place, link = self._places(spec, step.pod_uid)
        try:
            await map_device(self._mounter, published, place, link)
            self._actual.mark_device_as_mounted(step.volume, published)
            await self._grow_while_mounted(step, mount, published)
        except VolumeError as error:
            self._actual.mark_mount_failed(
                step.volume, step.pod_uid, spec, Failure.UNCERTAIN
            )  # the driver has published it
            raise worded("MapVolume.MapBlockVolume failed", spec, error) from error
        self._actual.mark_volume_as_mounted(step.volume, step.pod_uid, spec)

    async def _unmount(self, step: Step) -> None:
        spec, uid = step.spec, step.pod_uid
        found = FoundVolume(uid, spec.plugin, spec.name, spec.is_block)
        if spec.is_block:
            self._actual.mark_unmount_failed(step.volume, uid, spec)  # until all is unmapped
            try:
                await self._unmap(found, spec)
            except VolumeError as error:
                raise worded("UnmapVolume.UnmapBlockVolume failed", spec, error) from error
        else:
            try:
                await subpaths.clean(self._root, self._mounter, uid, spec.name)
            except VolumeError as error:
                raise worded("error cleaning subPath mounts", spec, error) from error
            try:
                await self._plugins.volume(spec.plugin).tear_down(found)
            except (VolumeError, OSError) as error:
                self._actual.mark_unmount_failed(step.volume, uid, spec)
                raise worded("UnmountVolume.TearDown failed", spec, error) from error
        self._actual.mark_volume_as_unmounted(step.volume, uid)

    async def _unmap(self, found: FoundVolume, spec: VolumeSpec) -> None:
        place, link = self._places(spec, found.pod_uid)
        await unmap_device(self._mounter, place)
        await self._plugins.block(spec.plugin).unpublish_block(found)
        remove_link(link)

    async def _unmount_device(self, step: Step) -> None:
        spec = step.spec
        if spec.is_block:
            await self._unstage_block(step)
            return
        devices = self._plugins.devices[spec.plugin]
        place = devices.device_path(spec)
        others = [
            one
            for one in references(place, self._mounter.mounts())
            if not one.is_relative_to(place)
        ]
        if others:
            raise worded(
                "GetDeviceMountRefs check failed",
                spec,
                f'the device mount path "{place}" is still mounted by other references '
                f"[{' '.join(map(str, others))}]",
            )
        try:
            await devices.unmount_device(spec)
        except (VolumeError, OSError) as error:
            self._actual.mark_device_as_uncertain(step.volume)
            raise worded("UnmountDevice failed", spec, error) from error
        self._actual.mark_device_as_unmounted(step.volume)

    async def _unstage_block(self, step: Step) -> None:
        plugin = self._plugins.block(step.spec.plugin)
        place = plugin.map_path(step.spec)
        if pods := users(place):
            raise worded(
                "UnmapDevice failed",
                step.spec,
                f'the device "{place}" is still referenced from other Pods '
                f"[{' '.join(one.name for one in pods)}]",
            )
        self._actual.mark_device_as_uncertain(step.volume)  # until all is taken away
        try:
            await plugin.unstage_block(step.spec)
        except (VolumeError, OSError) as error:
            raise worded("UnmapDevice.TearDownDevice failed", step.spec, error) from error
        if place.is_dir():
            place.rmdir()
        self._actual.mark_device_as_unmounted(step.volume)

    async def _expand(self, step: Step) -> None:
        pod = self._pods.get(step.pod_uid)
        found = self._actual.volume(step.volume)
        if pod is None or found is None:
            raise worded("NodeExpandVolume failed", step.spec, "the pod is gone")
        mount = self._catalogue.mount(pod, step.spec)
        size = mount.volume.size_bytes if mount.volume else 0
        try:
            if await self._grow(step, mount, size, found.device_path):
                self._actual.mark_volume_as_resized(step.volume, size)
        except VolumeError as error:
            failed = worded("NodeExpandVolume.NodeExpandVolume failed", step.spec, error)
            self._record(step.pod_uid, FAILED_RESIZE, str(failed))
            raise failed from error

    async def _grow_while_mounted(self, step: Step, mount: PodMount, device: str) -> None:
        """Let the volume have the size of its PersistentVolume, if the claim has another."""
        volume = mount.volume
        claim = self._catalogue.claim_of_volume(volume) if volume else None
        if volume is None or claim is None or not step.spec.is_expandable:
            return
        if claim.size_bytes < volume.size_bytes and await self._grow(
            step, mount, volume.size_bytes, device
        ):
            self._actual.mark_volume_as_resized(step.volume, volume.size_bytes)

    async def _grow(self, step: Step, mount: PodMount, size_bytes: int, device: str) -> bool:
        """Let a volume have the size; return whether it has it."""
        if step.spec.is_read_only:
            self._record(
                step.pod_uid,
                READ_ONLY_RESIZE,
                f'MountVolume.NodeExpandVolume failed for volume "{step.spec.name}" '
                "requested read-only file system",
            )
            return True
        devices = self._plugins.devices.get(step.spec.plugin)
        if devices is None or mount.volume is None:
            return False
        try:
            await devices.grow(mount, size_bytes, device)
        except NotSupportedError:
            return True
        except InUseError:
            self._actual.mark_expansion_failed(step.volume)
            return False
        claim = self._catalogue.claim_of_volume(mount.volume)
        if claim is not None and claim.size_bytes < size_bytes:
            await self._objects.has_grown(claim, mount.volume)
            self._catalogue.has_grown(mount.volume)
        self._record(
            step.pod_uid,
            RESIZED,
            f'MountVolume.NodeExpandVolume succeeded for volume "{step.spec.name}" {self._node}',
        )
        return True

    async def _device(self, step: Step, operation: str) -> str:
        """Return the path of the attached device, once it is attached."""
        found = self._actual.volume(step.volume)
        if step.spec.is_attachable:
            try:
                await self._wait_until_attached(step.spec)
            except VolumeError as error:
                raise worded(f"{operation}.WaitForAttach failed", step.spec, error) from error
        return found.device_path if found else ""

    async def _wait_until_attached(self, spec: VolumeSpec) -> None:
        driver, _, handle = spec.plugin_volume.partition("^")
        name = csi_attachment(driver, handle, self._node)
        end_s, wait_s = self._clock() + WAIT_FOR_ATTACH_S, _FIRST_LOOK_S
        while True:
            found = await self._objects.attachment(name)
            if found is not None and found.metadata.deletion_timestamp is not None:
                raise MountError("volume attachment is being deleted")
            if found is not None and found.status.attached:
                return
            if self._clock() >= end_s:
                raise MountError(
                    f"timed out waiting for external-attacher of {driver} CSI driver to attach "
                    f"volume {handle}"
                )
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * _LATER, _LONGEST_LOOK_S)

    def _check(self, step: Step, volume: StoredVolume | None, operation: str, part: str) -> None:
        """Refuse a volume of other nodes, and a second pod where only one may use the volume."""
        if volume is None:
            return
        affinity = volume.spec.node_affinity
        terms = affinity.required.node_selector_terms if affinity and affinity.required else None
        if terms is not None and not selects_node(terms, self._labels(), self._node):
            raise worded(
                f"{operation}.NodeAffinity check failed", step.spec, "no matching NodeSelectorTerms"
            )
        if volume.is_for_one_pod and self._actual.is_mounted_elsewhere(step.volume, step.pod_uid):
            raise worded(
                f"{operation}.{part} failed",
                step.spec,
                "volume uses the ReadWriteOncePod access mode and is already in use by another pod",
            )

    def _device_state(self, step: Step) -> MountState:
        found = self._actual.volume(step.volume)
        return found.device if found else MountState.NOT_MOUNTED

    def _is_reconstructed(self, step: Step) -> bool:
        found = self._actual.volume(step.volume)
        return (
            found is not None
            and step.pod_uid in found.pods
            and found.pods[step.pod_uid].is_reconstructed
        )

    def _places(self, spec: VolumeSpec, pod_uid: str) -> tuple[Path, Path]:
        """Return where the device is bound for a pod, and the pod's link to it."""
        place = self._plugins.block(spec.plugin).map_path(spec) / pod_uid
        link = self._root / pod_volume_path(pod_uid, spec.plugin, spec.name, is_block=True)
        return place, link


def failure_of(error: Exception) -> Failure:
    """Return how much is known of a failed mount."""
    return error.failure if isinstance(error, MountError) else Failure.FINAL


def worded(prefix: str, spec: VolumeSpec, error: object = None) -> MountError:
    """Return an error in the form of the kubelet's events."""
    suffix = "" if error is None else f": {error}"
    failure = failure_of(error) if isinstance(error, Exception) else Failure.FINAL
    return MountError(f'{prefix} for volume "{spec.name}" {suffix}', failure)


def _prefix(error: Exception, usual: str) -> str:
    is_before = isinstance(error, InitializationError)
    return "MountVolume.NewMounter initialization failed" if is_before else usual
