"""Volumes of the last run, found in the directories of pods after a restart."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bindery.nodecore.volumes.actual import ActualVolumes
from bindery.nodecore.volumes.desired import DesiredVolumes
from bindery.nodecore.volumes.populator import VolumeError
from bindery.nodecore.volumes.specs import VolumeSpec, unique_name

_KINDS = {"volumes": False, "volumeDevices": True}
_PARTS = 5


@dataclass(frozen=True)
class FoundVolume:
    """A volume in a pod's directory.

    Attributes:
        name: its name: of the PersistentVolume, or of the volume in the pod.
        is_block: whether it is a device.
    """

    pod_uid: str
    plugin: str
    name: str
    is_block: bool = False


Construct = Callable[[FoundVolume], VolumeSpec]
"""Asks the plugin what the volume is; raises VolumeError if the plugin does not know it."""


@dataclass(frozen=True)
class Reconstructed:
    """The outcome for the found volumes.

    Attributes:
        waiting: the volumes that need an entry of the node's status.
        failed: the volumes that their plugins do not know.
    """

    waiting: frozenset[str] = frozenset()
    failed: tuple[FoundVolume, ...] = ()


def volumes_in(paths: Iterable[str]) -> list[FoundVolume]:
    """Return the volumes of pods among paths below the kubelet's directory; others are ignored."""
    found = []
    for path in sorted(paths):
        parts = path.strip("/").split("/")
        if len(parts) == _PARTS and parts[0] == "pods" and parts[2] in _KINDS:
            _, pod_uid, kind, plugin, name = parts
            found.append(FoundVolume(pod_uid, plugin.replace("~", "/"), name, _KINDS[kind]))
    return found


def reconstruct(
    found: Iterable[FoundVolume], construct: Construct, actual: ActualVolumes
) -> Reconstructed:
    """Record volumes in the actual state; nothing about them is certain."""
    waiting: set[str] = set()
    failed = []
    for one in found:
        if actual.volume_exists_with_spec_name(one.pod_uid, one.name):
            continue
        try:
            spec = construct(one)
        except VolumeError:
            failed.append(one)
            continue
        name = unique_name(spec, one.pod_uid)
        actual.mark_volume_as_reconstructed(name, one.pod_uid, spec)
        waiting.add(name)
    return Reconstructed(frozenset(waiting), tuple(failed))


def update_from_node_status(
    waiting: Iterable[str], attached: Mapping[str, str], actual: ActualVolumes
) -> None:
    """Record which reconstructed volumes are attached, and where.

    `attached`: volume -> path of its device, as the node's status has them.
    """
    for name in waiting:
        actual.update_reconstructed(name, attached.get(name))


def orphans(failed: Iterable[FoundVolume], desired: DesiredVolumes) -> list[FoundVolume]:
    """Return the volumes to unmount: those of no known pod. Desired volumes are mounted anyway."""
    return [
        one for one in failed if not desired.volume_exists_with_spec_name(one.pod_uid, one.name)
    ]
