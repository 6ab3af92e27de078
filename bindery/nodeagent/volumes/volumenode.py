"""What the volumes of a node stand on: its directory, its kinds of volumes, the API and a clock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bindery.nodeagent.volumes.interface import Plugins, VolumeObjects
from bindery.nodeagent.volumes.mounts import Mounter

Record = Callable[[str, str, str], None]
"""Records an event of a pod: UID, reason, message."""


@dataclass(frozen=True)
class VolumeNode:
    """A node.

    Attributes:
        root: the kubelet's directory, such as /var/lib/kubelet.
        name: the node's name.
        clock: a steady clock in seconds.
        labels: of the Node.
    """

    root: Path
    name: str
    plugins: Plugins
    objects: VolumeObjects
    mounter: Mounter
    clock: Callable[[], float]
    record: Record
    labels: Callable[[], Mapping[str, str]] = dict
