"""Mounts volumes of each kind in a mount namespace of its own, uses them, and prints what it finds.

`unshare --mount --propagation=private python -m tests.nodeagent.volumes.mountedstory PLACE`.
"""

import asyncio
import errno
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bindery.nodeagent.volumes.interface import MountError
from bindery.nodeagent.volumes.mounts import LinuxMounter, run
from bindery.nodeagent.volumes.subpaths import SubPath, bind
from bindery.nodecore.operations import OperationKey
from bindery.nodecore.volumes.specs import csi_global_mount
from tests.nodeagent.volumes.csidriver import IMAGE_BYTES, Driver
from tests.nodeagent.volumes.volumeworld import DRIVER, World, claimed, pod, running, world

GROUP = 1234


def problem_of(work: Callable[[], object]) -> str:
    """Return the name of the error of `work`."""
    try:
        work()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "none"


async def memory(of: World) -> dict[str, Any]:
    """Fill a volume in memory."""
    source = {"medium": "Memory", "sizeLimit": "1Mi"}
    of.put(pod("memory", {"name": "scratch", "emptyDir": source}))
    await of.is_ready("memory")
    place = of.keeper.mounted("memory")["scratch"].path
    found = problem_of(lambda: (place / "file").write_bytes(b"x" * (2 << 20)))
    await of.is_gone("memory")
    return {"too much": found, "is left": place.exists()}


async def sub_paths(of: World) -> dict[str, Any]:
    """Bind parts of a volume, and try to leave it by a link."""
    of.put(pod("parts", {"name": "scratch", "emptyDir": {}}))
    await of.is_ready("parts")
    volume = of.keeper.mounted("parts")["scratch"].path
    (volume / "out").symlink_to("/etc")
    (volume / "file").write_text("content")

    def part(path: str, index: int) -> SubPath:
        return SubPath(volume, path, "parts", "scratch", "main", index)

    directory = await bind(of.root, of.mounter, part("deep/er", 0))
    (directory / "written").write_text("by the container")
    file = await bind(of.root, of.mounter, part("file", 1))
    try:
        await bind(of.root, of.mounter, part("out/passwd", 2))
    except MountError as error:
        refusal = str(error)
    found = {
        "written": (volume / "deep/er/written").read_text(),
        "file": file.read_text(),
        "refusal": refusal.replace(str(volume), "VOLUME"),
    }
    await of.is_gone("parts")
    return {**found, "is left": (of.root / "pods/parts/volume-subpaths").exists()}


async def disk(of: World, place: Path) -> dict[str, Any]:
    """Use an empty disk of the node."""
    image = place / "disk.img"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    _, output = await run("losetup", "--show", "-f", str(image))
    loop = output.strip()
    try:
        of.objects.add("disk", local={"path": loop})
        group = {"securityContext": {"fsGroup": GROUP}}
        of.put(pod("disk", claimed("disk"), spec=group))
        of.put(pod("reader", claimed("disk", readOnly=True)))
        await of.is_ready("disk")
        await of.is_ready("reader")
        volume = of.keeper.mounted("disk")["disk"].path
        (volume / "file").write_text("content")
        reader = of.keeper.mounted("reader")["disk"].path
        found = {
            "group": volume.stat().st_gid,
            "read": (reader / "file").read_text(),
            "written": problem_of((reader / "other").touch),
        }
        of.remove("reader")
        await of.keeper.wait_for_unmount("reader")
        await of.is_gone("disk")
        return found
    finally:
        await run("losetup", "-d", loop)


async def growing(of: World) -> dict[str, Any]:
    """Let a device grow while a pod has it."""
    of.objects.add_csi("block", volumeMode="Block")
    of.put(pod("block", claimed("block"), devices=["block"]))
    await of.is_ready("block")
    device = of.keeper.mounted("block")["block"].path
    before = _size(device)
    size = 2 * IMAGE_BYTES
    of.objects.volumes["pv-block"]["spec"]["capacity"] = {"storage": str(size)}
    await of.is_ready("block")
    await of.until(lambda: of.objects.grown == [("block", size)])
    after = _size(device)
    await of.is_gone("block")
    return {"before": before, "after": after}


async def held(of: World, place: Path) -> dict[str, Any]:
    """Keep a volume mounted elsewhere, so that it must stay staged."""
    of.objects.add_csi("data")
    of.put(pod("held", claimed("data")))
    await of.is_ready("held")
    staged = of.root / csi_global_mount(DRIVER, "data")
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    await of.mounter.mount(str(staged), elsewhere, "", ["bind"])
    of.remove("held")
    await of.keeper.wait_for_unmount("held")
    pending = of.keeper.manager.pending
    name = f"kubernetes.io/csi/{DRIVER}^data"
    await of.until(lambda: pending.concerns(name) and not pending.is_pending(OperationKey(name)))
    is_staged = staged.is_dir()
    await of.mounter.unmount(elsewhere)
    await of.until(lambda: not of.keeper.manager.actual.attached_volumes())
    return {"stays": is_staged, "is left": staged.exists()}


def _size(device: Path) -> int:
    with device.open("rb") as file:
        return file.seek(0, 2)


async def main(place: Path) -> dict[str, Any]:
    mounter = LinuxMounter()
    server = Driver(place / "state", mounter).server(place / "csi.sock")
    await server.start()
    of = world(place / "kubelet", mounter)
    of.objects.drivers[DRIVER] = {"attachRequired": False}
    await of.drivers.register(DRIVER, place / "csi.sock")
    async with asyncio.timeout(200), running(of):
        found = {
            "memory": await memory(of),
            "subPath": await sub_paths(of),
            "disk": await disk(of, place),
            "growing": await growing(of),
            "held": await held(of, place),
        }
    await server.stop(None)
    left = [str(one.place) for one in mounter.mounts() if one.place.is_relative_to(place)]
    return {**found, "left": left}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
