"""kill -9 of the binder at every step of a transaction: a restart ends what it has begun."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import Corner, Gang, Observer, binder_configuration
from traps import Trap, TrapProxy, kill, ready, trapped

from bindery.controlplane.components import Components
from bindery.controlplane.install import Installation

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler")]

SIZE = 4


@pytest.fixture
async def proxied(
    installation: Installation, tmp_path: Path
) -> AsyncIterator[tuple[TrapProxy, Components]]:
    async with trapped(installation, "binder", tmp_path) as pair:
        yield pair


async def check_whole(corner: Corner, gang: Gang) -> None:
    await corner.wait_bound(gang)
    await corner.wait_nothing_left()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("method", "path", "at"),
    [
        ("POST", "/binding", 1),
        ("POST", "/binding", 2),
        ("POST", "/binding", SIZE),
        ("PATCH", "/bindrequests/", 1),
        ("DELETE", "/bindrequests/", 1),
    ],
    ids=["bind-1", "bind-2", "bind-last", "status", "removal"],
)
async def test_a_gang_is_whole_after_a_binder_was_killed(
    corner: Corner,
    observer: Observer,
    proxied: tuple[TrapProxy, Components],
    method: str,
    path: str,
    at: int,
    after: bool,
) -> None:
    proxy, components = proxied
    victim = await ready(components.start_binder(binder_configuration()))
    trap = proxy.set(Trap(method, path, kill(victim), at=at, after=after))
    await corner.add_nodes("a", "b", cpu="2")
    gang = Gang("gang", size=SIZE)
    await corner.submit(gang)
    await trap.wait()

    await ready(components.start_binder(binder_configuration()))
    await check_whole(corner, gang)
    assert len(observer.created_requests) == 1


@pytest.fixture
def plugin_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that are started find the plugin beside these tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "plugins"))
