"""vol_data.json: what the kubelet keeps beside a mount of a CSI driver to take it away later."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bindery.nodeagent.volumes.interface import MountError
from bindery.nodeagent.volumes.mounts import Mounter, at
from bindery.nodecore.volumes.specs import CSI_PLUGIN

FILE: Final = "vol_data.json"
_TEMPORARY: Final = f".{FILE}"

VOLUME: Final = "specVolID"
HANDLE: Final = "volumeHandle"
DRIVER: Final = "driverName"
NODE: Final = "nodeName"
ATTACHMENT: Final = "attachmentID"
LIFECYCLE: Final = "volumeLifecycleMode"
PERSISTENT: Final = "Persistent"
EPHEMERAL: Final = "Ephemeral"


def save(directory: Path, data: Mapping[str, str]) -> None:
    """Write the file whole; raises MountError."""
    text = json.dumps(dict(sorted(data.items())), separators=(",", ":"), ensure_ascii=False)
    temporary = directory / _TEMPORARY
    try:
        temporary.write_text(f"{text}\n", encoding="utf-8")
        temporary.replace(directory / FILE)
    except OSError as error:
        raise MountError(
            f"{CSI_PLUGIN}: failed to save volume data file {directory / FILE}: {error.strerror}"
        ) from error


def load(directory: Path) -> dict[str, str] | None:
    """Return the content of the file, None without one; raises MountError if it is not valid."""
    try:
        found = json.loads((directory / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise MountError(
            f"{CSI_PLUGIN}: failed to parse volume data file [{directory / FILE}]: {error}"
        ) from error
    return {str(name): str(value) for name, value in found.items()}


def remove(mounter: Mounter, place: Path) -> None:
    """Remove the directory of a mount, the file beside it and their directory, if unmounted.

    Raises:
        MountError: something is left in a directory.
    """
    if at(place, mounter.mounts()) is not None:
        return
    directory = place.parent
    try:
        _remove_directory(place)
        (directory / FILE).unlink(missing_ok=True)
        (directory / _TEMPORARY).unlink(missing_ok=True)
        _remove_directory(directory)
    except OSError as error:
        raise MountError(
            f"{CSI_PLUGIN}: failed to remove dir [{error.filename}]: {error.strerror}"
        ) from error


def _remove_directory(place: Path) -> None:
    if place.exists():
        place.rmdir()
