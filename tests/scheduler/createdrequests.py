"""A proxy between RequestWriter and the API server, which lets creations of requests fail."""

import asyncio
import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.kube.faultproxy import FaultProxy

FIRST = "first"
"""Begins the names of requests whose creation waits for `CreationProxy.released`."""


class Mishap(Enum):
    """What befalls the creation of a request."""

    LOST = "it is created, and the answer is lost"
    REFUSED = "it is refused"


class CreationProxy(FaultProxy):
    """Passes on everything but the creations that `mishaps` names."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        super().__init__(kubeconfig, directory)
        self.released = asyncio.Event()
        self.mishaps: dict[str, list[Mishap]] = {}
        """Name of a request -> what befalls its creations, one after the other."""
        self.bodies: list[Mapping[str, Any]] = []
        """The requests that were to be created, also repeatedly."""
        self._news = asyncio.Event()

    async def wait_for_creations(self, count: int) -> None:
        """Wait until so many requests were to be created."""
        while len(self.bodies) < count:
            self._news.clear()
            await self._news.wait()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "POST" or not request.path.endswith("/bindrequests"):
            return await super()._handle(request)
        body = json.loads(await request.read())
        self.bodies.append(body)
        self._news.set()
        name = body["metadata"]["name"]
        if name.startswith(FIRST):
            await self.released.wait()
        mishaps = self.mishaps.get(name)
        mishap = mishaps.pop(0) if mishaps else None
        if mishap is Mishap.REFUSED:
            return web.json_response({"kind": "Status", "message": "made up"}, status=403)
        answer = await super()._handle(request)
        if mishap is Mishap.LOST and request.transport is not None:
            request.transport.abort()
        return answer
