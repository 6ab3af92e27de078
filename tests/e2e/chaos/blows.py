"""What hits the processes: kills, freezes, cut connections, errors, and the API server's end."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from devcluster.components import Component
from tests.e2e.chaos.figures import Figures
from tests.e2e.chaos.ground import Ground
from tests.kube.faultproxy import Fault

LONGEST_FREEZE_S = 12.0
"""Longer than a Lease: another replica leads when the frozen one comes back."""
AT_ONCE = 3
"""Processes that are down at one time; more than that only shows that nothing runs."""


class Blows:
    """Deals blows at random, each over before it returns."""

    def __init__(
        self,
        ground: Ground,
        random: Random,
        figures: Figures,
        every_s: float,
        *,
        ends_api_server: bool,
    ) -> None:
        """`every_s`: the mean time between two blows."""
        self._ground, self._random, self._figures = ground, random, figures
        self._every_s = every_s
        self._down: set[str] = set()
        """Components that a blow is dealt to just now."""
        self._refusing: set[str] = set()
        """Proxies that refuse connections just now."""
        self._api_server_is_down = False
        self._kinds: dict[Callable[[], Coroutine[Any, Any, None]], int] = {
            self._kill: 6,
            self._freeze: 3,
            self._cut: 5,
            self._refuse: 2,
            self._fail: 4,
            self._lose: 4,
        }
        if ends_api_server and not ground.installation.control_plane.is_shared:
            self._kinds[self._end_api_server] = 1

    async def deal(self, until: Callable[[], bool]) -> None:
        """Deal blows, some at once, until `until` holds; wait for the end of all."""
        async with asyncio.TaskGroup() as group:
            while not until():
                await asyncio.sleep(self._random.expovariate(1 / self._every_s))
                if until():
                    return
                [blow] = self._random.choices(list(self._kinds), list(self._kinds.values()))
                if len(self._down) < AT_ONCE or blow not in (self._kill, self._freeze):
                    group.create_task(blow())

    async def _kill(self) -> None:
        with self._victim() as victim:
            self._note("kill -9", victim.name)
            victim.kill()
            await asyncio.sleep(self._random.uniform(0, 3))
            await asyncio.to_thread(victim.restart)

    async def _freeze(self) -> None:
        with self._victim() as victim:
            self._note("freeze", victim.name)
            victim.process.pause()
            await asyncio.sleep(self._random.uniform(0.5, LONGEST_FREEZE_S))
            victim.process.resume()

    async def _cut(self) -> None:
        name = self._through()
        self._note("cut watches", name)
        self._ground.proxies[name].cut_streams()

    async def _refuse(self) -> None:
        name = self._through()
        if name in self._refusing:
            return
        self._refusing.add(name)
        self._note("refuse connections", name)
        proxy = self._ground.proxies[name]
        await proxy.stop_listening()
        proxy.cut_streams()
        await asyncio.sleep(self._random.uniform(0.5, 8))
        await proxy.listen()
        self._refusing.discard(name)

    async def _fail(self) -> None:
        """Answer some writes with an error, without carrying them out."""
        name, method = self._through(), self._random.choice(("POST", "PATCH", "DELETE"))
        self._note("answer 500", name)
        times = self._random.randint(1, 8)
        self._ground.proxies[name].break_next(Fault(method, "/", times=times, status=500))

    async def _lose(self) -> None:
        """Carry some writes out, and lose the answers."""
        name, method = self._through(), self._random.choice(("POST", "PATCH", "DELETE"))
        self._note("lose answers", name)
        times = self._random.randint(1, 8)
        self._ground.proxies[name].break_next(Fault(method, "/", times=times, drop_after_send=True))

    async def _end_api_server(self) -> None:
        if self._api_server_is_down:
            return
        self._api_server_is_down = True
        self._note("kill -9", "kube-apiserver")
        plane = self._ground.installation.control_plane
        await asyncio.to_thread(plane.kill_api_server)
        try:
            await asyncio.sleep(self._random.uniform(0, 3))
        finally:  # an attack that is cut off leaves the API server up, too
            plane.start_api_server()
        self._api_server_is_down = False

    @contextmanager
    def _victim(self) -> Iterator[Component]:
        free = self._ground.components.keys() - self._down
        name = self._random.choice(sorted(free))
        self._down.add(name)
        try:
            yield self._ground.components[name]
        finally:
            self._down.discard(name)

    def _through(self) -> str:
        return self._random.choice(list(self._ground.proxies))

    def _note(self, kind: str, target: str) -> None:
        self._figures.blows[f"{kind} {target.rpartition('-')[0] or target}"] += 1
