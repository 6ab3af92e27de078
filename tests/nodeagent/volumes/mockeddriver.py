"""Kubernetes' mock CSI driver, with errors that a test plans."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.goprograms import program
from tests.nodeagent.volumes.volumeworld import DRIVER, FakeMounter, World, running, world

HANDLE: Final = "1"
"""One of the volumes that the driver has."""
NEVER: Final = "NEVER"
_QUESTIONS: Final = ("NodeGetInfo", "NodeGetCapabilities")


@dataclass
class MockedDriver:
    """The driver at `socket`, with its plan of errors and its log."""

    socket: Path
    plan: Path
    log: Path

    def answers(self) -> bool:
        """Return whether the driver accepts connections; its socket is there before."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def refuse(self, **codes: str) -> None:
        """Let calls of these methods fail with these codes, and the others succeed."""
        new = self.plan.with_suffix(".new")
        new.write_text(json.dumps(codes))
        new.replace(self.plan)

    def calls(self) -> list[str]:
        """Return the answered calls: the method, and the code if it is not OK.

        A call that is repeated with the same answer counts once.
        """
        found: list[str] = []
        for line in self.log.read_text().splitlines():
            call = line.removesuffix(" OK")
            if call not in _QUESTIONS and found[-1:] != [call]:
                found.append(call)
        return found


@asynccontextmanager
async def mocked(place: Path, call_s: float = 60.0) -> AsyncIterator[tuple[World, MockedDriver]]:
    """Run a node with the driver and a claim of its volume; `call_s`: how long a call may take."""
    driver = MockedDriver(place / "csi.sock", place / "plan.json", place / "log")
    driver.refuse()
    of = world(place / "kubelet", FakeMounter(), call_s=call_s)
    of.objects.drivers[DRIVER] = {"attachRequired": False}
    of.objects.add_csi(HANDLE)
    arguments = [str(driver.socket), str(driver.plan), str(driver.log)]
    process = await asyncio.create_subprocess_exec(program("csimock"), *arguments)
    try:
        await of.until(driver.answers, timeout_s=60)
        await of.drivers.register(DRIVER, driver.socket)
        async with running(of):
            yield of, driver
    finally:
        process.kill()
        await process.wait()


def state(of: World) -> tuple[str, dict[str, str]]:
    """Return whether the driver's volume is mounted for the node, and for each pod."""
    found = of.keeper.manager.actual.attached_volumes()
    if not found:
        return "", {}
    (volume,) = found
    return volume.device.name, {uid: one.state.name for uid, one in volume.pods.items()}
