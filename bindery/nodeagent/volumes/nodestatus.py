"""What the Node's status and the volume manager have of each other.

The attach-detach controller attaches volumes and lists them in `status.volumesAttached`. It does
not detach a volume while `status.volumesInUse` names it.
"""

from collections.abc import Iterable, Mapping

import msgspec

from bindery.nodecore.volumes.manager import VolumeManager


class AttachedEntry(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`AttachedVolume`."""

    name: str = ""
    device_path: str = ""


def attached(entries: Iterable[AttachedEntry]) -> Mapping[str, str]:
    """Return `status.volumesAttached`: volume -> the path of its device."""
    return {one.name: one.device_path for one in entries}


def in_use(manager: VolumeManager) -> list[str] | None:
    """Return `status.volumesInUse` for the writer of the status.

    None: the volumes of the last run are not known yet, and the field stays as it is. When the
    status is written, the writer calls `mark_volumes_as_reported_in_use` of the manager.
    """
    return manager.volumes_in_use() if manager.reconciler_states_has_been_synced() else None
