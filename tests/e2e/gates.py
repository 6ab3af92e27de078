"""A proxy in front of the API server that holds a scheduler's commits, and its Lease.

What is held arrives later, even if its sender is gone by then, as it may on a slow network.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from bindery.api.names import FENCE_LABEL
from devcluster.components import Components
from devcluster.install import Installation
from tests.e2e.support import WAIT_S
from tests.kube.faultproxy import FaultProxy

Body = Mapping[str, Any]


class Gate(FaultProxy):
    """Passes on everything but creations of BindRequests, which it can hold."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(kubeconfig, directory)
        self.bodies: list[Body] = []
        """The BindRequests that were to be created, in order, each once."""
        self._numbers: dict[str, int] = {}
        """Name of a BindRequest -> its position in `bodies`."""
        self.keeps_lease_writes = False
        """Whether writes of Leases get no answer."""
        self._limit = math.inf
        """How many creations may pass, counted from the first of all."""
        self._news = asyncio.Event()
        self._under_way: set[asyncio.Task[web.StreamResponse]] = set()

    def close(self) -> None:
        """Hold all creations from now on."""
        self._limit = len(self.bodies)

    def let_pass(self, count: float = math.inf) -> None:
        """Let `count` further creations pass, in the order in which they come."""
        self._limit += count
        self._news.set()

    async def wait_for_creations(self, count: int) -> None:
        """Wait until so many BindRequests were to be created."""
        async with asyncio.timeout(WAIT_S):
            while len(self.bodies) < count:
                await self._hear()

    async def wait_for_shared(self) -> list[Body]:
        """Wait for a BindRequest with several Statements, and return them."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for body in self.bodies:
                    statements: list[Body] = body["spec"].get("statements", [])
                    if len(statements) > 1:
                        return statements
                await self._hear()

    async def _hear(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.keeps_lease_writes and request.method != "GET" and "/leases" in request.path:
            await asyncio.sleep(3600)
        if request.method != "POST" or not request.path.endswith("/bindrequests"):
            return await super()._handle(request)
        body = json.loads(await request.read())
        if FENCE_LABEL in body["metadata"].get("labels", {}):
            return await super()._handle(request)
        name = body["metadata"]["name"]
        if name not in self._numbers:  # else it is repeated, as its sender has waited for long
            self._numbers[name] = len(self.bodies)
            self.bodies.append(body)
            self._news.set()
        task = asyncio.create_task(self._pass_later(request, self._numbers[name]))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _pass_later(self, request: web.BaseRequest, number: int) -> web.StreamResponse:
        while number >= self._limit:
            await self._hear()
        return await self._pass_on(request, None, is_watch=False)


@asynccontextmanager
async def gated(
    installation: Installation, directory: Path
) -> AsyncIterator[tuple[Gate, Components]]:
    """Yield a gate, and the way to start schedulers behind it."""
    gate = Gate(installation.kubeconfigs["scheduler"], directory)
    async with gate.serve():
        kubeconfigs = {**installation.kubeconfigs, "scheduler": gate.kubeconfig}
        with Components(replace(installation, kubeconfigs=kubeconfigs)) as components:
            yield gate, components
