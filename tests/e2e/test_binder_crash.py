"""kill -9 of the binder at every step of a transaction: a restart completes the transaction."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.components import Components
from devcluster.install import Installation
from tests.e2e.sabotage import Sabotage
from tests.e2e.support import Corner, Gang, Observer, binder_configuration, wait_for
from tests.e2e.traps import Trap, TrapProxy, kill, ready, trapped
from tests.sizes import IS_LONG, sample

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler")]

SIZE = 4
WRITES = {
    "bind-1": ("POST", "/binding", 1),
    "bind-2": ("POST", "/binding", 2),
    "bind-last": ("POST", "/binding", SIZE),
    "status": ("PATCH", "/bindrequests/", 1),
    "removal": ("DELETE", "/bindrequests/", 1),
}


def moments() -> list[tuple[str, bool]]:
    """Return the writes, each with whether the kill comes after it.

    A short run has one moment of each write; the kill matrix has both of all writes.
    """
    every = [(write, after) for write in WRITES for after in (False, True)]
    return every if IS_LONG else [(write, n % 2 == 1) for n, write in enumerate(WRITES)]


@pytest.fixture
async def proxied(
    installation: Installation, tmp_path: Path
) -> AsyncIterator[tuple[TrapProxy, Components]]:
    async with trapped(installation, "binder", tmp_path) as pair:
        yield pair


async def check_whole(corner: Corner, gang: Gang) -> None:
    await corner.wait_bound(gang)
    await corner.wait_nothing_left()


@pytest.mark.parametrize(
    ("write", "after"),
    [
        pytest.param(*each, id=f"{each[0]}-{'after' if each[1] else 'before'}")
        for each in sample(3, moments())
    ],
)
async def test_a_gang_is_bound_whole_after_the_binder_was_killed(
    corner: Corner,
    observer: Observer,
    proxied: tuple[TrapProxy, Components],
    write: str,
    after: bool,
) -> None:
    proxy, components = proxied
    method, path, at = WRITES[write]
    victim = await ready(components.start_binder(binder_configuration()))
    trap = proxy.set(Trap(method, path, kill(victim), at=at, after=after))
    await corner.add_nodes("a", "b", cpu="2")
    gang = Gang("gang", size=SIZE)
    await corner.submit(gang)
    await trap.wait()

    await ready(components.start_binder(binder_configuration()))
    await check_whole(corner, gang)
    assert len(observer.created_requests) == 1


@pytest.mark.usefixtures("plugin_path")
@pytest.mark.parametrize(
    ("step", "at"),
    sample(2, [("pre_bind", 1), ("pre_bind", SIZE), ("rollback", 2), ("post_bind", 2)]),
)
async def test_a_gang_is_bound_whole_after_the_binder_died_in_a_plugin(
    corner: Corner, observer: Observer, components: Components, tmp_path: Path, step: str, at: int
) -> None:
    first, *_ = await corner.add_nodes("a", "b", "c", cpu="2")
    plugin = Sabotage(tmp_path / "journal", die_in=step, die_at=at)
    if step == "rollback":
        plugin = replace(plugin, refuse_node=first)
    victim = components.start_binder(binder_configuration(plugin.configuration())).wait_ready()
    gang = Gang("gang", size=SIZE)
    await corner.submit(gang)

    async def died() -> bool:
        return not victim.process.is_running

    await wait_for(died, f"the binder dies in {step}")
    components.start_binder(binder_configuration(plugin.configuration())).wait_ready()
    await corner.wait_bound(gang)
    await corner.wait_nothing_left()
    await wait_for(plugin.has_finished(await corner.pods(gang)), "every pod's post_bind was called")
