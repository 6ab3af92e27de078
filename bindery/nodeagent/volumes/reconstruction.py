"""What the last run has left below the kubelet's directory."""

import os
from collections.abc import Container, Iterable
from pathlib import Path

from bindery.nodeagent.volumes.mounts import Mounter
from bindery.nodecore.volumes.reconstruction import FoundVolume
from bindery.nodecore.volumes.specs import pod_volume_path

_KINDS = ("volumes", "volumeDevices")


def paths(root: Path, bound: Iterable[FoundVolume]) -> set[str]:
    """Return the places of volumes in the directories of pods, relative to `root`.

    `bound`: devices that are there for pods; the link in the pod's directory may be missing.
    """
    found = {
        str(path.relative_to(root)) for kind in _KINDS for path in root.glob(f"pods/*/{kind}/*/*")
    }
    return found | {
        pod_volume_path(one.pod_uid, one.plugin, one.name, is_block=True) for one in bound
    }


def remove_directories(root: Path, mounter: Mounter, known: Container[str]) -> list[str]:
    """Remove the directories of pods that are not `known` and have no volumes; return their UIDs.

    A directory in which something is mounted stays.
    """
    mounts = [one.place for one in mounter.mounts()]
    removed = []
    for place in sorted(root.glob("pods/*")):
        has_volumes = any(True for kind in _KINDS for _ in place.glob(f"{kind}/*/*"))
        has_mounts = any(one.is_relative_to(place) for one in mounts)
        if place.name not in known and not has_volumes and not has_mounts:
            _remove(place)
            removed.append(place.name)
    return removed


def _remove(place: Path) -> None:
    """Remove a directory with all it has, links unfollowed."""
    for directory, folders, files in os.walk(place, topdown=False):
        here = Path(directory)
        for name in (*files, *(one for one in folders if (here / one).is_symlink())):
            (here / name).unlink(missing_ok=True)
        here.rmdir()
