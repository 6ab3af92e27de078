"""kill -9 of the scheduler during a commit: incomplete Statements are completed or cleared."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bindery.api.configuration import BindRequestConfiguration
from devcluster.components import Component, Components
from devcluster.install import Installation
from tests.e2e.support import Corner, Gang, Observer, scheduler_configuration
from tests.e2e.traps import Trap, TrapProxy, kill, ready, trapped
from tests.sizes import sample

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder")]

Proxied = tuple[TrapProxy, Components]


@pytest.fixture
async def proxied(installation: Installation, tmp_path: Path) -> AsyncIterator[Proxied]:
    async with trapped(installation, "scheduler", tmp_path) as pair:
        yield pair


async def start_scheduler(proxied: Proxied, pool: str, max_pods: int = 500) -> Component:
    """Start a scheduler behind the proxy, or its successor."""
    _, components = proxied
    configuration = scheduler_configuration(pool, BindRequestConfiguration(max_pods=max_pods))
    return await ready(components.start_scheduler(configuration, name=f"scheduler-{pool}"))


@pytest.mark.parametrize(
    ("at", "after"),
    sample(
        2,
        [
            pytest.param(1, False, id="1-before-commit"),
            pytest.param(3, False, id="3-before-commit"),
            pytest.param(3, True, id="3-after-commit"),
            pytest.param(1, True, id="1-after-commit"),
        ],
    ),
)
async def test_gangs_are_bound_whole_after_the_scheduler_was_killed_during_a_commit(
    corner: Corner, observer: Observer, proxied: Proxied, at: int, after: bool
) -> None:
    victim = await start_scheduler(proxied, corner.pool)
    proxy, _ = proxied
    trap = proxy.set(Trap("POST", "/bindrequests", kill(victim), at=at, after=after))
    await corner.add_nodes("a", "b", cpu="8")
    gangs = [Gang(f"gang-{index}", size=4) for index in range(4)]
    await corner.submit(*gangs)
    await trap.wait()

    await start_scheduler(proxied, corner.pool)
    await corner.wait_bound(*gangs)
    await corner.wait_nothing_left()
    assert len(observer.statements) == len(gangs), "no gang was committed twice"


async def test_a_gang_bound_while_no_scheduler_runs_reports_it_when_one_starts(
    corner: Corner, observer: Observer, binder: Component, proxied: Proxied
) -> None:
    first = await start_scheduler(proxied, corner.pool)
    await corner.add_nodes("a")
    gang = Gang("gang", size=2)
    # In a thread: the scheduler renews its lease through this process.
    await asyncio.to_thread(binder.stop)
    try:
        await corner.submit(gang)
        await corner.wait_request()
        first.kill()
    finally:
        await asyncio.to_thread(binder.restart)
    await corner.wait_bound(gang)
    said = await corner.condition(gang)
    assert said is None or said.status == "False", "nobody was there to say it"

    await start_scheduler(proxied, corner.pool)

    await corner.wait_condition(gang, "True", "Scheduled")
    assert len(observer.created_requests) == 1


@dataclass(frozen=True)
class SplitGang:
    """A gang of five over two nodes, whose scheduler died between the parts of its Statement."""

    corner: Corner
    gang: Gang
    proxied: Proxied
    used_node: str
    """The node of the first part's pods."""
    other_node: str

    async def restart_scheduler(self) -> None:
        await start_scheduler(self.proxied, self.corner.pool, max_pods=2)

    async def check_binds(self) -> None:
        await self.corner.wait_bound(self.gang)
        await self.corner.wait_nothing_left()

    async def check_binds_nothing_and_then_all(self) -> None:
        """Check that it is unbound while there is one node, and binds when a second one comes."""
        corner, gang = self.corner, self.gang
        await corner.wait_nothing_left()
        await corner.wait_condition(gang, "False", "Unschedulable")
        assert await corner.bound_count(gang) == 0

        await corner.add_nodes(f"c-{corner.pool}", cpu="3")
        await self.check_binds()


async def kill_between_parts(corner: Corner, proxied: Proxied, at: int) -> SplitGang:
    """Kill a scheduler after part `at` of three."""
    victim = await start_scheduler(proxied, corner.pool, max_pods=2)
    proxy, _ = proxied
    trap = proxy.set(Trap("POST", "/bindrequests", kill(victim), at=at, after=True))
    nodes = await corner.add_nodes(f"a-{corner.pool}", f"b-{corner.pool}", cpu="3")
    gang = Gang(f"split-{corner.pool}", size=5)
    await corner.submit(gang)
    await trap.wait()
    parts = sorted(await corner.requests(), key=lambda part: part.spec.part)
    assert len(parts) == at
    [used] = {pod.selected_node for pod in parts[0].spec.pods}
    return SplitGang(corner, gang, proxied, used, *(set(nodes) - {used}))


async def test_gangs_are_whole_or_unbound_after_crashes_between_parts_of_a_statement(
    corner: Corner, observer: Observer, installation: Installation, tmp_path: Path
) -> None:
    """Three crashes at once, because incomplete Statements are cleared only after 30 s."""
    async with AsyncExitStack() as stack:

        async def crash(name: str, at: int) -> SplitGang:
            own = replace(corner, pool=f"{corner.pool}-{name}")
            stack.push_async_callback(own.clean)
            context = trapped(installation, "scheduler", tmp_path / name)
            return await kill_between_parts(own, await stack.enter_async_context(context), at)

        first, second, rest = [
            await crash(name, at) for name, at in (("first", 1), ("second", 2), ("rest", 1))
        ]
        await corner.remove_node(rest.other_node)
        for each in (first, second, rest):
            await each.restart_scheduler()
        await asyncio.gather(
            first.check_binds(), second.check_binds(), rest.check_binds_nothing_and_then_all()
        )


async def test_a_gang_is_not_bound_in_part_if_the_node_of_its_committed_part_is_deleted(
    corner: Corner, observer: Observer, proxied: Proxied
) -> None:
    split = await kill_between_parts(corner, proxied, at=1)
    await corner.remove_node(split.used_node)
    await split.restart_scheduler()
    await split.check_binds_nothing_and_then_all()
