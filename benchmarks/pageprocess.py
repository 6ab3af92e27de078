"""The processes of the dashboard's benchmark: one that serves the pages, and a scheduler's.

Used by `dashboard`. The pages are those of the real web application on the loopback address, over
mirrors that `pageworlds` fills; tokens are reviewed at once, by a table.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final

from aiohttp import web

from benchmarks import pageworlds
from benchmarks.pageworlds import Mirrors, PageWorld
from benchmarks.usage import Usage
from bindery.answers.grouperrows import GrouperRows
from bindery.answers.source import Source
from bindery.api.configuration import SchedulerConfiguration
from bindery.dashboard.guard import Entrance
from bindery.dashboard.history import RecordedHistory
from bindery.dashboard.kept import KeptEngine
from bindery.dashboard.rights import ALL, Rights
from bindery.dashboard.sessions import Sessions
from bindery.dashboard.state import StateKeeper
from bindery.dashboard.web import Server, Site
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.watches.store import Change, EventType
from bindery.observability.interpreter import collect_rarely, take_short_turns
from bindery.scheduler.engine import Engine

CHANGES_A_S: Final = 20.0
"""Changes of pods that watches deliver, all the time."""
LIMIT_S: Final = 300.0
"""Until a process must have done what is asked."""
LOOPBACK: Final = "127.0.0.1"
PEOPLE: Final[Mapping[str, Rights]] = {
    "auditor": ALL,
    "tenant": Rights(
        frozenset(pageworlds.team(number) for number in range(5)), queues=False, nodes=True
    ),
}
"""Token -> rights."""


class WatchedCluster:
    """The cluster as watches deliver it. Implements `ClusterReader`."""

    is_fixed = False

    def __init__(self, world: PageWorld) -> None:
        self._mirrors = Mirrors(world)
        self.changes = 0
        self.kept = KeptEngine(time.time)

    async def run(self) -> None:
        """Take changes until cancelled."""
        while True:
            for change in self._mirrors.change_a_pod():
                self.changes += 1
                self.kept.take(change)
            await asyncio.sleep(1 / CHANGES_A_S)

    async def source(self) -> Source:
        """Return the cluster."""
        snapshot = ClusterSnapshot.of(self._mirrors.objects())
        return Source(snapshot, SchedulerConfiguration(), datetime.now(UTC))

    async def grouper_rows(self) -> GrouperRows:
        """Return the rows of the project alone."""
        return GrouperRows()

    def namespaces(self) -> list[str]:
        """Return the namespaces."""
        return self._mirrors.names()


class _Reviews:
    """Answers at once what people may see. Implements `Reviewer`."""

    async def name_of(self, token: str) -> str:
        """Return the name of the user with `token`."""
        return token

    async def rights_of(self, token: str, namespaces: Collection[str]) -> Rights:  # noqa: ARG002
        """Return the rights of the user with `token`."""
        return PEOPLE[token]


def serve(world: PageWorld, pipe: "Connection[object, object]") -> None:
    """Serve the pages of `world` until the process is ended.

    `pipe`: gets the port, then for each plan True when it begins and False when it ends.
    """
    collect_rarely()
    take_short_turns()
    asyncio.run(_served(world, pipe))


async def _served(world: PageWorld, pipe: "Connection[object, object]") -> None:
    cluster = WatchedCluster(world)
    keeper = StateKeeper(cluster, time.monotonic)
    sessions = Sessions(_Reviews(), time.monotonic)
    site = Site(
        keeper, cluster, sessions, RecordedHistory(), Entrance(is_local=False, is_secure=False)
    )
    runner = web.AppRunner(Server(site).application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    pipe.send(runner.addresses[0][1])
    async with asyncio.TaskGroup() as group:
        group.create_task(cluster.run())
        group.create_task(keeper.run())
        group.create_task(_tell_plans(keeper, pipe))


async def _tell_plans(keeper: StateKeeper, pipe: "Connection[object, object]") -> None:
    was_planning = False
    while True:
        if keeper.is_planning != was_planning:
            was_planning = not was_planning
            pipe.send(was_planning)
        await asyncio.sleep(0.05)


@dataclass
class Page:
    """The page's process. `began_s`: when the plan that is under way began; None without one."""

    pid: int
    port: int
    began_s: float | None
    plans: list[float]
    """The lengths in seconds of the plans that have ended."""

    def listen(self, pipe: "Connection[object, object]") -> None:
        """Take word of plans until the process ends."""
        while True:
            try:
                is_planning = pipe.recv()
            except (EOFError, OSError):
                return
            now = time.monotonic()
            if self.began_s is not None:
                self.plans.append(now - self.began_s)
            self.began_s = now if is_planning else None


@contextmanager
def page_process(world: PageWorld) -> Iterator[Page]:
    """Serve the pages of `world` within the block.

    Raises:
        TimeoutError: they are not served.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(world, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(LIMIT_S):
            raise TimeoutError("the pages are not served")
        port = ours.recv()
        assert isinstance(port, int)
        assert process.pid is not None
        page = Page(process.pid, port, None, [])
        threading.Thread(target=page.listen, args=(ours,), daemon=True).start()
        yield page
    finally:
        process.terminate()
        process.join()
        ours.close()


def scheduler_mb(world: PageWorld) -> float:
    """Return the most memory that a scheduler's process holds with `world`.

    Raises:
        TimeoutError: it does not plan.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=plan_once, args=(world, theirs))
    process.start()
    try:
        if not ours.poll(LIMIT_S):
            raise TimeoutError("the scheduler does not plan")
        found = ours.recv()
        assert isinstance(found, float)
        return found
    finally:
        process.join()


def plan_once(world: PageWorld, pipe: "Connection[object, object]") -> None:
    """Hold the cluster as a scheduler does, plan a cycle, and send the most memory it took."""
    collect_rarely()
    mirrors = Mirrors(world)
    engine = Engine(SchedulerConfiguration(), time.time)
    for item in mirrors.objects():
        engine.cluster.apply(Change(EventType.ADDED, item, None))
    list(engine.cycle())
    gc.collect()
    pipe.send(Usage.own().peak_mb)
