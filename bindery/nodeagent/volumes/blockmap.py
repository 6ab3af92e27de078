"""The node's part of volumes that are devices: bind mounts, links and loop devices, for each pod.

A device is bound in a directory of its plugin, at the UID of the pod. The pod's directory has a
link to it. A loop device keeps it open, so that no other device gets its name in the meantime.
"""

from pathlib import Path

from bindery.nodeagent.volumes.interface import MountError
from bindery.nodeagent.volumes.mounts import Mounter, at, make_directories, remove_mount, run


async def map_device(mounter: Mounter, device: str, place: Path, link: Path) -> None:
    """Bind `device` at `place` and let `link` lead to it; raises MountError."""
    source = _source(device)
    if at(place, mounter.mounts()) is None:
        _make_file(place)
        await mounter.mount(str(source), place, "", ["bind"])
    _make_link(link, source)
    if not await _loops(place):
        code, output = await run("losetup", "-f", str(place))
        if code:
            raise MountError(f"blkUtil.AttachFileDevice failed. {place}: {output.strip()}")


async def unmap_device(mounter: Mounter, place: Path) -> None:
    """Take the loop device and the bind mount away, as far as they are there.

    The link stays: `remove_link` follows when the driver has taken the device away, so that a
    device is found after a kill at any step.
    """
    for loop in await _loops(place):
        code, output = await run("losetup", "-d", loop)
        if code:
            raise MountError(f"blkUtil.DetachFileDevice failed. {place}: {output.strip()}")
    await remove_mount(mounter, place)


def remove_link(link: Path) -> None:
    """Remove the pod's link to a device."""
    link.unlink(missing_ok=True)


def users(place: Path) -> list[Path]:
    """Return the bind mounts of pods in the directory `place`."""
    return sorted(place.iterdir()) if place.is_dir() else []


def _source(device: str) -> Path:
    try:
        return Path(device).resolve(strict=True)
    except OSError as error:
        raise MountError(f"lstat {device}: {error.strerror}") from error


def _make_file(place: Path) -> None:
    make_directories(place.parent)
    place.touch(mode=0o660)


def _make_link(link: Path, source: Path) -> None:
    make_directories(link.parent)
    link.unlink(missing_ok=True)
    link.symlink_to(source)


async def _loops(place: Path) -> list[str]:
    """Return the loop devices on a file; none if there is no file."""
    code, output = await run("losetup", "-n", "-O", "NAME", "-j", str(place))
    return [] if code else output.split()
