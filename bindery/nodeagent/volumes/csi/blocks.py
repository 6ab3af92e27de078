"""CSI volumes that pods use as devices: the steps of a driver around the node's bind mounts."""

import shutil
from pathlib import Path
from typing import Final

from bindery.nodeagent.volumes.csi import datafiles
from bindery.nodeagent.volumes.csi.plugin import CsiPlugin, persistent_spec, pod_info, source_of
from bindery.nodeagent.volumes.emptydir import remove_tree
from bindery.nodeagent.volumes.interface import MountError, PodMount
from bindery.nodeagent.volumes.mounts import Mounter, make_directories
from bindery.nodecore.volumes.actual import Failure
from bindery.nodecore.volumes.populator import VolumeError
from bindery.nodecore.volumes.reconstruction import FoundVolume
from bindery.nodecore.volumes.specs import CSI_PLUGIN, VolumeSpec, csi_attachment

_DEVICES: Final = f"plugins/{CSI_PLUGIN}/volumeDevices"


class CsiBlocks:
    """The steps of devices; `plugin` has the drivers."""

    def __init__(self, root: Path, node: str, mounter: Mounter, plugin: CsiPlugin) -> None:
        self._devices = root / _DEVICES
        self._node = node
        self._mounter = mounter
        self._plugin = plugin

    def map_path(self, spec: VolumeSpec) -> Path:
        """Return the directory in which the device is bound for each pod."""
        return self._devices / spec.name / "dev"

    async def stage_block(self, mount: PodMount, device: str) -> None:  # noqa: ARG002  drivers know it
        """Let the driver make the device on the node."""
        using = await self._plugin.using(mount, "blockMapper.SetUpDevice failed to get CSI client")
        self._save(mount)
        context = await self._plugin.publish_context(using.source, using.settings)
        if not using.can.stages:
            return
        secrets = await self._plugin.secrets(using.source.node_stage_secret_ref, mount, "NodeStage")
        place = self._staging(mount.spec.name)
        make_directories(place)
        use = self._plugin.use(mount, using, context, secrets)
        try:
            await using.driver.stage(use, place, using.can)
        except MountError as error:
            if error.failure == Failure.FINAL:
                self._clean(mount.spec.name)
            raise

    async def publish_block(self, mount: PodMount, device: str) -> str:  # noqa: ARG002
        """Let the driver make the device for the pod; return its path."""
        using = await self._plugin.using(mount, "blockMapper.MapPodDevice failed to get CSI client")
        self._save(mount)
        context = await self._plugin.publish_context(using.source, using.settings)
        secrets = await self._plugin.secrets(
            using.source.node_publish_secret_ref, mount, "NodePublish"
        )
        attributes = dict(using.source.volume_attributes or {})
        if using.settings.pod_info_on_mount:
            attributes |= pod_info(mount, is_ephemeral=False)
        place = self._published(mount.spec.name, mount.pod.uid)
        make_directories(place.parent)
        use = self._plugin.use(mount, using, context, secrets, attributes)
        staged = self._staging(mount.spec.name)
        await using.driver.publish(
            use, place, staged, using.can, is_read_only=mount.spec.is_read_only
        )
        return str(place)

    async def unpublish_block(self, found: FoundVolume) -> None:
        """Let the driver take the device of the pod away."""
        known = datafiles.load(self._data(found.name))
        if known is None:
            return
        driver = self._plugin.drivers.get(known[datafiles.DRIVER])
        place = self._published(found.name, found.pod_uid)
        await driver.unpublish(known[datafiles.HANDLE], place)
        place.unlink(missing_ok=True)

    async def unstage_block(self, spec: VolumeSpec) -> None:
        """Let the driver take the device of the node away."""
        known = datafiles.load(self._data(spec.name))
        place = self._staging(spec.name)
        if known is not None and place.exists():
            driver = self._plugin.drivers.get(known[datafiles.DRIVER])
            if (await driver.capabilities()).stages:
                await driver.unstage(known[datafiles.HANDLE], place)
                shutil.rmtree(place, ignore_errors=True)
        self._clean(spec.name)

    def left_behind(self) -> list[VolumeSpec]:
        """Return the devices that files name; directories without a file are removed."""
        found = []
        for directory in sorted(self._devices.glob("*/data")):
            name = directory.parent.name
            known = datafiles.load(directory)
            if known is not None:
                found.append(persistent_spec(known, is_block=True))
            elif not list(self._bound(name)):  # it is written first and removed last
                self._clean(name)
        return found

    def bound(self) -> list[FoundVolume]:
        """Return the devices that drivers have made for pods, or the node has bound."""
        names = sorted(one.parent.name for one in self._devices.glob("*/data"))
        return [
            FoundVolume(uid, CSI_PLUGIN, name, is_block=True)
            for name in names
            for uid in sorted(self._bound(name))
        ]

    def construct(self, found: FoundVolume) -> VolumeSpec:
        """Return the volume that the file of the device names."""
        known = datafiles.load(self._data(found.name))
        if known is None:
            raise VolumeError(
                f"{CSI_PLUGIN}: plugin.ConstructVolumeSpec failed loading volume data using "
                f"[{self._data(found.name)}]"
            )
        return persistent_spec(known, is_block=True)

    def _save(self, mount: PodMount) -> None:
        source = source_of(mount)
        directory = self._data(mount.spec.name)
        make_directories(directory)
        known = {
            datafiles.VOLUME: mount.spec.name,
            datafiles.HANDLE: source.volume_handle,
            datafiles.DRIVER: source.driver,
            datafiles.NODE: self._node,
            datafiles.ATTACHMENT: csi_attachment(source.driver, source.volume_handle, self._node),
        }
        datafiles.save(directory, known)

    def _clean(self, name: str) -> None:
        """Remove the directories of a device that no pod has."""
        for place in (self._devices / "publish" / name, self._staging(name)):
            if place.exists():
                place.rmdir()
        remove_tree(self._devices / name / "dev", self._mounter)
        remove_tree(self._devices / name, self._mounter)

    def _bound(self, name: str) -> set[str]:
        places = (self._devices / "publish" / name, self._devices / name / "dev")
        return {one.name for place in places for one in place.glob("*")}

    def _staging(self, name: str) -> Path:
        return self._devices / "staging" / name

    def _published(self, name: str, pod_uid: str) -> Path:
        return self._devices / "publish" / name / pod_uid

    def _data(self, name: str) -> Path:
        return self._devices / name / "data"
