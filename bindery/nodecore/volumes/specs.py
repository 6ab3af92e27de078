"""A volume that is mounted or attached, and its names and places on the node."""

import hashlib
from dataclasses import dataclass
from typing import Final

CSI_PLUGIN: Final = "kubernetes.io/csi"


@dataclass(frozen=True)
class VolumeSpec:
    """A volume as its plugin sees it.

    Attributes:
        name: its name: of the PersistentVolume, or of the volume in the pod.
        plugin: the plugin's name, such as kubernetes.io/csi.
        plugin_volume: the plugin's name for the volume, such as DRIVER^HANDLE.
        is_attachable: whether it is attached to the node first.
        is_device_mountable: whether it is mounted once for all pods first.
        requires_remount: whether it is mounted again when its pod changes, as secrets are.
        is_expandable: whether the node grows its file system.
        is_block: whether pods use it as a device.
        size_bytes: the size that it is to have, 0 if that does not matter.
        gid: the group that pods get for it, empty for none.
        selinux_label: the label that it is mounted with, empty for none.
    """

    name: str
    plugin: str
    plugin_volume: str = ""
    is_attachable: bool = False
    is_device_mountable: bool = False
    requires_remount: bool = False
    is_expandable: bool = False
    is_read_only: bool = False
    is_block: bool = False
    size_bytes: int = 0
    gid: str = ""
    selinux_label: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether the node has the volume once, for all pods."""
        return self.is_attachable or self.is_device_mountable


def unique_name(spec: VolumeSpec, pod_uid: str) -> str:
    """Return the name of the volume on the node: one for all pods, or one for each."""
    inner = spec.plugin_volume if spec.is_shared else f"{pod_uid}-{spec.name}"
    return f"{spec.plugin}/{inner}"


def pod_volume_path(pod_uid: str, plugin: str, name: str, *, is_block: bool = False) -> str:
    """Return where the volume of a pod is, below the kubelet's directory."""
    kind = "volumeDevices" if is_block else "volumes"
    return f"pods/{pod_uid}/{kind}/{plugin.replace('/', '~')}/{name}"


def csi_global_mount(driver: str, handle: str) -> str:
    """Return where a CSI volume is staged, below the kubelet's directory."""
    digest = hashlib.sha256(handle.encode()).hexdigest()
    return f"plugins/{CSI_PLUGIN}/{driver}/{digest}/globalmount"


def csi_attachment(driver: str, handle: str, node: str) -> str:
    """Return the name of the VolumeAttachment of a CSI volume."""
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node}".encode()).hexdigest()
