"""All kinds of volumes of a node, made from what they stand on."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bindery.nodeagent.volumes.csi.blocks import CsiBlocks
from bindery.nodeagent.volumes.csi.drivers import CsiDrivers
from bindery.nodeagent.volumes.csi.plugin import CsiPlugin
from bindery.nodeagent.volumes.emptydir import EMPTY_DIR, EmptyDirPlugin, Scratch
from bindery.nodeagent.volumes.filevolumes import FILE_PLUGINS, FilePlugin
from bindery.nodeagent.volumes.hostpath import HOST_PATH, HostPathPlugin
from bindery.nodeagent.volumes.interface import Plugins, PodContent, VolumeObjects
from bindery.nodeagent.volumes.local import LOCAL, LocalPlugin
from bindery.nodeagent.volumes.mounts import Mounter
from bindery.nodecore.volumes.specs import CSI_PLUGIN


@dataclass(frozen=True)
class Foundation:
    """What the kinds stand on.

    Attributes:
        root: the kubelet's directory.
        node: the node's name.
        now_s: the clock since the epoch.
        allocatable_bytes: the node's memory for pods.
        without_swap: whether the kernel knows tmpfs' option `noswap` (Linux 6.4 and newer).
    """

    root: Path
    node: str
    mounter: Mounter
    drivers: CsiDrivers
    objects: VolumeObjects
    content: PodContent
    now_s: Callable[[], float]
    allocatable_bytes: Callable[[], int]
    without_swap: bool = False


def every_kind(on: Foundation) -> Plugins:
    """Return emptyDir, hostPath, local, CSI, and the kinds of files."""
    scratch = Scratch(on.root, on.mounter, on.allocatable_bytes, without_swap=on.without_swap)
    local = LocalPlugin(on.root, on.mounter)
    csi = CsiPlugin(on.root, on.node, on.mounter, on.drivers, on.objects, on.content)
    files = {
        name: FilePlugin(name, on.root, scratch, on.content, on.now_s) for name in FILE_PLUGINS
    }
    return Plugins(
        {
            EMPTY_DIR: EmptyDirPlugin(on.root, scratch),
            HOST_PATH: HostPathPlugin(),
            LOCAL: local,
            CSI_PLUGIN: csi,
            **files,
        },
        {LOCAL: local, CSI_PLUGIN: csi},
        {LOCAL: local, CSI_PLUGIN: CsiBlocks(on.root, on.node, on.mounter, csi)},
    )


def has_noswap(release: str) -> bool:
    """Return whether a kernel of this release knows tmpfs' option `noswap`, as 6.4 does."""
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return (int(major), int(minor or 0)) >= (6, 4)
