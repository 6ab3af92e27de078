"""A proxy in front of the API server that does something at a chosen request, such as a kill -9.

Between a component and the API server it marks a point in the middle of what the component does:
before a request has reached the server, or after it has taken effect and before the answer comes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from aiohttp import web

from devcluster.components import Component, Components
from devcluster.install import Installation
from tests.e2e.support import WAIT_S
from tests.kube.faultproxy import FaultProxy


@dataclass
class Trap:
    """What happens at the `at`-th request with this method and path, once."""

    method: str
    path_part: str
    action: Callable[[], Awaitable[None]]
    at: int = 1
    after: bool = False
    """Whether it happens when the request has taken effect; the answer waits for it."""
    sprung: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `action` is over."""
    _seen: int = 0

    def catches(self, request: web.BaseRequest) -> bool:
        """Return whether this is the request, and count it."""
        if request.method != self.method or self.path_part not in request.path_qs:
            return False
        self._seen += 1
        return self._seen == self.at

    async def wait(self) -> None:
        """Wait until `action` is over."""
        async with asyncio.timeout(WAIT_S):
            await self.sprung.wait()


class TrapProxy(FaultProxy):
    """Passes everything unchanged but at its traps."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(kubeconfig, directory)
        self.traps: list[Trap] = []

    def set(self, trap: Trap) -> Trap:
        self.traps.append(trap)
        return trap

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        caught = [trap for trap in self.traps if trap.catches(request)]
        for trap in caught:
            if not trap.after:
                await self._spring(trap)
        response = await super()._handle(request)
        for trap in caught:
            if trap.after:
                await self._spring(trap)
        return response

    async def _spring(self, trap: Trap) -> None:
        await trap.action()
        trap.sprung.set()


def kill(victim: Component) -> Callable[[], Awaitable[None]]:
    """Return the action that kills a component."""

    async def act() -> None:
        # Without giving way to the event loop, which cancels the handler of a client that is gone.
        victim.kill()

    return act


@asynccontextmanager
async def trapped(
    installation: Installation, component: str, directory: Path
) -> AsyncIterator[tuple[TrapProxy, Components]]:
    """Yield a proxy, and the way to start components of which `component` goes through it."""
    proxy = TrapProxy(installation.kubeconfigs[component], directory)
    async with proxy.serve():
        kubeconfigs = {**installation.kubeconfigs, component: proxy.kubeconfig}
        with Components(replace(installation, kubeconfigs=kubeconfigs)) as components:
            yield proxy, components


async def ready(component: Component) -> Component:
    """Wait until it is ready, beside the event loop that serves its proxy."""
    return await asyncio.to_thread(component.wait_ready)
