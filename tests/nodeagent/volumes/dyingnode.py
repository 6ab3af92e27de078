"""A node's volumes on real mounts, in a process that can be killed at each change of the disk.

`python -m tests.nodeagent.volumes.dyingnode ROOT SOCKET STORY AT` plays a story and ends:
`up` mounts the volumes of a pod, `down` takes all volumes of the last run away. AT is the number of
the change at which the process kills itself, and `before` or `after`; `0 never` for none. It prints
the number of changes that it has made.
"""

import asyncio
import functools
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bindery.nodeagent.volumes import blockmap, local, mounts
from bindery.nodeagent.volumes.csi.client import CsiDriver
from bindery.nodeagent.volumes.mounts import LinuxMounter
from tests.nodeagent.volumes.volumeworld import DRIVER, Objects, claimed, pod, running, world

FILES = ("mkdir", "replace", "rename", "symlink_to", "unlink", "rmdir", "touch", "write_bytes")
STORY_S = 60


class Killer:
    """Counts changes, and kills the process at one of them."""

    def __init__(self, at: str) -> None:
        number, self._when = at.split(" ")
        self._number = int(number)
        self.count = 0

    def watch(self) -> None:
        """Count what changes files, mounts and the driver's state."""
        for name in FILES:
            setattr(Path, name, self._plain(getattr(Path, name)))
        shutil.rmtree = self._plain(shutil.rmtree)  # type: ignore[assignment]
        run = self._awaited(mounts.run)
        for module in (mounts, blockmap, local):
            module.run = run  # type: ignore[attr-defined]
        call = CsiDriver._call
        CsiDriver._call = self._awaited(call)  # type: ignore[method-assign]

    def _plain(self, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def counted(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            number = self.count
            self._die(number, "before")
            found = work(*arguments, **named)
            self._die(number, "after")
            return found

        return counted

    def _awaited(self, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        async def counted(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            number = self.count
            self._die(number, "before")
            found = await work(*arguments, **named)
            self._die(number, "after")
            return found

        return counted

    def _die(self, number: int, when: str) -> None:
        if number == self._number and when == self._when:
            os.kill(os.getpid(), signal.SIGKILL)


def objects() -> Objects:
    """Return the objects of the API in these stories."""
    found = Objects()
    found.drivers[DRIVER] = {"attachRequired": False}
    found.add_csi("data")
    found.add_csi("block", volumeMode="Block")
    found.maps["settings"] = {"a": b"1", "b": b"2"}
    found.secrets["login"] = {"user": b"admin"}
    return found


POD = pod(
    "one",
    claimed("data"),
    claimed("block"),
    {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    {"name": "settings", "configMap": {"name": "settings"}},
    {"name": "login", "secret": {"secretName": "login"}},
    devices=["block"],
    spec={"securityContext": {"fsGroup": 1234}},
)


async def play(root: Path, socket: Path, story: str) -> None:
    of = world(root, LinuxMounter(), objects())
    await of.drivers.register(DRIVER, socket)
    if story == "up":
        of.put(POD)
    else:
        of.keeper.set_pods([], sources_ready=True)
    async with asyncio.timeout(STORY_S), running(of):
        if story == "up":
            await of.is_ready("one")
        else:
            actual = of.keeper.manager.actual
            await of.until(lambda: not actual.attached_volumes() and of.keeper.is_idle, STORY_S)
            of.keeper.remove_directories()


if __name__ == "__main__":
    killer = Killer(sys.argv[4])
    killer.watch()
    asyncio.run(play(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
    print(killer.count)
