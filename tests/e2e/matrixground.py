"""The ground of the kill matrix: its corners of the cluster, and the binder that all share.

A corner outlives its gangs, as a namespace and its nodes do; one in which something went wrong is
given up. Pods that have a corner's nodes see nothing of the others'.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bindery.api.configuration import BinderConfiguration
from bindery.kube.client import Client
from bindery.kube.objects.resources import NAMESPACES, NODES
from devcluster.components import Component, Components
from tests.e2e.matrixarena import Arena
from tests.e2e.matrixworld import OTHER, REFUSED, Refuse, World
from tests.e2e.sabotage import Sabotage
from tests.e2e.support import Corner, binder_configuration
from tests.e2e.traps import ready

_BEAT_S = 15.0
"""The node controller gives up nodes that are silent for 50 seconds."""


@dataclass
class Ground:
    """What all runs share."""

    client: Client
    pool: str
    arena: Arena
    components: Components
    journal: Path
    binder: Component | None = None

    async def start_binder(self, world: World) -> None:
        """Start the binder; one that runs must have been killed."""
        self.binder = await ready(self.components.start_binder(self._configuration(world)))

    def kill_binder(self) -> None:
        """Kill it, if it runs."""
        if self.binder is not None:
            self.binder.kill()

    def _configuration(self, world: World) -> BinderConfiguration:
        refused = {world.refuse: f"-{REFUSED}"}
        refuser = Sabotage(
            self.journal,
            refuse_node=refused.get(Refuse.PREPARED, ""),
            refuse_turn_on=refused.get(Refuse.IN_TURN, ""),
        ).configuration()
        made = binder_configuration(*world.plugins, refuser, time_to_live_s=0.2)
        return made.model_copy(update={"max_backoff_seconds": 0.2})


@dataclass
class Corners:
    """Lends corners of one world, each to one gang at a time."""

    world: World
    ground: Ground
    _free: list[Corner] = field(default_factory=list)
    _nodes: set[str] = field(default_factory=set)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Corners"]:
        """Keep the nodes alive meanwhile, and remove everything at the end."""
        beat = asyncio.create_task(self._beat())
        try:
            async with self._stack:
                yield self
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Corner]:
        """Yield a corner, which is used again unless the body fails."""
        corner = self._free.pop() if self._free else await self._make()
        yield corner
        self._free.append(corner)

    async def _make(self) -> Corner:
        name = f"matrix-{secrets.token_hex(3)}x"
        client = self.ground.client
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await client.create(NAMESPACES, body)
        self._stack.push_async_callback(client.delete, NAMESPACES, name)
        corner = Corner(client, name, self.ground.pool)
        nodes = await corner.add_nodes(REFUSED, OTHER, cpu=self.world.cpu)
        for node in nodes:
            self._stack.push_async_callback(corner.remove_node, node)
        await self._stack.enter_async_context(self.world.prepared(corner))
        self._nodes.update(nodes)
        return corner

    async def _beat(self) -> None:
        condition = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
        while True:
            await asyncio.sleep(_BEAT_S)
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            patch = {"status": {"conditions": [{**condition, "lastHeartbeatTime": now}]}}
            for node in list(self._nodes):
                await self.ground.client.patch(NODES, node, patch, subresource="status")
