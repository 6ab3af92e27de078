"""Worlds of the kill matrix in which gangs of different kinds share a request.

The scheduler lets gangs share requests only when it has many to write. Here a proxy in front of the
API server puts those of a corner together, as the scheduler would.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from bindery.api.bindrequest import few_names
from bindery.api.configuration import PluginConfiguration
from bindery.api.names import NODE_POOL_LABEL
from bindery.scheduler.commit.writer import CONCURRENT_CREATIONS
from tests.e2e.matrixclaims import OwnClaims
from tests.e2e.matrixgpus import SharedGpus
from tests.e2e.matrixlocks import LockedNodes
from tests.e2e.matrixworld import Refuse, World
from tests.e2e.matrixworlds import ProvisionedVolumes
from tests.e2e.support import WAIT_S, Corner, Gang
from tests.kube.faultproxy import FaultProxy

_TOGETHER = 3


class PlainPods(World):
    """Pods that need nothing but cpu."""

    def gang(self, corner: Corner) -> Gang:  # noqa: ARG002  # equal everywhere
        return Gang(self.name, size=2)

    @property
    def plugins(self) -> Sequence[PluginConfiguration]:
        return ()

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:  # noqa: ARG002
        yield

    async def held(self, corner: Corner) -> list[str]:  # noqa: ARG002
        return []

    async def amiss(self, corner: Corner) -> list[str]:  # noqa: ARG002
        return []

    async def left_over(self, corner: Corner) -> list[str]:  # noqa: ARG002
        return []


class Neighbours(World):
    """Three gangs, each of a world of its own, in one request."""

    cpu = "8"
    # While they wait for each other, no place for a creation may be missing.
    at_once = CONCURRENT_CREATIONS // _TOGETHER

    def __init__(self, refuse: Refuse, **worlds: World) -> None:
        """`worlds`: by the names of their gangs."""
        assert len(worlds) == _TOGETHER
        self.refuse = refuse
        self._worlds = worlds
        for name, world in worlds.items():
            world.name = name

    @property
    def plugins(self) -> Sequence[PluginConfiguration]:
        return [plugin for world in self._worlds.values() for plugin in world.plugins]

    def gang(self, corner: Corner) -> Gang:
        return self.gangs(corner)[0]

    def gangs(self, corner: Corner) -> Sequence[Gang]:
        return [world.gang(corner) for world in self._worlds.values()]

    @asynccontextmanager
    async def prepared(self, corner: Corner) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for world in self._worlds.values():
                await stack.enter_async_context(world.prepared(corner))
            yield

    async def renew(self, corner: Corner) -> None:
        for world in self._worlds.values():
            await world.renew(corner)

    async def held(self, corner: Corner) -> list[str]:
        return [text for world in self._worlds.values() for text in await world.held(corner)]

    async def amiss(self, corner: Corner) -> list[str]:
        return [text for world in self._worlds.values() for text in await world.amiss(corner)]

    async def left_over(self, corner: Corner) -> list[str]:
        return [text for world in self._worlds.values() for text in await world.left_over(corner)]


NEIGHBOURS: Mapping[str, Neighbours] = {
    "plain, volumes and GPUs": Neighbours(
        Refuse.PREPARED, plain=PlainPods(), volumes=ProvisionedVolumes(), sharing=SharedGpus()
    ),
    "plain, claims and locks": Neighbours(
        Refuse.IN_TURN, plain=PlainPods(), claims=OwnClaims(), locking=LockedNodes()
    ),
}


@dataclass
class _Table:
    """The requests of one namespace that wait for the others."""

    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name, as a creation is repeated when it takes long."""
    answer: "asyncio.Future[tuple[int, bytes]]" = field(default_factory=asyncio.Future)


class Merger(FaultProxy):
    """Puts the BindRequests of a namespace together, three Statements in one."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(kubeconfig, directory)
        self._tables: defaultdict[str, _Table] = defaultdict(_Table)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "POST" or not request.path.endswith("/bindrequests"):
            return await super()._handle(request)
        body = json.loads(await request.read())
        namespace = body["metadata"]["namespace"]
        table = self._tables[namespace]
        table.bodies[body["metadata"]["name"]] = body
        bodies = list(table.bodies.values())
        if sum(len(each["spec"]["statements"]) for each in bodies) == _TOGETHER:
            del self._tables[namespace]
            table.answer.set_result(await self._create(request, merged(bodies)))
        async with asyncio.timeout(WAIT_S):
            status, text = await asyncio.shield(table.answer)
        return web.Response(status=status, body=text, content_type="application/json")

    async def _create(self, request: web.BaseRequest, body: Mapping[str, Any]) -> tuple[int, bytes]:
        headers = {
            name: value
            for name, value in request.headers.items()
            if name not in ("Host", "Content-Length", "Accept-Encoding")
        }
        async with self._session.post(
            self._upstream + request.path_qs, data=json.dumps(body), headers=headers
        ) as answer:
            return answer.status, await answer.read()


def merged(bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one BindRequest with the Statements of all."""
    every = sorted(bodies, key=lambda body: str(body["metadata"]["name"]))
    first, statements = every[0], [each for body in every for each in body["spec"]["statements"]]
    pods = [pod for each in statements for pod in each["pods"]]
    labels = {NODE_POOL_LABEL: first["metadata"]["labels"][NODE_POOL_LABEL]}
    owners = [owner for body in every for owner in body["metadata"]["ownerReferences"]]
    summary = {
        "gangs": few_names(each["podGroup"]["name"] for each in statements),
        "pods": len(pods),
        "nodes": few_names(pod["selectedNode"] for pod in pods),
    }
    return {
        **first,
        "metadata": {**first["metadata"], "labels": labels, "ownerReferences": owners},
        "spec": {**first["spec"], "statements": statements, "summary": summary},
    }
