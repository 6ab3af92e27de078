"""The parts of `bindery nodeagent beside --shares`, which halt at a step for a kill exactly there.

Run on a node. While the file HALT names a step, a handshake that reaches it writes HALT.reached and
goes on when HALT is gone. What is killed meanwhile is up to the test.
"""

import argparse
import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path, PurePosixPath

from bindery.kube.access.credentials import Credentials
from bindery.kube.client import Client
from bindery.kube.http.carrier import Answer, Carrier
from bindery.kube.http.requests import ApiRequest
from bindery.kube.http.transport import Transport
from bindery.kube.realenvironment import REAL
from bindery.nodeagent.beside.gpuparts import GpuOptions, GpuParts
from bindery.nodeagent.devices.filesource import FileSource
from bindery.nodeagent.devices.hamiregister import Sharing
from bindery.nodeagent.shares.process import SharesOptions
from bindery.observability import logs

STEPS = ("read", "before-pod", "after-pod", "after-lock")
"""The call has come; before and after the pod is written; the lock is released, no answer yet."""
_SUCCESS = b'"hami.io/bind-phase":"success"'
_LOCK = b"hami.io~1mutex.lock"


class HaltingCarrier:
    """Sends requests, and halts before or after those of a handshake."""

    def __init__(self, carrier: Carrier, halt: Path) -> None:
        self._carrier, self._halt = carrier, halt
        self.field_manager = carrier.field_manager

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        body = request.body or b""
        writes_pod = request.verb == "patch" and _SUCCESS in body
        releases = request.verb == "patch" and _LOCK in body
        if writes_pod:
            await self._at("before-pod")
        answer = await self._carrier.send(request, timeout_s)
        if request.verb == "get" and request.resource == "pods":
            await self._at("read")
        if writes_pod:
            await self._at("after-pod")
        if releases:
            await self._at("after-lock")
        return answer

    def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        return self._carrier.stream(request, idle_s)

    async def close(self) -> None:
        await self._carrier.close()

    async def _at(self, step: str) -> None:
        while self._halt.exists() and self._halt.read_text() == step:
            self._halt.with_suffix(".reached").touch()
            await asyncio.sleep(0.02)


async def _run(given: argparse.Namespace) -> None:
    credentials = await Credentials.load(given.kubeconfig)
    carrier = HaltingCarrier(Transport(credentials, "bindery-shares/0", 16), given.halt)
    options = GpuOptions(
        source=FileSource(given.devices),
        kubelet=Path("/var/lib/kubelet"),
        shares=SharesOptions(Sharing(split_count=4)),
        hami_core=PurePosixPath("/opt/hami"),
        every_s=0.5,
    )
    async with Client(carrier, 30.0, REAL) as client:
        await GpuParts(client, given.node, options).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--node")
    for name in ("kubeconfig", "devices", "halt"):
        parser.add_argument(f"--{name}", type=Path)
    logs.configure("bindery-shares", "debug")
    asyncio.run(_run(parser.parse_args()))
