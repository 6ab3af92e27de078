"""Sockets in the plugins' directory: found, replaced, gone; plugins that lie, hang or die."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bindery.nodeagent.kubeletside.plugins import PluginManager
from bindery.nodecore.plugins import PluginError
from tests.nodeagent.kubeletside.socketworld import Plugin, until


@dataclass
class Handler:
    """A handler that records its calls."""

    invalid: str = ""
    failure: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        del name, endpoint, versions
        if self.invalid:
            raise PluginError(self.invalid)

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        del versions
        self.calls.append(("register", name, endpoint))
        if self.failure:
            raise PluginError(self.failure)

    async def deregister(self, name: str, endpoint: str) -> None:
        self.calls.append(("deregister", name, endpoint))


class Ground:
    """A directory with a plugin manager, whose clock a test sets."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.handler, self.now_s = directory, Handler(), 0.0
        uuids = iter(map(str, range(1000)))
        self.manager = PluginManager(
            directory, {"CSIPlugin": self.handler}, lambda: self.now_s, uuids.__next__, 0.02
        )

    def names(self) -> list[str]:
        return [plugin.name for plugin in self.manager.registered()]


@pytest.fixture
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    made = Ground(tmp_path_factory.mktemp("r") / "p")
    work = asyncio.create_task(made.manager.run())
    await until(made.directory.is_dir)
    yield made
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_a_plugin_is_registered_and_unregistered_with_its_socket(ground: Ground) -> None:
    plugin, socket = Plugin(), ground.directory / "csi-reg.sock"
    async with plugin.serving(socket):
        await until(lambda: plugin.statuses == [(True, "")])
    await until(lambda: ground.names() == [])

    assert ground.handler.calls == [
        ("register", plugin.name, str(socket)),  # without an endpoint, it is the socket
        ("deregister", plugin.name, str(socket)),
    ]


async def test_a_socket_that_is_replaced_is_registered_again(ground: Ground) -> None:
    first, second = Plugin(endpoint="/first.sock"), Plugin(endpoint="/second.sock")
    socket = ground.directory / "csi-reg.sock"
    async with first.serving(socket):
        await until(lambda: bool(first.statuses))
        async with second.serving(socket):
            await until(lambda: bool(second.statuses))

            calls = [(call, endpoint) for call, _, endpoint in ground.handler.calls]
            assert calls == [
                ("register", "/first.sock"),
                ("deregister", "/first.sock"),
                ("register", "/second.sock"),
            ]


async def test_sockets_in_new_folders_are_found_and_other_files_are_not(ground: Ground) -> None:
    folder = ground.directory / "vendor"
    folder.mkdir()
    (ground.directory / "file.sock").write_text("")
    plugin, hidden = Plugin(), Plugin()
    async with hidden.serving(ground.directory / ".hidden.sock"), plugin.serving(folder / "a.sock"):
        await until(lambda: bool(plugin.statuses))

        assert hidden.statuses == []
        assert len(ground.names()) == 1


@pytest.mark.parametrize(
    ("kind", "invalid", "failure", "text"),
    [
        ("Other", "", "", "no handler registered for plugin type: Other at socket "),
        ("CSIPlugin", "too old", "", "plugin validation failed with err: too old"),
        ("CSIPlugin", "", "no room", "plugin registration failed with err: no room"),
    ],
)
async def test_a_plugin_gets_the_reason_of_its_refusal(
    ground: Ground, kind: str, invalid: str, failure: str, text: str
) -> None:
    ground.handler.invalid, ground.handler.failure = invalid, failure
    plugin, socket = Plugin(kind=kind), ground.directory / "csi-reg.sock"
    async with plugin.serving(socket):
        await until(lambda: bool(plugin.statuses))
        await asyncio.sleep(0.1)

        ((is_registered, error),) = plugin.statuses  # the next attempt waits
        assert not is_registered
        assert error.startswith(f"RegisterPlugin error -- {text}")
        assert ground.names() == []
        ground.handler.invalid = ground.handler.failure = ""
        plugin.kind = "CSIPlugin"
        ground.now_s += 1
        await until(lambda: plugin.statuses[-1] == (True, ""))


async def test_a_plugin_that_does_not_take_the_news_is_unregistered(ground: Ground) -> None:
    plugin = Plugin(failing="NotifyRegistrationStatus")
    async with plugin.serving(ground.directory / "csi-reg.sock"):
        await until(lambda: len(ground.handler.calls) == 2)

        assert [call for call, _, _ in ground.handler.calls] == ["register", "deregister"]
        assert ground.names() == []


@pytest.mark.parametrize("call", ["GetInfo", "NotifyRegistrationStatus"])
async def test_a_plugin_that_does_not_answer_keeps_no_other_from_registering(
    ground: Ground, call: str
) -> None:
    silent, other = Plugin(name="silent", silent=call), Plugin(name="other")
    async with (
        silent.serving(ground.directory / "a.sock"),
        other.serving(ground.directory / "b.sock"),
    ):
        await until(lambda: other.statuses == [(True, "")])


async def test_a_socket_on_which_nothing_listens_keeps_no_other_from_registering(
    ground: Ground,
) -> None:
    dead = ground.directory / "a.sock"
    async with Plugin().serving(dead):
        await until(lambda: bool(ground.names()))
        dead.rename(ground.directory / "moved")
        (ground.directory / "moved").rename(dead)
    other = Plugin(name="other")
    async with other.serving(ground.directory / "b.sock"):
        await until(lambda: ground.names() == ["other"])
