"""The plugin of CSI volumes: staging for the node, publishing for pods, growth.

Errors have the kubelet's words. `blocks` has the steps of devices.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from bindery.nodeagent.volumes.csi import datafiles
from bindery.nodeagent.volumes.csi.client import Capabilities, CsiDriver, VolumeUse
from bindery.nodeagent.volumes.csi.drivers import CsiDrivers
from bindery.nodeagent.volumes.interface import (
    InUseError,
    MountError,
    NotSupportedError,
    PodContent,
    PodMount,
    VolumeObjects,
)
from bindery.nodeagent.volumes.mounts import Mounter, make_directories
from bindery.nodeagent.volumes.ownership import set_group_slowly
from bindery.nodeagent.volumes.sources import (
    READ_WRITE_ONCE,
    READ_WRITE_ONCE_POD,
    CsiSource,
    DriverSpec,
    ObjectName,
)
from bindery.nodecore.volumes.actual import Failure
from bindery.nodecore.volumes.populator import VolumeError
from bindery.nodecore.volumes.reconstruction import FoundVolume
from bindery.nodecore.volumes.specs import (
    CSI_PLUGIN,
    VolumeSpec,
    csi_attachment,
    csi_global_mount,
    pod_volume_path,
)

_MOUNT: Final = "mount"
_DIGEST: Final = "[0-9a-f]" * 64
_TOKENS: Final = "csi.storage.k8s.io/serviceAccount.tokens"
_INFO: Final = "csi.storage.k8s.io/"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class CsiVolumeUse:
    """A volume with its driver.

    Attributes:
        settings: the CSIDriver; its defaults without one.
    """

    source: CsiSource
    driver: CsiDriver
    settings: DriverSpec
    can: Capabilities


class CsiPlugin:
    """The steps of CSI volumes.

    Args:
        root: the kubelet's directory.
        node: the node's name.
    """

    def __init__(
        self,
        root: Path,
        node: str,
        mounter: Mounter,
        drivers: CsiDrivers,
        objects: VolumeObjects,
        content: PodContent,
    ) -> None:
        self._root = root
        self._node = node
        self._mounter = mounter
        self.drivers = drivers
        self._objects = objects
        self._content = content

    def path(self, mount: PodMount) -> Path:
        """Return where the driver mounts the volume for the pod."""
        return self._directory(mount.pod.uid, mount.spec.name) / _MOUNT

    def device_path(self, spec: VolumeSpec) -> Path:
        """Return where the driver mounts the volume for the node."""
        driver, _, handle = spec.plugin_volume.partition("^")
        return self._root / csi_global_mount(driver, handle)

    async def mount_device(self, mount: PodMount, device: str) -> None:  # noqa: ARG002  drivers know it
        """Stage the volume, if its driver does so."""
        using = await self.using(mount, "attacher.MountDevice failed to create newCsiDriverClient")
        context = await self.publish_context(using.source, using.settings)
        secrets: Mapping[str, str] = {}
        if using.can.stages:
            secrets = await self.secrets(using.source.node_stage_secret_ref, mount, "NodeStage")
        place = self.device_path(mount.spec)
        make_directories(place)
        if not using.can.stages:
            return
        known = {
            datafiles.HANDLE: using.source.volume_handle, datafiles.DRIVER: using.source.driver,
        }  # fmt: skip
        datafiles.save(place.parent, known)
        use = self.use(mount, using, context, secrets)
        try:
            await using.driver.stage(use, place, using.can)
        except MountError as error:
            if error.failure == Failure.FINAL:
                datafiles.remove(self._mounter, place)
            raise

    async def unmount_device(self, spec: VolumeSpec) -> None:
        """Unstage the volume."""
        await self.unstage(self.device_path(spec))

    async def unstage(self, place: Path) -> None:
        """Unstage the volume at `place`, which its file names."""
        known = datafiles.load(place.parent)
        if known is None:
            datafiles.remove(self._mounter, place)
            return
        driver = self.drivers.get(known[datafiles.DRIVER])
        if (await driver.capabilities()).stages:
            try:
                await driver.unstage(known[datafiles.HANDLE], place)
            except MountError as error:
                raise _worded("attacher.UnmountDevice failed", error) from error
        datafiles.remove(self._mounter, place)

    async def set_up(self, mount: PodMount) -> None:
        """Publish the volume."""
        using = await self.using(mount, "mounter.SetUpAt failed to get CSI client")
        is_ephemeral = mount.volume is None
        lifecycle = datafiles.EPHEMERAL if is_ephemeral else datafiles.PERSISTENT
        _check_lifecycle(using, lifecycle)
        context = {} if is_ephemeral else await self.publish_context(using.source, using.settings)
        secrets = await self.secrets(using.source.node_publish_secret_ref, mount, "NodePublish")
        attributes = await self._attributes(mount, using.settings, is_ephemeral=is_ephemeral)
        place = self.path(mount)
        make_directories(place.parent)
        datafiles.save(place.parent, self._known(mount, using.source, lifecycle))
        staged = self.device_path(mount.spec) if using.can.stages and not is_ephemeral else None
        use = self.use(mount, using, context, secrets, attributes)
        try:
            await using.driver.publish(
                use, place, staged, using.can, is_read_only=mount.spec.is_read_only
            )
        except MountError as error:
            is_over = error.failure == Failure.FINAL
            if is_over and not mount.is_reconstructed and not mount.is_remount:
                datafiles.remove(self._mounter, place)
            raise
        if not using.can.sets_group and _sets_group(mount, using):
            await set_group_slowly(place, mount)

    async def tear_down(self, found: FoundVolume) -> None:
        """Unpublish the volume."""
        directory = self._directory(found.pod_uid, found.name)
        known = datafiles.load(directory)
        if known is not None:
            try:
                driver = self.drivers.get(known[datafiles.DRIVER])
            except MountError as error:
                raise _worded("Unmounter.TearDownAt failed to get CSI client", error) from error
            try:
                await driver.unpublish(known[datafiles.HANDLE], directory / _MOUNT)
            except MountError as error:
                raise _worded("Unmounter.TearDownAt failed", error) from error
        datafiles.remove(self._mounter, directory / _MOUNT)

    def construct(self, found: FoundVolume) -> VolumeSpec:
        """Return the volume that the file in its directory names."""
        directory = self._directory(found.pod_uid, found.name)
        known = datafiles.load(directory)
        if known is None:
            raise VolumeError(
                f"{CSI_PLUGIN}: plugin.ConstructVolumeSpec failed loading volume data using "
                f"[{directory}]"
            )
        if known.get(datafiles.LIFECYCLE) == datafiles.EPHEMERAL:
            return VolumeSpec(found.name, CSI_PLUGIN)
        return persistent_spec(known)

    async def grow(self, mount: PodMount, size_bytes: int, device: str) -> None:
        """Let the driver grow the volume."""
        using = await self.using(mount, "Expander.NodeExpand failed")
        if not using.can.grows:
            raise NotSupportedError(
                f"NodeExpand is not supported by the CSI driver {using.source.driver}"
            )
        secrets = await self.secrets(using.source.node_expand_secret_ref, mount, "NodeExpand")
        use = self.use(mount, using, {}, secrets)
        staged = self.device_path(mount.spec) if using.can.stages else None
        place = device if mount.spec.is_block else str(self.path(mount))
        try:
            await using.driver.expand(use, place, staged, size_bytes, using.can)
        except InUseError:
            raise
        except MountError as error:
            words = f"Expander.NodeExpand failed to expand the volume : {error}"
            raise MountError(words, error.failure) from error

    def left_behind(self) -> list[VolumeSpec]:
        """Return the staged volumes that files name; directories without a file are removed."""
        found = []
        for directory in sorted(self._root.glob(f"plugins/{CSI_PLUGIN}/*/{_DIGEST}")):
            try:
                known = datafiles.load(directory)
                if known is None:  # it is made before staging, and removed after unstaging
                    datafiles.remove(self._mounter, directory / "globalmount")
            except MountError as error:
                log.warning("a directory of a CSI volume is left", error=str(error))
                continue
            if known and datafiles.HANDLE in known and datafiles.DRIVER in known:
                name = known[datafiles.HANDLE]  # that of the PersistentVolume is not in the file
                found.append(persistent_spec({datafiles.VOLUME: name, **known}))
        return found

    async def using(self, mount: PodMount, complaint: str) -> CsiVolumeUse:
        """Return the volume with its driver; raises a transient MountError if it is missing."""
        source = source_of(mount)
        try:
            driver = self.drivers.get(source.driver)
        except MountError as error:
            raise _worded(complaint, error) from error
        settings = await self._objects.driver(source.driver)
        can = await driver.capabilities()
        return CsiVolumeUse(source, driver, settings.spec if settings else DriverSpec(), can)

    async def publish_context(self, source: CsiSource, settings: DriverSpec) -> Mapping[str, str]:
        """Return what the driver's controller has left in the VolumeAttachment."""
        if not settings.attach_required:
            return {}
        name = csi_attachment(source.driver, source.volume_handle, self._node)
        try:
            found = await self._objects.attachment(name)
        except VolumeError as error:
            raise MountError(str(error), Failure.TRANSIENT) from error
        if found is None:
            raise MountError(
                f'volumeattachments.storage.k8s.io "{name}" not found', Failure.TRANSIENT
            )
        return found.status.attachment_metadata or {}

    async def secrets(
        self, wanted: ObjectName | None, mount: PodMount, step: str
    ) -> Mapping[str, str]:
        """Return the content of a Secret for a call; raises a transient MountError."""
        if wanted is None:
            return {}
        namespace = wanted.namespace or mount.pod.metadata.namespace
        try:
            found = await self._content.secret(namespace, wanted.name)
        except VolumeError as error:
            problem = str(error)
        else:
            problem = f'secret "{wanted.name}" not found' if found is None else ""
            if found is not None:
                return {key: value.decode(errors="surrogateescape") for key, value in found.items()}
        raise MountError(
            f"fetching {step}SecretRef {namespace}/{wanted.name} failed: {problem}",
            Failure.TRANSIENT,
        )

    def use(
        self,
        mount: PodMount,
        using: CsiVolumeUse,
        context: Mapping[str, str],
        secrets: Mapping[str, str],
        attributes: Mapping[str, str] | None = None,
    ) -> VolumeUse:
        """Return the arguments of a call."""
        volume = mount.volume
        return VolumeUse(
            handle=using.source.volume_handle,
            kind=volume.spec.volume_mode if volume else "Filesystem",
            access_mode=volume.access_mode if volume else READ_WRITE_ONCE,
            fs_type=using.source.fs_type or "",
            mount_options=(volume.spec.mount_options if volume else None) or (),
            group=mount.pod.fs_group if using.can.sets_group else None,
            attributes=using.source.volume_attributes or {} if attributes is None else attributes,
            publish_context=context,
            secrets=secrets,
        )

    async def _attributes(
        self, mount: PodMount, settings: DriverSpec, *, is_ephemeral: bool
    ) -> dict[str, str]:
        attributes = dict(source_of(mount).volume_attributes or {})
        if settings.pod_info_on_mount:
            attributes |= pod_info(mount, is_ephemeral=is_ephemeral)
        if settings.token_requests:
            try:
                tokens = {
                    one.audience: {"token": await self._content.token(mount.pod, one)}
                    for one in settings.token_requests
                }
            except VolumeError as error:
                raise MountError(str(error), Failure.TRANSIENT) from error
            attributes[_TOKENS] = json.dumps(tokens, separators=(",", ":"))
        return attributes

    def _known(self, mount: PodMount, source: CsiSource, lifecycle: str) -> dict[str, str]:
        return {
            datafiles.VOLUME: mount.spec.name,
            datafiles.HANDLE: source.volume_handle,
            datafiles.DRIVER: source.driver,
            datafiles.NODE: self._node,
            datafiles.LIFECYCLE: lifecycle,
            datafiles.ATTACHMENT: csi_attachment(source.driver, source.volume_handle, self._node),
        }

    def _directory(self, pod_uid: str, name: str) -> Path:
        return self._root / pod_volume_path(pod_uid, CSI_PLUGIN, name)


def source_of(mount: PodMount) -> CsiSource:
    """Return the volume's source; a pod's own volume gets the handle that the kubelet makes."""
    if mount.volume is not None and mount.volume.spec.csi is not None:
        return mount.volume.spec.csi
    if mount.source is None or mount.source.csi is None:
        raise MountError("volume source not found in volume.Spec")
    inline = mount.source.csi
    digest = hashlib.sha256(f"{mount.pod.uid}{mount.spec.name}".encode()).hexdigest()
    return CsiSource(
        driver=inline.driver,
        volume_handle=f"csi-{digest}",
        fs_type=inline.fs_type,
        volume_attributes=inline.volume_attributes,
        node_publish_secret_ref=inline.node_publish_secret_ref,
    )


def persistent_spec(known: Mapping[str, str], *, is_block: bool = False) -> VolumeSpec:
    """Return the volume of a claim that a file names."""
    return VolumeSpec(
        known[datafiles.VOLUME],
        CSI_PLUGIN,
        f"{known[datafiles.DRIVER]}^{known[datafiles.HANDLE]}",
        is_device_mountable=True,
        is_expandable=True,
        is_block=is_block,
    )


def pod_info(mount: PodMount, *, is_ephemeral: bool) -> dict[str, str]:
    """Return what drivers with `podInfoOnMount` get of the pod."""
    meta = mount.pod.metadata
    return {
        f"{_INFO}pod.name": meta.name,
        f"{_INFO}pod.namespace": meta.namespace,
        f"{_INFO}pod.uid": meta.uid,
        f"{_INFO}serviceAccount.name": mount.pod.spec.service_account_name,
        f"{_INFO}ephemeral": str(is_ephemeral).lower(),
    }


def _check_lifecycle(using: CsiVolumeUse, lifecycle: str) -> None:
    modes = using.settings.volume_lifecycle_modes or [datafiles.PERSISTENT]
    if lifecycle not in modes:
        raise MountError(
            f"{CSI_PLUGIN}: mounter.SetupAt failed to check volume lifecycle mode: volume mode "
            f'"{lifecycle}" not supported by driver {using.source.driver} (only supports '
            f"{json.dumps(modes)})",
            Failure.TRANSIENT,
        )


def _sets_group(mount: PodMount, using: CsiVolumeUse) -> bool:
    """Return whether the node changes the group of the files (`fsGroupPolicy`)."""
    policy = using.settings.fs_group_policy
    if mount.pod.fs_group is None or policy == "None" or mount.spec.is_read_only:
        return False
    if policy == "File":
        return True
    modes = mount.volume.spec.access_modes if mount.volume else [READ_WRITE_ONCE]
    is_alone = READ_WRITE_ONCE in modes or READ_WRITE_ONCE_POD in modes
    return bool(using.source.fs_type) and is_alone


def _worded(prefix: str, error: MountError) -> MountError:
    return MountError(f"{CSI_PLUGIN}: {prefix}: {error}", error.failure)
